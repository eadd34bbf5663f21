// Decompositions that are functions, `decomp function NAME`: of core, or in Python, in the module
// of the record's family, which the loader registers at first use.
#pragma once
#include <memory>
#include <vector>

#include "record/op.h"

namespace rabbet {

using DecompLoader = int32_t (*)(const char* op, const char* family, const char* function);
void set_decomp_loader(DecompLoader load);
/// Set Op::core_decomp if the record names a function of core.
void attach_decomp(Op& op);
/// Throw unless every function that the records name is one of core.
void check_decomp_functions(const std::vector<std::unique_ptr<Op>>& ops);
void run_decomp_function(const Op& op, const RbValue* args, int nargs, RbValue* rets, int nrets);

}  // namespace rabbet
