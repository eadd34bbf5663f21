// A stand-in for libnvrtc: compiles a kernel's text with g++; the "cubin" is the path of the
// result.
#include <dlfcn.h>
#include <stdlib.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string>

namespace {

struct Program {
  std::string text, log, image;
};
Program& at(void* program) { return *static_cast<Program*>(program); }

std::string read_file(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

std::string here() {
  Dl_info info = {};
  dladdr(reinterpret_cast<void*>(&here), &info);
  const std::string path = info.dli_fname;
  return path.substr(0, path.rfind('/'));
}

}  // namespace

extern "C" {

int nvrtcVersion(int* major, int* minor) {
  *major = 13;
  *minor = 0;
  return 0;
}
int nvrtcCreateProgram(void** program, const char* text, const char*, int, const char* const*,
                       const char* const*) {
  *program = new Program{text, "", ""};
  return 0;
}
int nvrtcCompileProgram(void* program, int count, const char* const* options) {
  Program& p = at(program);
  bool architecture = false, contracts = true;
  for (int i = 0; i < count; ++i) {
    architecture = architecture || !std::strncmp(options[i], "--gpu-architecture=sm_", 22);
    contracts = contracts && std::strcmp(options[i], "--fmad=false") != 0;
  }
  if (!architecture) {
    p.log = "no --gpu-architecture=sm_NN";
    return 5;
  }
  // $CUSIM_FOLDER holds cusim.h and what is compiled.
  const char* folder = std::getenv("CUSIM_FOLDER");
  char name[4096];
  std::snprintf(name, sizeof name, "%s/kernel_XXXXXX", folder ? folder : here().c_str());
  const int file = mkstemp(name);
  if (file < 0) {
    p.log = std::string("cannot write ") + name;
    return 3;
  }
  close(file);
  const std::string stem = name;
  std::ofstream(stem + ".cpp") << "#include \"cusim.h\"\n"
                               << p.text << "\nCUSIM_KERNEL(rb_kernel)\n";
  const std::string flags = std::string("-std=c++17 -O1 -fPIC -w -ffp-contract=") +
                            (contracts ? "fast" : "off") + " -I" +
                            (folder ? folder : here().c_str());
  // Linked in a second step, without the sanitizer's own runtime.
  const std::string command = "(g++ " + flags + " -fsanitize=thread -c " + stem + ".cpp -o " +
                              stem + ".o && g++ -shared " + stem + ".o -o " + stem + ".so) 2> " +
                              stem + ".log";
  const int status = std::system(command.c_str());
  p.log = read_file(stem + ".log");
  if (status) return 6;
  p.image = stem + ".so";
  return 0;
}
int nvrtcGetProgramLogSize(void* program, size_t* size) {
  *size = at(program).log.size() + 1;
  return 0;
}
int nvrtcGetProgramLog(void* program, char* log) {
  std::strcpy(log, at(program).log.c_str());
  return 0;
}
int nvrtcGetCUBINSize(void* program, size_t* size) {
  *size = at(program).image.size() + 1;
  return 0;
}
int nvrtcGetCUBIN(void* program, char* cubin) {
  std::strcpy(cubin, at(program).image.c_str());
  return 0;
}
int nvrtcDestroyProgram(void** program) {
  delete static_cast<Program*>(*program);
  *program = nullptr;
  return 0;
}
}
