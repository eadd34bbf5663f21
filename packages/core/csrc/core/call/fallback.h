// Calls that a backend has no kernel for and no decomposition, run by the backend "cpu" between two
// copies.
#pragma once
#include <string>

#include "record/op.h"

namespace rabbet {

/// Whether the backend's calls may run there (RB_B_FALLS_BACK, and this is no copy of such a call).
bool falls_back(int backend);
/// Run the call with its tensors copied to the CPU, and its results copied back. The first one of
/// each operator and backend gives a warning; RABBET_<BACKEND>_FALLBACK=error refuses all. `why` is
/// the message of the kernel that declined the call, or empty.
void run_on_cpu(const RbCall* c, const Op& op, int backend, const std::string& why,
                const RbValue* args, int nargs, RbValue* rets, int32_t nrets);
/// Warn the user; RB_OK, or the code of an error that the warning became.
int32_t warn_user(const char* message);
/// Set the function that warns the user: it returns RB_OK, or sets the error record. Null: no
/// warnings.
void set_warner(int32_t (*warn)(const char* message));

}  // namespace rabbet
