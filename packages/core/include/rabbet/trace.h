/* rabbet/trace.h: seeing calls. What a call gives without running it, tensors without values, when
 * values are needed after all, where in the program a call stands, and what the dispatcher does.
 *
 *   const RbTrace* trace = host->get_ext(RB_TRACE_EXT, RB_TRACE_VERSION);
 *
 * The rules of rabbet/abi.h hold here too.
 */
#ifndef RABBET_TRACE_H
#define RABBET_TRACE_H

#include "rabbet/abi.h"

#define RB_TRACE_EXT "rabbet.trace"
#define RB_TRACE_VERSION 1

#ifdef __cplusplus
extern "C" {
#endif

typedef struct RbEvents RbEvents; /* a reader of events; opaque */

enum {                        /* RbEvent.kind; masks of events_open */
       RB_EVENT_OP_BEGIN = 1, /* a full call: op, depth, text (its arguments) */
       RB_EVENT_OP_END = 2,   /* the same call has returned `status` */
       RB_EVENT_ALLOC = 4,    /* core's caching allocator gave memory: data, nbytes, device */
       RB_EVENT_FREE = 8,     /* and got it back */
       /* Only observers see these, which are emitted: */
       RB_EVENT_RANGE_BEGIN = 16, /* a named part of the program: text, id, flags (RB_RANGE_*) */
       RB_EVENT_RANGE_END = 32,   /* the end of the range with the same id */
       RB_EVENT_NODE = 64,        /* the running call was recorded for backward: id */
       /* A backend is about to give a device work: text, id (unique for the backend), backend,
        * device, data (the stream), flags (RB_LAUNCH_*). Where the kind is observed the backend
        * also notes when the device does it: RbDeviceTable.work_times. */
       RB_EVENT_LAUNCH = 128
};
enum { RB_LAUNCH_KERNEL = 0, RB_LAUNCH_COPY = 1, RB_LAUNCH_GRAPH = 2 };
enum {                         /* RbObserved.flags of a range */
       RB_RANGE_USER = 0,      /* named by the program; ids are unique in the process */
       RB_RANGE_FRAMEWORK = 1, /* named by a part of Rabbet: an optimizer's step, a loader's wait */
       RB_RANGE_NODE = 2,      /* autograd processes a node: id is that of its RB_EVENT_NODE */
       RB_RANGE_DERIVATIVE = 3 /* the derivative inside of it, with the same id */
};
typedef struct RbEvent {
  uint32_t kind, thread; /* a small number for each thread */
  uint64_t time;         /* nanoseconds of a clock that never goes back */
  const RbOp* op;
  int32_t depth; /* calls around this one on the same thread */
  int32_t status;
  const void* data;
  uint64_t nbytes;
  int32_t backend, device;
  char text[80]; /* the tensors among the arguments: "float32(2, 3), int64()", perhaps cut */
} RbEvent;

/* An event as observers get it, on the thread on which it happens. Members that a kind does not
 * mention are zero. Pointers are valid during the call. */
typedef struct RbObserved {
  uint32_t struct_size, kind; /* sizeof(RbObserved); one of RB_EVENT_* */
  const RbOp* op;
  const RbValue* values; /* begin of a call: its arguments; end with RB_OK: its results */
  int32_t nvalues;
  int32_t status; /* end of a call */
  uint32_t flags; /* calls: RB_CALL_*; ranges: RB_RANGE_* */
  int32_t backend, device;
  uint32_t reserved;
  const void* data;
  uint64_t nbytes;
  const char* text;
  uint64_t id;
} RbObserved;
typedef void (*RbObserveFn)(void* self, const RbObserved* event);

/* Values are needed: `what` ("item()", "__dlpack__", ...) is about to read `t`, a composite of the
 * layer or, for a transform, a wrapper of its level. Put an owned tensor of the same shape and
 * dtype into *out whose values are those of `t`, or fail saying why there are none. `frame`: that
 * of a transform's level, else null. Operators called here run below the layer. */
typedef int32_t (*RbRealFn)(void* self, void* frame, RbTensor* t, const char* what, RbTensor** out);

/* What a layer states that defers calls: it returns results whose kernels have not run yet. They
 * are ordinary tensors with memory (RbHost.tensor_new), which the layer has written later, when
 * they are read. Below the layer nobody sees a tensor before that; everybody else asks through
 * `ready`. While the layer is on for a thread, core calls the derivatives of elementwise operators
 * as single operators, as it does where no layer is on. */
typedef struct RbDeferral {
  uint32_t struct_size, flags;
  void* self;
  /* The memory of `t` is about to be read, or its address to be handed out, by `what` ("item()",
   * "buffer", ...), on any thread: have it written. `t` is no wrapper and no composite. */
  int32_t (*ready)(void* self, const RbTensor* t, const char* what);
  /* The calling thread is about to use core for the first time. May be null. */
  void (*thread_begins)(void* self);
} RbDeferral;

/* `what` ("item()", "buffer", "data_ptr()", ...) is about to read `t`, which is no wrapper and no
 * composite. RB_OK: it may; anything else is the error of the read. */
typedef int32_t (*RbReadFn)(void* self, const RbTensor* t, const char* what);

/* `what` ("manual_seed()", ...) is about to set or read the state of a generator; null: those of
 * all devices. RB_OK: it may; anything else is the error of what asked. */
typedef int32_t (*RbGeneratorFn)(void* self, const RbGenerator* generator, const char* what);

/* RbLayer.flags. The thread includes the layer, and no tensor need carry its key: derivatives of
 * elementwise operators that the backend has as single kernels come as single calls then, with the
 * rounding of a program without the layer. Such an operator has the name "OP.vjp.ARGUMENT". */
enum { RB_L_DERIVATIVES = 2 };
/* RbLayer.flags. Aliases (detach(), .data) of a tensor that has the layer's key (RbHost.slot_set)
 * have it too, as its views do: a layer that defers calls sees every call on memory that it has
 * not written yet. A slot's pointer stays with its tensor. */
enum { RB_L_STICKY = 4 };

enum { /* RbMemory.flags */
       /* Code outside of core may read or write it: it was adopted, or its address was handed out
        * (to NumPy, by DLPack, by data_ptr()). */
       RB_MEMORY_EXPOSED = 1
};
typedef struct RbMemory {
  uint32_t struct_size, flags; /* struct_size is set by the caller */
  int32_t tensors;             /* that refer to the memory: 1 if `t` is the only one */
  int32_t reserved;
  const void* data; /* all of it, of which `t` may show a part */
  uint64_t nbytes;
} RbMemory;

typedef struct RbPointwise {
  uint32_t struct_size, flags; /* struct_size is set by the caller */
  RbFn fn;
  void* self;
  int32_t all;    /* 1: all tensors have the dtype */
  int32_t checks; /* 1: the record checks the arguments, their numbers too; `infer` does so */
} RbPointwise;

typedef struct RbTrace {
  uint32_t struct_size, flags;
  /* The results of a call, not run: rets become owned tensors of the device `meta` (or lists of
   * them) with shape, strides and dtype. *backend and *device: where the results would be.
   * RB_E_NOTIMPL where they depend on values, or where only a kernel knows them. */
  int32_t (*infer)(const RbOp* op, const RbValue* args, int32_t nargs, RbValue* rets, int32_t nrets,
                   int32_t* backend, int32_t* device);
  /* A stub of `layer`: device, dtype, shape and strides (null: row-major), no values. Calls with it
   * come to the layer; nothing else may read it. It is a composite of no parts: compose() makes one
   * with a blob. */
  int32_t (*stub)(int32_t layer, int32_t backend, int32_t device, int32_t dtype, int32_t ndim,
                  const int64_t* shape, const int64_t* strides, RbTensor** out);
  /* What runs where values are needed of the layer's tensors. Of a transform it stands in for
   * RB_X_READABLE and RbLayer.refresh. Null `fn`: take it back. */
  int32_t (*data_hook)(int32_t layer, RbRealFn fn, void* self);
  /* The line of the user's program in which the thread's call stands: "file.py:12 in name", or null
   * where nobody knows. Asked only: a call pays nothing for it. Valid until the thread asks again.
   */
  const char* (*source_get)(void);
  /* Say it instead, until null is set: a backward pass names the line of the forward call. */
  void (*source_set)(const char* text);
  /* Read what the dispatcher does from now on: `kinds` is a mask of RB_EVENT_*. Events of all
   * readers lie in one ring: who reads too late loses the oldest ones. Nothing is paid where nobody
   * reads. A reader is for one thread at a time. */
  int32_t (*events_open)(uint32_t kinds, RbEvents** out);
  /* Copy at most `max` events, oldest first, into elements of `size` bytes (sizeof(RbEvent) of the
   * reader's header). *lost (may be null): events lost since the last read. */
  int32_t (*events_read)(RbEvents*, void* out, uint32_t size, uint32_t max, uint32_t* count,
                         uint64_t* lost);
  int32_t (*events_close)(RbEvents*);
  /* Call fn(self, event) for each event of `kinds`, a mask of RB_EVENT_*, on the thread on which it
   * happens, without a lock. Another mask for the same fn and self replaces the first one, 0 ends
   * it. The function must make no calls, and must be callable for the rest of the process: a thread
   * may be about to call it when `observe` returns. A process can have 8 observers in its life. */
  int32_t (*observe)(uint32_t kinds, RbObserveFn fn, void* self);
  /* Tell observers of a range, a node or a launch. An emitter checks first whether its kind is
   * observed: */
  int32_t (*emit)(const RbObserved*);
  const uint32_t* observed; /* the kinds that are observed; read it atomically */
  /* Bytes of the tensors that this thread has made less those that it has freed: on backends with
   * the host's memory, and on all others. */
  void (*thread_bytes)(int64_t* host, int64_t* devices);
  /* The layer defers calls; one layer of a process can. Null: no longer. `*how` is copied. */
  int32_t (*defer)(int32_t layer, const RbDeferral* how);
  /* For plugins that read the memory of a tensor outside of kernels: have it written first. */
  int32_t (*ready)(const RbTensor* t, const char* what);
  int32_t (*memory_get)(const RbTensor* t, RbMemory* out);
  /* Threads that have used core and not ended yet, without those of its pool. */
  int32_t (*threads)(void);
  /* The kernel with which `backend` computes each element of the operator's one result out of the
   * broadcast elements of its tensors, or RB_E_NOTIMPL (without a message) where there is none. It
   * takes numbers and strings as the call has them, and tensors of the floating dtype `dtype`: all,
   * or those whose argument says RB_ARG_COMPUTED. It makes no calls, so bodies of parallel_for may
   * use it. Like the kernel of a formula it may decline. */
  int32_t (*pointwise_kernel)(const RbOp* op, int32_t backend, int32_t dtype, RbPointwise* out);
  /* 1: on `backend` the operator is nothing but the formula of its record: `RbHost.decompose` does
   * what a call does below the layers. */
  int32_t (*is_composed)(const RbOp* op, int32_t backend);
  /* Ask `fn` before the program reads the values of a tensor, or gets the address of its memory, on
   * a thread in whose include mask the layer is: a layer that records calls refuses reads that a
   * recording would not repeat. Null `fn`: no longer. */
  int32_t (*read_gate)(int32_t layer, RbReadFn fn, void* self);
  /* Everything for which the call would be refused, without running it: values, shapes and dtypes,
   * a dtype without a kernel, and with RB_CALL_OUT in `flags` destinations in `rets` that cannot be
   * written (read-only, of inference mode, or overlapping an argument), as those of arguments that
   * are written. `rets` is read only. RB_OK also where only the data, or a kernel, can tell. */
  int32_t (*check)(const RbOp* op, const RbValue* args, int32_t nargs, const RbValue* rets,
                   int32_t nrets, uint32_t flags);
  /* Ask `fn` before the seed or the state of a generator is set or read, on any thread: a layer
   * that defers calls runs those that draw from it first. Null `fn`: no longer. */
  int32_t (*generator_gate)(int32_t layer, RbGeneratorFn fn, void* self);
} RbTrace;

#ifdef __cplusplus
} /* extern "C" */
#endif
#endif
