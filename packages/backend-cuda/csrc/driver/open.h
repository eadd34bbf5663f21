// Libraries opened at run time: where each is looked for, and in which order: its variable, the
// nvidia-* wheels beside this one, the system, and the toolkit ($CUDA_HOME, $CUDA_PATH or
// /usr/local/cuda).
#pragma once

namespace rbcuda {

/// A library of NVIDIA. Lists end with null.
struct Library {
  const char* what;        // "NVRTC"
  const char* variable;    // of the environment; the path in it is the only one tried
  const char* folders[3];  // of the nvidia-* wheels, below site-packages/nvidia
  const char* before[5];   // patterns of what the library needs open, in this order
  const char* pattern;     // of its file in a folder: "libnvrtc.so.1*"
  const char* names[4];    // what the system knows it by, newest first
  const char* missing;     // what to do where it is nowhere
};

/// Whether its variable is set and empty: the user wants to go without it.
bool is_left_out(const Library& library);
/// Null where it is nowhere; throws RB_E_DEVICE where the environment names what cannot be opened.
void* open_if_there(const Library& library);
/// Throws RB_E_DEVICE with `missing` where it is nowhere.
void* open_library(const Library& library);
/// A function of it; throws RB_E_DEVICE saying that the library is too old.
void* symbol(void* library, const char* name, const char* what);

}  // namespace rbcuda

/// Fills a table of functions: X(member, "symbol", (arguments)), in the scope of `table`, `opened`
/// and `what`.
#define RB_CUDA_LOAD(member, name, arguments) \
  table.member = reinterpret_cast<decltype(table.member)>(symbol(opened, name, what));
#define RB_CUDA_MEMBER(member, symbol, arguments) int(*member) arguments;
