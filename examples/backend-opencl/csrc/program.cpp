#include "program.h"

#include <cstdlib>

#include "sources.h"

namespace rbcl {
namespace {

struct Type {
  const char *cl, *wide, *largest, *least;  // `wide`: an integer of the same size
  char kind;
};
const Type* type_of(int dtype) {
  static const Type boolean = {"uchar", "uchar", "1", "0", 'b'};
  static const Type i32 = {"int", "uint", "INT_MAX", "INT_MIN", 'i'};
  static const Type i64 = {"long", "ulong", "LONG_MAX", "LONG_MIN", 'i'};
  static const Type f32 = {"float", "uint", "INFINITY", "-INFINITY", 'f'};
  static const Type f64 = {"double", "ulong", "INFINITY", "-INFINITY", 'f'};
  switch (dtype) {
    case RB_BOOL8:
      return &boolean;
    case RB_I32:
      return &i32;
    case RB_I64:
      return &i64;
    case RB_F32:
      return &f32;
    case RB_F64:
      return &f64;
    default:
      return nullptr;
  }
}

}  // namespace

const char* dtype_name(int dtype) {
  static const char* const names[RB_DTYPE_COUNT] = {
      "bool",   "uint8",   "int8",     "int16",   "int32",   "int64",     "uint16",    "uint32",
      "uint64", "float16", "bfloat16", "float32", "float64", "complex64", "complex128"};
  return dtype >= 0 && dtype < RB_DTYPE_COUNT ? names[dtype] : "an unknown dtype";
}

std::string program_source(int dtype, bool fp64, const Extra& extra) {
  const Type& t = *type_of(dtype);
  std::string text;
  text += "typedef uint uint32_t;\ntypedef ulong uint64_t;\n#define sqrtf sqrt\n#define logf log\n";
  text += "#define cosf cos\n#define sinf sin\n";
  text += fp64 ? "#pragma OPENCL EXTENSION cl_khr_fp64 : enable\n#define HAS_FP64 1\n"
               : "#define double float\n#define HAS_FP64 0\n";
  text += "#pragma OPENCL FP_CONTRACT OFF\n";
  text += std::string("#define T ") + t.cl + "\n#define T16 " + t.cl + "16\n#define BITS " +
          t.wide + "\n#define T_MAX ((T)" + t.largest + ")\n#define T_MIN ((T)" + t.least + ")\n";
  text += std::string("#define IS_BOOL ") + (t.kind == 'b' ? "1" : "0") + "\n#define IS_INT " +
          (t.kind == 'i' ? "1" : "0") + "\n#define IS_FLOAT " + (t.kind == 'f' ? "1" : "0") + "\n";
  text += std::string("#define IS_WIDE ") + (item_size(dtype) == 8 ? "1" : "0") + "\n";
  const bool all = extra.id < 0;
  for (const KernelSource* source = kKernelSources; source->name; ++source) {
    const std::string name = source->name;
    if (all || name == "0_common" || name == "elementwise") text += source->text;
  }
  text += elementwise_functions(dtype);
  return text + (all ? elementwise_kernels(dtype) : extra.text);
}

cl_program Device::program(int dtype, const Extra& extra) {
  cl_program& program = programs_[dtype + RB_DTYPE_COUNT * (extra.id + 1)];
  if (program) return program;
  const std::string source = program_source(dtype, fp64_, extra);
  const char* text = source.c_str();
  cl_int status;
  cl_program made = cl().CreateProgramWithSource(context_, 1, &text, nullptr, &status);
  check_cl(status, index_, "clCreateProgramWithSource");
  const char* options = std::getenv("RABBET_OPENCL_OPTIONS");
  status = cl().BuildProgram(made, 1, &id_, options ? options : "", nullptr, nullptr);
  if (status != CL_SUCCESS) {
    size_t size = 0;
    cl().GetProgramBuildInfo(made, id_, CL_PROGRAM_BUILD_LOG, 0, nullptr, &size);
    std::string log(size, '\0');
    cl().GetProgramBuildInfo(made, id_, CL_PROGRAM_BUILD_LOG, size, log.data(), nullptr);
    const std::string message = "opencl:" + std::to_string(index_) + " (" + name_ +
                                "): the kernels for " + dtype_name(dtype) +
                                " do not build: " + status_text(status) + "\n" + log.c_str();
    throw rb::Stored{rb::host->err_set(RB_E_DEVICE, message.c_str())};
  }
  return program = made;
}

cl_kernel Device::kernel(int dtype, const char* name, const Extra& extra) {
  open();
  std::string key = name;
  key += static_cast<char>('A' + dtype);
  if (extra.id >= 0) key += std::to_string(extra.id);
  cl_kernel& kernel = kernels_[key];
  if (!kernel) {
    cl_int status;
    cl_kernel made = cl().CreateKernel(program(dtype, extra), name, &status);
    if (status != CL_SUCCESS) {
      rb::fail(RB_E_DEVICE, "opencl:%d: clCreateKernel of %s for %s failed: %s", index_, name,
               dtype_name(dtype), status_text(status).c_str());
    }
    kernel = made;
  }
  return kernel;
}

Launch& Launch::number(int dtype, double real, int64_t integer) {
  switch (dtype) {
    case RB_BOOL8:
      return value(static_cast<cl_uchar>(integer != 0 || real != 0));  // 0.5 is true
    case RB_I32:
      return value(static_cast<cl_int>(integer));
    case RB_I64:
      return value(static_cast<cl_long>(integer));
    case RB_F32:
      return value(static_cast<cl_float>(real));
    default:
      return value(real);
  }
}

void Launch::fail(cl_int status) const {
  rb::fail(status == CL_MEM_OBJECT_ALLOCATION_FAILURE ? RB_E_OOM : RB_E_DEVICE,
           "opencl:%d (%s): kernel %s, argument %u: %s", device_.index_, device_.name_.c_str(),
           name_, count_, status_text(status).c_str());
}

}  // namespace rbcl
