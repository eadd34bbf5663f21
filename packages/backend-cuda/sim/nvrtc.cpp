// A stand-in for libnvrtc: compiles a kernel's text with g++; the "cubin" is a shared library.
// $CUSIM_FOLDER holds cusim.h and what was compiled: folder/kernels/HASH.so, of the same text and
// options by any process.
#include <dlfcn.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <vector>

extern char** environ;

namespace {

struct Program {
  std::string text, name, log, image;
  bool is_ptx = false;
};
Program& at(void* program) { return *static_cast<Program*>(program); }

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

// Where this library lies, and hooks.o beside it.
std::string here() {
  Dl_info info = {};
  dladdr(reinterpret_cast<void*>(&here), &info);
  const std::string path = info.dli_fname;
  return path.substr(0, path.rfind('/'));
}
std::string folder() {
  const char* given = std::getenv("CUSIM_FOLDER");
  return given ? given : here();
}

// FNV-1a, twice with different starts.
std::string hash_of(const std::string& text) {
  char result[33];
  for (int half = 0; half < 2; ++half) {
    uint64_t h = 14695981039346656037ull + 977 * half;
    for (unsigned char c : text) h = (h ^ c) * 1099511628211ull;
    std::snprintf(result + 16 * half, 17, "%016llx", static_cast<unsigned long long>(h));
  }
  return result;
}

// The headers before every kernel.
const std::string& headers() {
  static const std::string all = [] {
    std::string text;
    for (const char* name : {"abi", "math", "types", "warp"})
      text += read_file(folder() + "/cusim_" + name + ".h");
    return text + read_file(folder() + "/cusim.h") + read_file(here() + "/hooks.o");
  }();
  return all;
}

// Names of kernels, `__global__ void NAME(`, outside macros; and what macros of kernels/ make.
std::set<std::string> kernels_of(const std::string& text) {
  std::set<std::string> names;
  std::istringstream lines(text);
  bool in_macro = false;
  for (std::string line; std::getline(lines, line);) {
    const bool starts = line.rfind("#define", 0) == 0;
    const bool skip = in_macro || starts;
    in_macro = skip && !line.empty() && line.back() == '\\';
    if (line.find("rb_kernel") != std::string::npos) names.insert("rb_kernel");
    const size_t found = line.find("__global__");
    const size_t start = found == std::string::npos ? found : line.find("void ", found);
    if (skip || start == std::string::npos) continue;
    const size_t end = line.find('(', start);
    std::string name = line.substr(start + 5, end - start - 5);
    if (const size_t space = name.rfind(' '); space != std::string::npos) name.erase(0, space + 1);
    if (end != std::string::npos && name != "__launch_bounds__") names.insert(name);
  }
  return names;
}

std::string source_of(const Program& program) {
  std::string source = "#include \"cusim.h\"\n#line 1 \"" + program.name + "\"\n" + program.text;
  for (const std::string& name : kernels_of(program.text))
    source += "\nCUSIM_KERNEL(" + name + ", \"" + program.name + "\")";
  return source + "\n";
}

// A fault that a test wants to see found: $CUSIM_REPLACE becomes $CUSIM_REPLACE_BY.
std::string with_fault(std::string text) {
  const char *right = std::getenv("CUSIM_REPLACE"), *wrong = std::getenv("CUSIM_REPLACE_BY");
  if (!right || !*right || !wrong) return text;
  for (size_t at = 0; (at = text.find(right, at)) != std::string::npos; at += std::strlen(wrong))
    text.replace(at, std::strlen(right), wrong);
  return text;
}

// $CUSIM_ARCHITECTURES: "80,90"; else those of NVRTC 13.0.
const std::vector<int>& architectures() {
  static const std::vector<int> all = [] {
    const char* given = std::getenv("CUSIM_ARCHITECTURES");
    std::stringstream words(given ? given : "75,80,86,87,88,89,90,100,103,110,120,121");
    std::vector<int> found;
    for (std::string word; std::getline(words, word, ',');)
      found.push_back(std::atoi(word.c_str()));
    return found;
  }();
  return all;
}

int run(const std::vector<std::string>& command, const std::string& log) {
  std::vector<char*> arguments;
  for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 2, log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
  pid_t child = 0;
  int status = posix_spawnp(&child, arguments[0], &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (status) return status;
  while (waitpid(child, &status, 0) < 0) {
  }
  return status;
}

}  // namespace

extern "C" {

int nvrtcVersion(int* major, int* minor) {
  *major = 13;
  *minor = 0;
  return 0;
}
int nvrtcCreateProgram(void** program, const char* text, const char* name, int, const char* const*,
                       const char* const*) {
  *program = new Program{with_fault(text), name ? name : "kernel.cu", "", ""};
  return 0;
}
int nvrtcGetNumSupportedArchs(int* count) {
  *count = static_cast<int>(architectures().size());
  return 0;
}
int nvrtcGetSupportedArchs(int* all) {
  std::memcpy(all, architectures().data(), architectures().size() * sizeof *all);
  return 0;
}
int nvrtcCompileProgram(void* program, int count, const char* const* options) {
  Program& p = at(program);
  bool known = false, contracts = true;
  for (int i = 0; i < count; ++i) {
    const std::string option = options[i];
    for (const int a : architectures()) {
      for (const char* kind : {"sm_", "compute_"}) {
        if (option != "--gpu-architecture=" + (kind + std::to_string(a))) continue;
        known = true;
        p.is_ptx = *kind == 'c';
      }
    }
    contracts = contracts && option != "--fmad=false";
  }
  if (!known) {
    p.log = "nvrtc: error: invalid value for --gpu-architecture (-arch)\n";
    return 5;
  }
  // Aggregates are copied whole, so that copies of vectors are checked for their alignment.
  std::vector<std::string> command = {"g++",
                                      "-std=c++17",
                                      "-O1",
                                      "-fPIC",
                                      "-shared",
                                      "-w",
                                      "-fvisibility=hidden",
                                      "-fwrapv",
                                      "-fno-math-errno",
                                      "-fno-exceptions",
                                      "-fno-rtti",
                                      "-fno-tree-sra",
                                      "-fno-threadsafe-statics",
                                      std::string("-ffp-contract=") + (contracts ? "fast" : "off"),
                                      "-fsanitize=thread",
                                      "-fsanitize=float-cast-overflow",
                                      "--param=tsan-instrument-func-entry-exit=0",
                                      "--param=tsan-distinguish-volatile=1",
                                      "-nostdlib",
                                      "-I" + folder()};
  const std::string source = source_of(p);
  std::string key = source + headers();
  for (const std::string& word : command) key += word;
  const std::string kernels = folder() + "/kernels", stem = kernels + "/" + hash_of(key);
  p.image = read_file(stem + ".so");
  if (!p.image.empty()) return 0;
  mkdir(kernels.c_str(), 0777);
  const std::string mine = stem + "." + std::to_string(getpid());
  std::ofstream(mine + ".cpp") << source;
  for (const std::string& word :
       {mine + ".cpp", here() + "/hooks.o", std::string("-lm"), std::string("-o"), mine + ".so"})
    command.push_back(word);
  const int status = run(command, mine + ".log");
  p.log = read_file(mine + ".log");
  p.image = read_file(mine + ".so");
  unlink((mine + ".log").c_str());
  if (!status) std::rename((mine + ".so").c_str(), (stem + ".so").c_str());
  std::rename((mine + ".cpp").c_str(), (stem + ".cpp").c_str());
  return status ? 6 : 0;
}
int nvrtcGetProgramLogSize(void* program, size_t* size) {
  *size = at(program).log.size() + 1;
  return 0;
}
int nvrtcGetProgramLog(void* program, char* log) {
  std::strcpy(log, at(program).log.c_str());
  return 0;
}
// Of a virtual architecture there is PTX only; here it is the same.
int nvrtcGetCUBINSize(void* program, size_t* size) {
  *size = at(program).is_ptx ? 0 : at(program).image.size();
  return 0;
}
int nvrtcGetCUBIN(void* program, char* cubin) {
  if (!at(program).is_ptx) std::memcpy(cubin, at(program).image.data(), at(program).image.size());
  return 0;
}
int nvrtcGetPTXSize(void* program, size_t* size) {
  *size = at(program).image.size();
  return 0;
}
int nvrtcGetPTX(void* program, char* ptx) {
  std::memcpy(ptx, at(program).image.data(), at(program).image.size());
  return 0;
}
int nvrtcDestroyProgram(void** program) {
  delete static_cast<Program*>(*program);
  *program = nullptr;
  return 0;
}
}
