#include "fibers.h"

#include <sys/mman.h>
#include <ucontext.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>

namespace cusim {
namespace {

constexpr size_t kStack = 256 << 10, kGuard = 4096, kMost = 1025;  // more than a block has threads
constexpr size_t kColor = 9 * 64, kColors = 32 << 10;

}  // namespace

#if defined(__x86_64__)
extern "C" void cusim_switch(void** from, void* to);
// Registers that a function must preserve go to the one stack and come from the other.
__asm__(R"(
.text
.hidden cusim_switch
.globl cusim_switch
.type cusim_switch, @function
cusim_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size cusim_switch, .-cusim_switch
)");

void Fiber::restart() {
  constexpr int kRegisters = 6;
  void** top = reinterpret_cast<void**>(stack_ + size_) - 2;
  *--top = nullptr;  // no one to return to
  *--top = reinterpret_cast<void*>(entry_);
  for (int i = 0; i < kRegisters; ++i) *--top = nullptr;
  state_ = top;
}
void Fibers::enter(Fiber& fiber) {
  running_ = &fiber;
  cusim_switch(&own_, fiber.state_);
}
void Fibers::jump(Fiber& fiber) {
  Fiber& from = *running_;
  running_ = &fiber;
  cusim_switch(&from.state_, fiber.state_);
}
void Fibers::leave() { cusim_switch(&running_->state_, own_); }
#else
void Fiber::restart() {
  if (!state_) state_ = new ucontext_t;
  auto* context = static_cast<ucontext_t*>(state_);
  getcontext(context);
  context->uc_stack.ss_sp = stack_;
  context->uc_stack.ss_size = size_;
  context->uc_link = nullptr;
  makecontext(context, entry_, 0);
}
void Fibers::enter(Fiber& fiber) {
  if (!own_) own_ = new ucontext_t;
  running_ = &fiber;
  swapcontext(static_cast<ucontext_t*>(own_), static_cast<ucontext_t*>(fiber.state_));
}
void Fibers::jump(Fiber& fiber) {
  Fiber& from = *running_;
  running_ = &fiber;
  swapcontext(static_cast<ucontext_t*>(from.state_), static_cast<ucontext_t*>(fiber.state_));
}
void Fibers::leave() {
  swapcontext(static_cast<ucontext_t*>(running_->state_), static_cast<ucontext_t*>(own_));
}
#endif

Fiber::Fiber(char* stack, size_t size, void (*entry)())
    : stack_(stack), size_(size), entry_(entry) {
  restart();
}

Fibers::Fibers(void (*entry)()) : entry_(entry) {
  void* stacks = mmap(nullptr, stacks_size(), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (stacks == MAP_FAILED) {
    std::perror("cusim: no memory for stacks");
    std::abort();
  }
  stacks_ = static_cast<char*>(stacks);
}

size_t Fibers::stacks_size() const { return kStack * kMost; }

Fiber& Fibers::take() {
  if (idle_.empty()) {
    char* stack = stacks_ + kStack * all_.size();
    mprotect(stack, kGuard, PROT_NONE);
    // Tops at different places of their pages, so that the stacks do not share lines of caches.
    const size_t color = all_.size() * kColor % kColors;
    all_.push_back(new Fiber(stack + kGuard, kStack - kGuard - color, entry_));
    return *all_.back();
  }
  Fiber& fiber = *idle_.back();
  idle_.pop_back();
  return fiber;
}

void Fibers::restart() {
  idle_.clear();
  for (Fiber* fiber : all_) {
    fiber->restart();
    idle_.push_back(fiber);
  }
}

}  // namespace cusim
