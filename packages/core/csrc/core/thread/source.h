// The line of the user's program in which this thread's call stands.
#pragma once
#include <string>

namespace rabbet {

/// Null: nobody knows. Valid until the thread asks again.
const char* call_source();
/// What call_source gives from now on; null: what it finds.
void set_call_source(const char* text);
/// Who finds it, without being asked at calls: the binding. False: there is none.
extern bool (*source_finder)(std::string& text);

}  // namespace rabbet
