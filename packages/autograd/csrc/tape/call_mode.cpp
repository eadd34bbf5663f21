#include "call_mode.h"

namespace tape {

namespace {

struct CallMode {
  RbCallMode fn;
  void* ctx;
  void (*del)(void*);
  CallMode* below;
};
thread_local CallMode* modes __attribute__((tls_model("initial-exec"))) = nullptr;
int32_t mode_layer = 0;

void switch_layer() { host->layer_mode(mode_layer, modes ? 1 : 0, -1); }

// The innermost mode runs without recording and outside of itself.
int32_t run_mode(void*, const RbCall* call, const RbValue* args, int32_t nargs, RbValue* rets,
                 int32_t nrets) {
  CallMode* mode = modes;
  if (!mode) return host->redispatch(call, mode_layer, args, nargs, rets, nrets);
  const ThreadGuard guard;
  host->layer_mode(layer, -1, 1);
  modes = mode->below;
  switch_layer();
  const int32_t rc = mode->fn(mode->ctx, call, args, nargs, rets, nrets);
  modes = mode;
  return rc;
}

}  // namespace

int32_t add_call_mode_layer(RbTxn* txn) {
  static const char* const none[] = {nullptr};
  RbLayer desc{};
  desc.struct_size = RB_SIZE(RbLayer, self);
  desc.name = "call_mode";
  desc.phase = 500;  // it sees views and writes as they were made
  desc.on_missing = RB_L_FALLBACK;
  desc.before = none;
  desc.after = none;
  desc.fallback = run_mode;
  return host->add_layer(txn, &desc, &mode_layer);
}

void push_call_mode(RbCallMode fn, void* ctx, void (*del)(void*)) {
  modes = new CallMode{fn, ctx, del, modes};
  switch_layer();
}

void pop_call_mode() {
  CallMode* top = modes;
  if (!top) return;
  modes = top->below;
  switch_layer();
  if (top->del) top->del(top->ctx);
  delete top;
}

int32_t call_mode_run(const RbCall* call, const RbValue* args, int32_t nargs, RbValue* rets,
                      int32_t nrets) {
  return run_mode(nullptr, call, args, nargs, rets, nrets);
}

}  // namespace tape
