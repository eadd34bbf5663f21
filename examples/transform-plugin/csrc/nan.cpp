// The layer "nan": checks what every operator gives for NaN, and for infinities if asked to.
#include "listener.hpp"

using namespace instruments;

namespace {

struct Checker : Listener {
  bool inf, record;
  std::string found;  // a line each
  std::string text() const override { return found; }
};

// On each tensor that holds some: the name of the operator that made them.
int32_t slot = 0;
uint32_t slot_offset = 0;
const char* maker(const RbTensor* t) {
  return *reinterpret_cast<const char* const*>(reinterpret_cast<const char*>(t) + slot_offset);
}

int64_t count(const char* test, RbTensor* t) {
  const rb::Ref mask = call(test, t), sum = call("count_nonzero", mask.get());
  return *static_cast<const int64_t*>(sum.get()->data);
}

struct Bad {
  int64_t nan, inf;
  bool any;
};
Bad look(RbTensor* t, const Checker& checker) {
  if (!is_floating(t) || !t->data || !t->numel) return {0, 0, false};
  if (t->device.type != 1)  // DLPack's kDLCPU
    rb::fail(RB_E_NOTIMPL, "rabbet_nan reads results on the CPU only");
  if (count("isfinite", t) == t->numel) return {0, 0, false};
  const int64_t nan = count("isnan", t), inf = count("isinf", t);
  return {nan, inf, nan || checker.inf};
}

// The argument that holds some already, and who made them; null where the operator itself did.
struct Source {
  const char *argument, *maker;
};
Source find_source(const rb::Args& a, const RbOpInfo& info, const Checker& checker) {
  Source source{nullptr, info.name};
  for (int i = 0; i < a.nargs && !source.argument; ++i) {
    each_tensor(a.args[i], [&](RbTensor* t) {
      if (!look(t, checker).any) return;
      source = {rb::arg_info(info, i).name, maker(t) ? maker(t) : "something before the check"};
    });
  }
  return source;
}

std::string describe(const RbOpInfo& info, const char* what, const RbTensor* t, const Bad& bad,
                     const Source& source) {
  std::string shape, origin = "; its arguments hold none";
  for (int i = 0; i < t->ndim; ++i) shape += (i ? ", " : "") + std::to_string(t->shape[i]);
  if (t->ndim == 1) shape += ",";
  if (source.argument)
    origin =
        std::string("; its argument '") + source.argument + "' held some, made by " + source.maker;
  return std::string(info.name) + (source.argument ? " passed on" : " made") + " NaN or inf: '" +
         what + "' of shape (" + shape + ") holds " + std::to_string(bad.nan) + " NaN and " +
         std::to_string(bad.inf) + " inf among " + std::to_string(t->numel) + " elements" + origin;
}

void handle(const rb::Args& a) {
  const RbOpInfo& info = *rb::host->op_info(a.call->op);
  Checker& checker = static_cast<Checker&>(*listeners().back());
  const Without checks(layer);
  bool writes = (a.call->flags & RB_CALL_OUT) != 0;
  for (int i = 0; i < info.nargs; ++i)
    writes |= (rb::arg_info(info, i).flags & RB_ARG_MUTATED) != 0;
  Source source{nullptr, info.name};
  if (writes) source = find_source(a, info, checker);  // before it is overwritten
  rb::check(rb::host->redispatch(a.call, layer, a.args, a.nargs, a.rets, a.nrets));
  const std::string name = info.name;
  if (name.find("empty") != std::string::npos) return;  // holds whatever the memory held
  std::string message;
  const auto check = [&](const char* what, const RbValue& v) {
    each_tensor(v, [&](RbTensor* t) {
      const Bad bad = look(t, checker);
      if (bad.any && !writes) source = find_source(a, info, checker);
      if (bad.any && message.empty()) message = describe(info, what, t, bad, source);
      rb::host->slot_set(t, slot, bad.any ? const_cast<char*>(source.maker) : nullptr, 0);
    });
  };
  for (int i = 0; i < a.nrets; ++i) check(info.ret_names[i], a.rets[i]);
  for (int i = 0; i < info.nargs; ++i)
    if (rb::arg_info(info, i).flags & RB_ARG_MUTATED) check(rb::arg_info(info, i).name, a.args[i]);
  if (message.empty()) return;
  if (checker.record) {
    const std::lock_guard<std::mutex> lock(checker.mutex);
    checker.found += message + "\n";
    return;
  }
  for (int i = 0; i < a.nrets && !(a.call->flags & RB_CALL_OUT); ++i)
    rb::host->value_release(&a.rets[i]);
  rb::fail(RB_E_STATE, "%s", message.c_str());
}

}  // namespace

int32_t instruments::init(const RbHost* host, RbTxn* txn) {
  static const char* const after[] = {"profile", nullptr};  // our own calls are not counted then
  if (int32_t rc = add_layer(host, txn, "nan", after, rb::wrap<handle>)) return rc;
  return host->slot_new("nan", layer, [](void*) {}, &slot, &slot_offset);
}

extern "C" RB_EXPORT void* checker_new(int32_t inf, int32_t record) {
  Checker* made = new Checker;
  made->inf = inf;
  made->record = record;
  return static_cast<Listener*>(made);
}
