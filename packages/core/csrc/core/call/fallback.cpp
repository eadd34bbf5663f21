#include "call/fallback.h"

#include <atomic>
#include <cctype>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <set>
#include <utility>

#include "call/core_functions.h"
#include "call/destinations.h"
#include "call/dispatch.h"
#include "call/kernel_arguments.h"
#include "device/backends.h"
#include "device/capture.h"
#include "device/generator.h"
#include "thread/error.h"

namespace rabbet {

namespace {

thread_local bool copying = false;
std::atomic<int32_t (*)(const char*)> warner{nullptr};

// Copies need kernels of the backend's own.
class Copying {
 public:
  Copying() : before_(std::exchange(copying, true)) {}
  ~Copying() { copying = before_; }
  Copying(const Copying&) = delete;
  Copying& operator=(const Copying&) = delete;

 private:
  bool before_;
};

std::string setting(int backend) {
  std::string name = backend_name(backend);
  for (char& c : name) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return "RABBET_" + name + "_FALLBACK";
}

void tell(const Op& op, int backend, const std::string& why) {
  static std::mutex mutex;
  static auto* told = new std::set<std::pair<const Op*, int>>;
  const std::string name = setting(backend);
  const char* chosen = std::getenv(name.c_str());
  const std::string reason = why.empty() ? "" : " (" + why + ")";
  if (chosen && !std::strcmp(chosen, "error")) {
    fail(RB_E_NOTIMPL, "%s: no kernel for '%s'%s and no decomposition, and %s=error",
         op.name.c_str(), backend_name(backend), reason.c_str(), name.c_str());
  }
  {
    const std::lock_guard<std::mutex> lock(mutex);
    if (!told->emplace(&op, backend).second) return;
  }
  check(warn_user((op.name + ": no kernel for '" + backend_name(backend) + "' takes this call" +
                   reason +
                   "; it runs on the CPU, with copies there and back. Later calls of it "
                   "do so without a warning; " +
                   name + "=error refuses them.")
                      .c_str()));
}

TensorRef copied(const RbTensor* t, int backend, int device) {
  const Copying copy;
  return on_device(t, backend, device);
}

}  // namespace

bool falls_back(int backend) {
  return !copying && (backend_entry(backend).desc.flags & RB_B_FALLS_BACK);
}

void set_warner(int32_t (*warn)(const char*)) { warner.store(warn); }

int32_t warn_user(const char* message) {
  const auto warn = warner.load();
  return warn ? warn(message) : RB_OK;
}

void run_on_cpu(const RbCall* c, const Op& op, int backend, const std::string& why,
                const RbValue* args, int nargs, RbValue* rets, int32_t nrets) {
  const int device = c->device_index;
  check_not_capturing(backend, device, (op.name + ": a call that runs on the CPU").c_str());
  tell(op, backend, why);
  const int cpu = require_backend("cpu");
  if (op.mutates) check_mutated(op, args, nargs);
  Arguments a(args, nargs);
  replace_tensors(a, nargs, [&](RbTensor* t, int) {
    return t->backend == backend ? copied(t, cpu, 0) : TensorRef();
  });
  for (int i = 0; i < nargs; ++i) {
    RbValue& v = a.values[i];
    if (op.params[i].type == RB_A_DEVICE) {
      v = value_none();
      v.tag = RB_DEVICE;
      v.v.dev = {cpu, 0};
    } else if (op.params[i].type == RB_A_GENERATOR && v.tag == RB_NONE) {
      v.tag = RB_GENERATOR;
      v.v.gen = &current_generator(backend, device);
    }
  }
  Results results(nrets);
  check(call(&op, a.values, nargs, results.values, nrets, 0));
  const Copying copy;
  if (op.mutates) {
    write_mutated(op, args, a, nargs);
    bump_mutated(op, args, nargs);
  }
  const auto moved = [&](RbTensor* t) {
    return t->backend == cpu ? copied(t, backend, device) : TensorRef::share(t);
  };
  for (int32_t i = 0; i < nrets; ++i) {
    RbValue& result = results.values[i];
    if (c->flags & RB_CALL_OUT) {
      const RbTensor* made = result.v.t;
      prepare_destination(op, rets[i].v.t, spec_of(made), backend, device, args, nargs,
                          order_of(op, made));
      copy_tensor(made, rets[i].v.t);
      bump_version(rets[i].v.t);
      continue;
    }
    if (result.tag == RB_TENSOR) {
      RbTensor* there = moved(result.v.t).release_ownership();
      release(std::exchange(result.v.t, there));
    }
    RbTensor** list = result.tag == RB_TENSORS ? const_cast<RbTensor**>(result.v.ts) : nullptr;
    for (uint32_t k = 0; list && k < result.len; ++k) {
      if (!list[k]) continue;
      RbTensor* there = moved(list[k]).release_ownership();
      release(std::exchange(list[k], there));
    }
    rets[i] = std::exchange(result, value_none());
  }
}

}  // namespace rabbet
