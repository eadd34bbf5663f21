/* rabbet/abi.h: the boundary between rabbet-core and every plugin (backend, transform, op pack).
 *
 * Rules of this header
 *  1. It is C11 and C++17. A plugin includes it, links nothing of core, and exports ONE symbol,
 *     `const RbPlugin* rabbet_plugin_v0(void)`. Core hands it a table of functions (RbHost) in
 *     `init`.
 *  2. Every struct that may grow begins with `struct_size` (RbTensor has `view_size`): the bytes
 *     that its maker filled, or that its reader has room for. Members are only appended, and the
 *     minor version counts up. Use RB_HAS before touching a member that a shorter, older struct may
 *     lack. An array of such structs says how far apart they lie (RB_ARG). RbValue, RbDevice and
 *     RbDType never change. Constants keep their values, new ones are appended; who meets a value
 *     that it does not know treats it as not supported.
 *  3. Nothing is thrown across. What can fail returns RB_OK or a code, whose message lies in core's
 *     thread-local error record (err_set). The others accept null and ids that are none.
 *  4. Arguments are borrowed for the length of the call, results are owned by the receiver.
 *  5. Kernels and layers are re-entrant: any thread may run them, with or without Python's lock.
 *     The body of a `parallel_for` must not call operators.
 *  6. A plugin says in RbPlugin which minor version it was built with and which it needs at least.
 *     Core loads it if it offers what the plugin needs, and still supports what it was built with
 *     (docs/decisions/0012). On an older core the members behind what it needs may be missing: ask
 *     RB_HAS(host, member).
 */
#ifndef RABBET_ABI_H
#define RABBET_ABI_H

#include <stddef.h>
#include <stdint.h>

#define RB_ABI_MAJOR 0
#define RB_ABI_MINOR 7
/* The least minor version that the plugin needs (RbPlugin.abi_min): `rabbet_add_plugin` defines it
 * as the plugin's manifest says. Unsaid, it is that of this header. */
#ifndef RB_ABI_NEEDED
#define RB_ABI_NEEDED RB_ABI_MINOR
#endif
#if RB_ABI_NEEDED > RB_ABI_MINOR
#error "this rabbet-core is too old to build the plugin: see `abi` in its rabbet_plugin.toml"
#endif

/* Bytes up to and including `last`; never sizeof(T), in whose tail padding a new member can hide.
 */
#define RB_SIZE(T, last) ((uint32_t)(offsetof(T, last) + sizeof(((T*)0)->last)))
/* Whether `*p` is long enough to hold member `f` and it is not null. */
#define RB_HAS(p, f) \
  ((p)->struct_size >= (size_t)((const char*)&(p)->f - (const char*)(p)) + sizeof((p)->f) && (p)->f)

/* Limits, of core and plugins alike: dimensions of a tensor, arguments and results of an operator,
 * dtypes of a process. Core refuses records and tensors beyond them. */
#define RB_MAX_DIMS 32
#define RB_MAX_ARGS 32
#define RB_MAX_RETS 8
#define RB_MAX_DTYPES 64

#if defined(_WIN32)
#define RB_EXPORT __declspec(dllexport)
#else
#define RB_EXPORT __attribute__((visibility("default")))
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ---- dtypes */

/* Dtype ids that this header fixes. Those from RB_DTYPE_COUNT on (float8_e4m3fn, a plugin's own)
 * hold for the process: ask find_dtype and dtype_info, never compare ids by range. */
enum {
  RB_BOOL8 = 0,
  RB_U8,
  RB_I8,
  RB_I16,
  RB_I32,
  RB_I64,
  RB_U16,
  RB_U32,
  RB_U64,
  RB_F16,
  RB_BF16,
  RB_F32,
  RB_F64,
  RB_C64,
  RB_C128,
  RB_DTYPE_COUNT
};
#define RB_DTYPE_NONE 0xffffu

typedef struct RbDevice { /* DLPack's device: kind of memory and index */
  int32_t type, id;
} RbDevice;
typedef struct RbDType { /* DLPack's dtype */
  uint8_t code, bits;
  uint16_t lanes;
} RbDType;

enum { /* classes of dtypes: RbDTypeInfo.kind, RbHost.dtype_kinds */
       RB_CLASS_BOOL,
       RB_CLASS_INT, /* signed */
       RB_CLASS_UINT,
       RB_CLASS_FLOAT,
       RB_CLASS_COMPLEX,
       RB_CLASS_OPAQUE /* elements that core moves, but does not convert */
};
/* What a dtype is, for dtype_info and add_dtype. An added dtype is stored, moved and converted;
 * for arithmetic core casts to `compute`, and the results back. Kernels see one that was added only
 * if they ask for it (RbKernel.dtype_mask, RB_K_MOVES). */
typedef struct RbDTypeInfo {
  uint32_t struct_size, flags;
  const char* name; /* as in Python, `rabbet.NAME`; core keeps a copy */
  int32_t kind;     /* RB_CLASS_* */
  int32_t bits;     /* of a value */
  int32_t itemsize; /* bytes of an element in memory: 1, 2, 4, 8 or 16 */
  int32_t compute;  /* a dtype of this header, or the dtype itself */
  RbDType dlpack;   /* lanes 0: DLPack has none like it */
  uint32_t reserved;
  /* `n` values from the dtype to `compute`, and back, in host memory, without gaps. Of an added one
   * that is not opaque both are required; any thread may call them. */
  void (*decode)(const void* from, void* to, int64_t n);
  void (*encode)(const void* from, void* to, int64_t n);
  double max, tiny, eps; /* of a float: largest, smallest normal, distance of 1 to the next */
} RbDTypeInfo;

/* ---- tensors and values */

typedef struct RbOp RbOp;               /* an operator; opaque */
typedef struct RbTxn RbTxn;             /* a registration transaction; opaque */
typedef struct RbGenerator RbGenerator; /* random number generator state; opaque */
typedef struct RbTls RbTls;             /* all that a thread's calls depend on; opaque */
typedef struct RbHost RbHost;

enum {                      /* RbTensor.flags */
       RB_T_CONTIGUOUS = 1, /* row-major without gaps */
       RB_T_READONLY = 2,   /* memory that must not be written (a read-only NumPy array) */
       RB_T_WRAPPER = 4,    /* `ext` is a transform's wrapper; `data` is null */
       RB_T_VIEW = 8,       /* made by a view operator: view_parent is not null */
       RB_T_INFERENCE = 16, /* made in inference mode: never recorded, written only there */
       RB_T_COMPOSITE = 32  /* made of parts that a layer keeps, see composite.h; `data` is null */
};

/* The public part of every tensor. Passing a tensor is passing a pointer to this; core allocates
 * it. Bytes 0..47 are a DLTensor. `data` points at the first element: `byte_offset` is 0 in tensors
 * that core hands out. `strides` is never null and counts elements. */
typedef struct RbTensor {
  void* data;
  RbDevice device;
  int32_t ndim;
  RbDType dtype;
  int64_t* shape;
  int64_t* strides;
  uint64_t byte_offset;
  uint32_t view_size; /* bytes of this struct that core filled */
  uint16_t dtype_id;
  uint8_t backend; /* process-local id of the backend; 0: meta, whose tensors have no data */
  uint8_t layout;  /* RB_STRIDED, ...; one that is not has no memory: see composite.h */
  uint64_t keys[2];
  int64_t numel;
  uint32_t flags;
  int32_t level; /* of the transform that wrapped it; 0: none */
  void* owner;
  const void* ext;
} RbTensor;

/* What `ext` points to where RB_T_WRAPPER is set: the tensor stands for others, of lower levels, as
 * the transform of its level says. It shares the storage of the `inner` that it was made with;
 * `data` is null. The transform may change inner, second (both are owned) and bits. */
typedef struct RbWrap {
  uint32_t struct_size, flags;
  RbTensor *inner, *second; /* the second is a transform's own (a tangent), or null */
  int64_t bits;             /* likewise (a batch dimension) */
  uint64_t serial;          /* of the entered level: unique in the process */
} RbWrap;

/* Shape and dtype of a tensor that was not kept; stands in for it in derivative formulas. */
typedef struct RbMeta {
  uint32_t struct_size;
  int32_t ndim;
  uint16_t dtype_id;
  uint8_t backend, layout;
  int32_t device_index;
  const int64_t* shape;
} RbMeta;

enum { /* RbValue.tag */
       RB_NONE = 0,
       RB_BOOL,      /* v.i */
       RB_INT,       /* v.i */
       RB_FLOAT,     /* v.f */
       RB_COMPLEX,   /* v.fs: real, imaginary */
       RB_DTYPE,     /* v.i: a dtype id */
       RB_DEVICE,    /* v.dev: {backend id, index} */
       RB_STR,       /* v.s, len bytes, also zero-terminated */
       RB_TENSOR,    /* v.t */
       RB_TENSORS,   /* v.ts, len; an entry may be null (Tensor?[]) */
       RB_INTS,      /* v.is, len */
       RB_FLOATS,    /* v.fs, len */
       RB_GENERATOR, /* v.gen */
       RB_META,      /* v.meta */
       RB_ZERO,      /* a gradient that is known to be zero */
       RB_OBJECT,    /* v.p, foreign: a Python callable */
       RB_UINT,      /* v.u: a whole number above INT64_MAX */
       RB_BOOLS,     /* v.bs, len: 0 or 1 each */
       RB_STRS,      /* v.ss, len; zero-terminated */
       RB_SCALARS,   /* v.vs, len: numbers, each with its tag */
       RB_LAYOUT     /* v.i: RB_STRIDED */
};
enum { /* layouts: RbTensor.layout, RB_LAYOUT. All but the first are those of composites */
       RB_STRIDED = 0,
       RB_SPARSE_COO,
       RB_SPARSE_CSR,
       RB_SPARSE_CSC,
       RB_SPARSE_BSR,
       RB_SPARSE_BSC,
       RB_JAGGED
};

/* One argument or result: 16 bytes, passed on the stack. A number may stand where an elementwise
 * operator's schema says Tensor: it takes part in type promotion as a Python number does. */
typedef struct RbValue {
  uint32_t tag, len;
  union {
    int64_t i;
    uint64_t u;
    double f;
    void* p;
    RbTensor* t;
    RbTensor* const* ts;
    const int64_t* is;
    const double* fs;
    const uint8_t* bs;
    const char* const* ss;
    const struct RbValue* vs;
    const char* s;
    const RbMeta* meta;
    RbGenerator* gen;
    struct {
      int32_t backend, index;
    } dev;
  } v;
} RbValue;

/* ---- calls: one convention for kernels, layers, fallbacks and Python */

enum { /* RbCall.flags */
       RB_CALL_OUT =
           1 /* rets hold the tensors to be written (in-place and out= calls); they stay borrowed */
};

typedef struct RbCall {
  uint32_t struct_size, flags;
  const RbHost* host;
  const RbOp* op;
  void* stream; /* the thread's stream of the device, see RbStreams; null: the default one */
  uint64_t keys[2];
  int32_t device_index, level; /* level: highest transform level among the arguments */
  void* frame;                 /* the transform's frame when a transform handles the call */
} RbCall;

typedef int32_t (*RbFn)(void* self, const RbCall* call, const RbValue* args, int32_t nargs,
                        RbValue* rets, int32_t nrets);

enum { /* flags of RbKernel, RbRule and RbFormulaKernel */
       RB_K_ALLOCATES =
           1, /* makes its own results (data-dependent shapes); else rets are allocated by core */
       RB_K_NEEDS_GIL = 2,  /* a Python kernel */
       RB_K_CONTIGUOUS = 4, /* core passes contiguous tensors only */
       RB_K_MOVES = 16      /* only moves elements: takes those of every size, also added dtypes */
};

/* A kernel of an operator for one backend, or a layer's handler of it. Unless RB_K_ALLOCATES is set
 * it only fills `rets`, whose shape and dtype core derived from the operator's record; elementwise
 * tensors arrive cast to the compute dtype, with their own shapes, to be broadcast to the result's;
 * results can have any strides. A kernel of a formula, or of an operator with a decomposition, may
 * decline: it returns RB_E_NOTIMPL before it writes anything, and core evaluates that. */
typedef struct RbKernel {
  uint32_t struct_size, flags;
  const char* op;      /* record name, e.g. "max.dim" */
  const char* backend; /* backend or layer name */
  const char* schema;  /* the signature compiled against, or null */
  RbFn fn;
  void* self;
  void (*self_free)(void*);
  uint64_t dtype_mask; /* bit per dtype id of the compute dtype; 0: all that this header has */
  const char* src_file;
  int32_t src_line;
  int32_t reserved;
} RbKernel;

/* A rule of an operator that no formula of its record gives, as a function. */
enum {
  /* args and rets are those of the operator; the operators that it calls are full calls. */
  RB_RULE_DECOMP,
  /* rets become owned tensors (of any device) with the results' shapes and dtypes. */
  RB_RULE_SHAPE,
  /* args are those of the operator, then its results, then their gradients (or RB_ZERO); rets has
   * an entry for each argument: RB_ZERO where no gradient is wanted, else to become RB_TENSOR,
   * RB_TENSORS or RB_ZERO. */
  RB_RULE_VJP,
  /* args are those of the operator, its results, then the arguments' tangents (or RB_ZERO); rets
   * has an entry for each result. */
  RB_RULE_JVP
};
enum { RB_RULE_READS = 256 }; /* RbRule.flags: `reads_args` and `reads_rets` say what is read */
typedef struct RbRule {
  uint32_t struct_size, flags; /* RB_K_NEEDS_GIL, RB_RULE_READS */
  const char* op;
  const char* schema; /* the signature compiled against, or null */
  int32_t rule;       /* RB_RULE_* */
  int32_t reserved;
  RbFn fn;
  void* self;
  void (*self_free)(void*);
  /* Of a vjp: the arguments and results whose values it reads, a bit each; the others come as
   * RB_META. Without RB_RULE_READS all are read. */
  uint64_t reads_args, reads_rets;
} RbRule;

/* A kernel for a whole elementwise formula of a record, instead of one call for each operator in
 * it. Where the record says something else than `formula` core does not use the kernel. A
 * derivative's arguments are those of the operator, then its results, then their gradients; what
 * the formula does not read is left undefined. Core calls such a kernel only where nothing has to
 * be recorded or transformed and all tensors that the formula reads have one floating dtype, which
 * the result (one tensor, of their broadcast shape) has too; numbers are real. It may decline by
 * returning RB_E_NOTIMPL before it writes anything: then, and else, core evaluates the formula. */
typedef struct RbFormulaKernel {
  uint32_t struct_size, flags; /* RB_K_CONTIGUOUS */
  const char* op;
  const char* backend;
  int32_t argument; /* the formula is its derivative; -1: the decomposition */
  int32_t reserved;
  const char* formula; /* the schema line, the `let` lines, then the formula's own line */
  RbFn fn;
  void* self;
  void (*self_free)(void*);
  uint64_t dtype_mask; /* as in RbKernel */
} RbFormulaKernel;

enum { RB_L_FALLTHROUGH = 0, RB_L_FALLBACK = 1 };
/* A layer. `phase`: where it runs; `python -m rabbet doctor --layers` prints what each range of
 * phases is for, and the order of the installed layers with its reasons. `before`/`after`:
 * null-terminated names of other layers, which need not be installed; they have to agree with the
 * phases. Where nothing else decides, layers of one phase run in the order of their names.
 *
 * Layers of the phases 450 to 499 are transforms. No tensor carries their keys: they run when a
 * call has a wrapper of their level (transform_push, tensor_wrap) among its arguments. The handler
 * (a kernel for the operator whose `backend` is the layer's name, else `fallback`) gets the level's
 * frame in RbCall.frame, takes apart the wrappers of exactly that level and makes full calls on
 * what they stand for. It runs as if outside its level: layers of phases below 400 do not see its
 * calls. */
enum {                  /* flags of transform_push */
       RB_X_RANDOM = 1, /* random operators without a tensor of the level are handed to it too */
       RB_X_READABLE =
           2,         /* the value of `inner` may be read where that of the wrapper is asked for */
       RB_X_EVERY = 4 /* every call that the thread makes inside the level is handed to it, also
                         without a tensor of the level */
};
typedef struct RbLayer {
  uint32_t struct_size, flags;
  const char* name;
  uint32_t phase, on_missing;
  const char* const* before;
  const char* const* after;
  RbFn fallback;
  void* self;
  /* Of a transform with RB_X_READABLE: make `inner` of a wrapper current, which is about to be read
   * without a call. May be null. */
  int32_t (*refresh)(void* frame, RbTensor* wrapper);
  /* What the layer itself keeps of a thread (that a mode is on, say), for tls_save, tls_restore and
   * tls_free. All three or none. */
  int32_t (*thread_save)(void* self, void** state);
  int32_t (*thread_restore)(void* self, const void* state);
  void (*thread_free)(void* self, void* state);
} RbLayer;

/* A layer may publish this table under "NAME.explain", version 1: what it does with a call, for
 * library.explain. The text says why; "{device}" in it stands for the name of the call's device. */
enum {                    /* what `explain` returns */
       RB_EXPLAIN_PASSES, /* hands the call on as it is */
       RB_EXPLAIN_ACTS,   /* does something, and hands the call on */
       RB_EXPLAIN_ENDS    /* makes other calls instead */
};
typedef struct RbExplain {
  uint32_t struct_size, flags;
  int32_t (*explain)(const RbOp*, const RbValue* args, int32_t nargs, char* text, uint32_t size);
} RbExplain;

/* ---- what a layer may ask about an operator */

enum { /* RbArgInfo.type */
       RB_A_TENSOR,
       RB_A_TENSORS,
       RB_A_SCALAR, /* bool, int, float or complex number */
       RB_A_INT,
       RB_A_FLOAT,
       RB_A_BOOL,
       RB_A_STR,
       RB_A_DTYPE,
       RB_A_DEVICE,
       RB_A_GENERATOR,
       RB_A_DIM,    /* a dimension; core wraps negatives */
       RB_A_NEWDIM, /* a dimension of the result, one more than the argument has */
       RB_A_DIMS,   /* dim[]; RB_NONE: all */
       RB_A_PERM,
       RB_A_SIZE,  /* size[] */
       RB_A_BSIZE, /* bsize[]: a size that may have more dimensions than the argument (expand) */
       RB_A_INTS,
       RB_A_FLOATS,
       RB_A_BOOLS,
       RB_A_STRS,
       RB_A_SCALARS,
       RB_A_LAYOUT,
       RB_A_CALLABLE
};
enum { /* RbArgInfo.flags */
       RB_ARG_OPTIONAL = 1,
       RB_ARG_KEYWORD_ONLY = 2,
       RB_ARG_MUTATED = 4, /* written in place, beyond the results */
       RB_ARG_LINEAR = 8,
       RB_ARG_BILINEAR = 16,
       RB_ARG_HAS_VJP = 32,
       RB_ARG_COMPUTED = 64, /* cast to the compute dtype by core: takes part in promotion */
       RB_ARG_LEADING = 128, /* may have one more dimension in front, which results then have too */
       RB_ARG_FOLD = 256,    /* items in dimension 0, which do not meet in a result */
       RB_ARG_FLAT = 512     /* gradients depend on it with the derivative 0 */
};
typedef struct RbArgInfo {
  uint32_t struct_size, flags;
  const char* name;
  int32_t type;
  int32_t core_ndim;   /* of a tensor: the last dimensions that the operator works on, those before
                          broadcast (elementwise: 0); -1: the record does not say */
  uint64_t saves_args; /* arguments whose values the vjp of this one reads, a bit each */
  uint64_t saves_rets; /* likewise results */
  uint64_t reads_args; /* arguments that the vjp mentions at all: value, shape or dtype */
  uint64_t reads_rets; /* likewise results */
  RbValue default_value;
} RbArgInfo;

enum { /* RbOpInfo.kind */
       RB_KIND_ELEMENTWISE,
       RB_KIND_REDUCTION,
       RB_KIND_ALONG,
       RB_KIND_MOVEMENT,
       RB_KIND_BATCHED,
       RB_KIND_INDEXING,
       RB_KIND_CREATION,
       RB_KIND_RANDOM,
       RB_KIND_COMPOSITE,
       RB_KIND_OPAQUE
};
enum { /* RbOpInfo.flags */
       RB_OP_HAS_VJP = 1,
       RB_OP_HAS_DECOMP = 2,
       RB_OP_VIEW = 4,       /* the result shares memory with argument 0 */
       RB_OP_MAYBE_VIEW = 8, /* the result may do so */
       RB_OP_DETACHED =
           16, /* results never carry a gradient, by definition (detach, random, creation) */
       RB_OP_DATA_SHAPE = 32,  /* the result's shape depends on the data */
       RB_OP_HAS_JVP = 64,     /* the record says how tangents pass through, see RbHost.jvp */
       RB_OP_RANDOM = 128,     /* draws from a generator (0.7) */
       RB_OP_CHECKS_DATA = 256 /* kernels check values of tensors, and fail where they are wrong
                                  (0.7) */
};
enum { /* RbOpInfo.effects: why a call must not be left out, repeated or moved */
       RB_EFFECT_WRITES = 1, /* writes arguments; never before or behind another use of them */
       RB_EFFECT_DRAWS = 2,  /* advances a generator; never before or behind another draw */
       RB_EFFECT_FAILS = 4   /* may fail because of the data; not to be left out */
};
enum { /* RbOpInfo.join: how the results of the parts of a tensor make that of the whole, where the
          parts are along the reduced dimensions */
       RB_JOIN_NONE,
       RB_JOIN_SUM,
       RB_JOIN_MEAN, /* weighted by the numbers of their elements */
       RB_JOIN_PRODUCT,
       RB_JOIN_MAX,
       RB_JOIN_MIN,
       RB_JOIN_AND,
       RB_JOIN_OR
};
enum { /* RbOpInfo.autocast */
       RB_AUTOCAST_PASS,
       RB_AUTOCAST_LOW,
       RB_AUTOCAST_FP32,
       RB_AUTOCAST_PROMOTE,
       RB_AUTOCAST_TO = 16 /* plus a dtype id: that dtype */
};
typedef struct RbOpInfo {
  uint32_t struct_size, flags;
  const char* name; /* "add", "max.dim" */
  int32_t kind, autocast;
  int32_t nargs, nrets;
  const RbArgInfo* first_arg; /* the others by RB_ARG */
  const char* const* ret_names;
  uint32_t arg_size; /* bytes from one RbArgInfo to the next */
  uint32_t reserved;
  const char* schema;    /* the signature as the record has it */
  uint64_t mutated_args; /* arguments that are written beyond the results, a bit each */
  uint64_t aliased_args; /* arguments whose memory a result shares, or may (RB_OP_MAYBE_VIEW) */
  /* Since 0.7. */
  const char* core;  /* the record's `core` line, as "i j, j k -> i k"; null: it has none */
  uint32_t effects;  /* RB_EFFECT_* */
  int32_t join;      /* RB_JOIN_* */
  int32_t shape_arg; /* the argument that is the shape of the result; -1: none is */
  uint32_t reserved2;
} RbOpInfo;
/* The RbArgInfo of argument `i` of the operator that `info` describes. */
#define RB_ARG(info, i) \
  ((const RbArgInfo*)((const char*)(info)->first_arg + (size_t)(i) * (info)->arg_size))

/* ---- errors */

enum {
  RB_OK = 0,
  RB_E_ARG,      /* a wrong value or shape */
  RB_E_TYPE,     /* a wrong type or dtype */
  RB_E_INDEX,    /* an index out of range */
  RB_E_NOTIMPL,  /* no kernel, no rule */
  RB_E_OOM,      /* memory */
  RB_E_DEVICE,   /* a device failed or is not there */
  RB_E_STATE,    /* a call in the wrong state (backward twice, ...) */
  RB_E_FOREIGN,  /* a foreign exception is attached (err_foreign) */
  RB_E_INTERNAL, /* a defect */
  RB_E_PLUGIN,   /* a plugin is missing or failed */
  RB_E_DTYPE     /* an operator is not defined for the dtype */
};
typedef struct RbError { /* the thread's error record; valid until the next error of this thread */
  uint32_t struct_size;
  int32_t code;
  const char* message;
  const char* op;     /* operator in whose call it arose, or null */
  const char* frames; /* "while running ..." lines, innermost first */
  void* foreign;
  const char* foreign_tag; /* "pyobj": a Python exception */
} RbError;

/* ---- devices */

typedef struct RbBuffer {
  uint32_t struct_size, flags;
  void* data;
  uint64_t nbytes;
  void* ctx;
  int32_t device_index, reserved;
} RbBuffer;
/* Raw memory. Core caches on top: `alloc` is rare and may be slow. Both are required. `data` is
 * a multiple of 16; `nbytes`, where it is set, is at least what was asked for. Core asks for
 * segments of 2 MiB and more and hands out parts of them (a multiple of 512 bytes from `data` on);
 * where that fails it asks for what is needed alone. A segment belongs to the stream on which it
 * was asked for; at `free`, work there may still use it: the backend waits for it. Core holds no
 * lock meanwhile: several threads may call at once. Other kinds of memory: rabbet/device.h. */
typedef struct RbAllocator {
  uint32_t struct_size, flags;
  void* self;
  int32_t (*alloc)(void* self, int32_t device, uint64_t nbytes, void* stream, RbBuffer* out);
  void (*free)(void* self, RbBuffer* buffer, void* stream);
} RbAllocator;
enum {                     /* RbAllocator.flags */
       RB_ALLOC_WHOLE = 1, /* `data` is no address, segments are not split */
       /* Neither split nor cached: a segment of a tensor's bytes alone, which goes back with it
        * (but in private pools and captures). For tools that look for accesses out of bounds. */
       RB_ALLOC_EXACT = 2
};
typedef struct RbDevices {
  uint32_t struct_size, flags;
  void* self;
  int32_t (*count)(void* self, int32_t* n);    /* must neither create a context nor fail */
  int32_t (*sync)(void* self, int32_t device); /* wait for all streams */
  /* Copy between tensors of equal shape and dtype, one of them on this backend, the other there or
   * in plain host memory, in the order of `stream`, of the device of `dst` or else of `src`. Unless
   * `nonblocking` host memory is written, or may be written again, when it returns. May be null
   * where the memory is host memory: core then calls the `copy` kernel. */
  int32_t (*copy)(void* self, const RbTensor* src, const RbTensor* dst, void* stream,
                  uint32_t nonblocking);
  void (*fork_child)(void* self); /* after fork, in the child; may be null */
} RbDevices;
/* Streams: queues of work on a device that are in order, each by itself; null is the default one,
 * which every device has. Events: marks in them. Core makes few streams, which live as long as the
 * process, and keeps which one is a thread's. All members are required, but `event_elapsed`. An
 * event is recorded before anything else is asked of it. */
typedef struct RbStreams {
  uint32_t struct_size, flags;
  void* self;
  /* A lower number is a higher priority, 0 is the usual one. */
  int32_t (*create)(void* self, int32_t device, int32_t priority, void** stream);
  int32_t (*sync)(void* self, int32_t device, void* stream);
  int32_t (*query)(void* self, int32_t device, void* stream, int32_t* done);
  int32_t (*event_create)(void* self, int32_t device, uint32_t flags, void** event);
  void (*event_destroy)(void* self, int32_t device, void* event); /* also while it is waited for */
  int32_t (*event_record)(void* self, int32_t device, void* stream, void* event); /* also again */
  /* What comes to the stream later waits for the event, as it was recorded last; the event may be
   * of another device of the backend. */
  int32_t (*event_wait)(void* self, int32_t device, void* stream, void* event);
  int32_t (*event_sync)(void* self, int32_t device, void* event);
  int32_t (*event_query)(void* self, int32_t device, void* event, int32_t* done);
  /* Between two events with RB_EVENT_TIMING that have passed; may be null. */
  int32_t (*event_elapsed)(void* self, int32_t device, void* start, void* end,
                           double* milliseconds);
} RbStreams;
enum { RB_EVENT_TIMING = 1 }; /* flags of event_create */
typedef struct RbBackend {
  uint32_t struct_size, flags;
  const char* name; /* "cpu": what users write as a device */
  int32_t dlpack_type;
  uint32_t reserved;
  const RbDevices* devices;
  const RbAllocator* allocator;
  const RbStreams* streams; /* null: its devices have one stream; not with RB_B_HOST_MEMORY */
} RbBackend;
/* RbBackend.flags. HOST_MEMORY: `data` may be read and written by the CPU. FALLS_BACK: calls that
 * no kernel takes, and that have no decomposition, run on the CPU; `copy` and `clone` have kernels.
 */
enum { RB_B_HOST_MEMORY = 1, RB_B_FALLS_BACK = 2 };

typedef struct RbRngSlice { /* Philox-4x32-10: key = seed, counters offset, offset + 1, ... */
  uint32_t struct_size, flags;
  uint64_t seed, offset;
} RbRngSlice;

typedef struct RbThread { /* what of a thread's state code may look at and change */
  uint32_t struct_size;
  uint32_t tensor_flags;     /* RB_T_INFERENCE or 0: flags of new tensors that are no views */
  uint64_t include, exclude; /* layers that are on, and off, for all calls: bits by id */
  int32_t depth; /* levels of transforms around the code that runs; thread_set leaves it */
  int32_t reserved;
} RbThread;

/* ---- the host table */

struct RbHost { /* lives as long as the process; all members are required unless said otherwise */
  uint32_t struct_size;
  uint16_t major, minor;
  const char* core_version;

  /* Registration. Inside `init` use the transaction that it gets; later begin one. */
  int32_t (*txn_begin)(const char* plugin, RbTxn** out);
  int32_t (*txn_commit)(RbTxn*);
  int32_t (*txn_abort)(RbTxn*);
  int32_t (*add_ops)(
      RbTxn*, const char* records); /* text in the record language (docs/reference/records) */
  int32_t (*add_kernel)(RbTxn*, const RbKernel*);
  int32_t (*add_rule)(RbTxn*, const RbRule*);
  int32_t (*add_formula_kernel)(RbTxn*, const RbFormulaKernel*);
  int32_t (*add_layer)(RbTxn*, const RbLayer*, int32_t* layer);
  int32_t (*add_backend)(RbTxn*, const RbBackend*, int32_t* backend);
  int32_t (*add_dtype)(RbTxn*, const RbDTypeInfo*, int32_t* dtype); /* twice the same: one dtype */

  /* Dtypes. */
  int32_t (*dtype_info)(int32_t dtype, RbDTypeInfo* out); /* fills as much as struct_size says */
  int32_t (*find_dtype)(const char* name, int32_t* dtype);
  const uint8_t* dtype_kinds; /* RB_CLASS_* of each id, RB_MAX_DTYPES entries; opaque: no dtype */

  /* Operators. */
  const RbOp* (*find_op)(const char* name); /* null: unknown */
  const RbOpInfo* (*op_info)(const RbOp*);  /* null: of null */
  /* Values of another type are converted as those of a call from Python (an int to a list, say), or
   * refused. Calls that plugins make run at most 256 deep inside each other. */
  int32_t (*call)(const RbOp*, const RbValue* args, int32_t nargs, RbValue* rets, int32_t nrets,
                  uint32_t flags);
  /* Run whatever is below `layer`. `redispatch` trusts that args are those of `call`;
   * `redispatch_new` derives keys and level afresh. */
  int32_t (*redispatch)(const RbCall*, int32_t layer, const RbValue* args, int32_t nargs,
                        RbValue* rets, int32_t nrets);
  int32_t (*redispatch_new)(const RbCall*, int32_t layer, const RbValue* args, int32_t nargs,
                            RbValue* rets, int32_t nrets);
  /* Run the operator's decomposition; the operators in it are full calls. */
  int32_t (*decompose)(const RbCall*, const RbValue* args, int32_t nargs, RbValue* rets,
                       int32_t nrets);
  /* Evaluate the derivative formulas of the arguments in `wanted` (a bit each). args and outs may
   * hold RB_META where the value is not read (RbArgInfo.saves_*); grads: RB_TENSOR, or RB_ZERO.
   * results: nargs entries, of which the wanted ones become RB_TENSOR, RB_TENSORS or RB_ZERO. Sums
   * over broadcast dimensions and casts to the argument's dtype are left to the caller. */
  int32_t (*vjp)(const RbOp*, uint64_t wanted, const RbValue* args, int32_t nargs,
                 const RbValue* outs, int32_t nouts, const RbValue* grads, RbValue* results);
  /* Evaluate the `jvp` formulas of a record that has them (RB_OP_HAS_JVP): outs are its results,
   * tangents has nargs entries, RB_TENSOR, or RB_ZERO. results: nouts entries that become RB_TENSOR
   * or RB_ZERO. Broadcasting to the result's shape and casts to its dtype are the caller's. */
  int32_t (*jvp)(const RbOp*, const RbValue* args, int32_t nargs, const RbValue* outs,
                 int32_t nouts, const RbValue* tangents, RbValue* results);

  /* Tensors. */
  void (*retain)(RbTensor*);
  void (*release)(RbTensor*);
  /* Uninitialised; strides null: row-major. */
  int32_t (*tensor_new)(int32_t backend, int32_t device, int32_t dtype, int32_t ndim,
                        const int64_t* shape, const int64_t* strides, RbTensor** out);
  /* Foreign memory; `del(ctx)` runs once, on any thread, when the last user is gone. */
  int32_t (*tensor_adopt)(void* data, int32_t backend, int32_t device, int32_t dtype, int32_t ndim,
                          const int64_t* shape, const int64_t* strides, uint32_t flags, void* ctx,
                          void (*del)(void* ctx), RbTensor** out);
  int32_t (*tensor_alias)(RbTensor*,
                          RbTensor** out); /* same storage and version, no slots, no view record */
  int32_t (*tensors_new)(uint32_t n, RbTensor*** out); /* nulls, for an RB_TENSORS result */
  void (*value_release)(RbValue*);                     /* drop what an owned value holds */

  /* Per-tensor plugin data. The slot's pointer lies at `*offset` bytes from the RbTensor: read it
   * directly, write it with slot_set, which also sets or clears the layer's key. `del` runs when
   * the tensor dies, and for what another pointer replaces; null takes the pointer out and leaves
   * it to the caller. */
  int32_t (*slot_new)(const char* name, int32_t layer, void (*del)(void*), int32_t* slot,
                      uint32_t* offset);
  int32_t (*slot_set)(RbTensor*, int32_t slot, void* p, int32_t on);

  /* Writes and views. The version counts in-place writes to the storage; core bumps it. */
  uint32_t (*version_get)(const RbTensor*);
  int32_t (*version_bump)(RbTensor*);
  int32_t (*same_storage)(const RbTensor*, const RbTensor*);
  int32_t (*use_count)(
      const RbTensor*); /* owners of the tensor; 1: the caller's reference is the only one */
  RbTensor* (*view_parent)(const RbTensor*); /* borrowed; null: not a view */
  /* Call on `root` the chain of view operators that made `t` out of its root (its last
   * view_parent). */
  int32_t (*view_replay)(const RbTensor* t, RbTensor* root, RbTensor** out);

  /* The calling thread. thread_get fills as much as struct_size says. */
  int32_t (*thread_get)(RbThread*);
  int32_t (*thread_set)(const RbThread*);
  int32_t (*layer_mode)(int32_t layer, int32_t include,
                        int32_t exclude); /* 1 set, 0 clear, -1 leave */
  /* All of a thread's state: layers, levels, streams, flags, and what layers keep of it
   * (RbLayer.thread_save). tls_restore makes the calling thread go on like the one that saved it,
   * which has to stay in its levels meanwhile; save and restore its own state around that. */
  int32_t (*tls_save)(RbTls** out);
  int32_t (*tls_restore)(const RbTls*);
  void (*tls_free)(RbTls*);

  /* Errors. err_set formats nothing: pass the finished text; it returns `code`. */
  int32_t (*err_set)(int32_t code, const char* message);
  int32_t (*err_foreign)(const char* tag, void* object,
                         void (*del)(void*)); /* returns RB_E_FOREIGN */
  const RbError* (*err_get)(void);
  void (*err_clear)(void);

  /* Services. */
  int32_t (*rng_reserve)(RbGenerator* generator, int32_t backend, int32_t device, uint64_t counters,
                         RbRngSlice* out); /* generator null: the device's default one */
  /* Split [0, n) into ranges of at least `grain`; run f(begin, end, ctx) on pool and caller. An
   * exception that `f` lets through, on any thread, becomes the error of the call. */
  int32_t (*parallel_for)(int64_t n, int64_t grain,
                          void (*f)(int64_t begin, int64_t end, void* ctx), void* ctx);
  int32_t (*num_threads)(void);
  /* 64-byte aligned: small blocks from lists of the thread, large ones from the cache of host
   * memory. Null: there is none left. */
  void* (*block_alloc)(uint64_t nbytes);
  void (*block_free)(void* p, uint64_t nbytes);
  void (*log)(int32_t level, const char* message); /* 0 debug, 1 info, 2 warning, 3 error */
  int32_t (*publish)(const char* name, uint32_t version,
                     const void* table); /* tables by name, between plugins */
  const void* (*get_ext)(const char* name, uint32_t min_version); /* null: not there */

  /* The transform stack of the thread. Enter a level of `layer` (its number goes to *level, from 1
   * on) with the pointer that calls of that level find in RbCall.frame; leave the last one. */
  int32_t (*transform_push)(int32_t layer, void* frame, uint32_t flags, int32_t* level);
  int32_t (*transform_pop)(int32_t level);
  /* Run `body` as a transform's handler runs, as if outside of `level`; returns what it returns. */
  int32_t (*transform_below)(int32_t level, int32_t (*body)(void* ctx), void* ctx);
  /* A tensor of an entered level that stands for `inner` (and `second`, or null), both of lower
   * levels, with the shape and strides that it shows. */
  int32_t (*tensor_wrap)(int32_t level, RbTensor* inner, RbTensor* second, int64_t bits,
                         int32_t ndim, const int64_t* shape, const int64_t* strides,
                         RbTensor** out);
  /* As tensor_wrap, of all dimensions of `inner` but `dim`, which becomes `bits`. It takes over the
   * caller's reference to `inner`, also where it fails: for results of calls, which nobody else
   * has. */
  int32_t (*tensor_wrap_along)(int32_t level, RbTensor* inner, int64_t dim, RbTensor** out);

  /* The thread's stream of a device, which RbCall.stream is in calls; null: the default one. What
   * comes to `stream` after stream_wait waits for what has come to `other`. */
  int32_t (*stream_get)(int32_t backend, int32_t device, void** stream);
  int32_t (*stream_set)(int32_t backend, int32_t device, void* stream);
  int32_t (*stream_wait)(int32_t backend, int32_t device, void* stream, void* other);
  /* The tensor's memory is used on `stream`, too: it is not given again before that is done. */
  int32_t (*record_stream)(RbTensor*, void* stream);

  /* ---- since 0.7 */

  /* The id of the backend of a device name; loads the plugin that provides it if need be. */
  int32_t (*find_backend)(const char* name, int32_t* backend);
  const char* (*backend_name)(int32_t backend); /* null: no backend has the id */
  int32_t (*device_count)(int32_t backend, int32_t* count);

  /* Streams and events of any backend that has them (RbStreams); RB_E_NOTIMPL of the others. A
   * stream belongs to core, which gives the few that it makes in turn. A lower number is a higher
   * priority. An event belongs to the caller, who gives it back with event_free. Flags:
   * RB_EVENT_TIMING. */
  int32_t (*stream_new)(int32_t backend, int32_t device, int32_t priority, void** stream);
  int32_t (*stream_sync)(int32_t backend, int32_t device, void* stream);
  int32_t (*event_new)(int32_t backend, int32_t device, uint32_t flags, void** event);
  int32_t (*event_free)(int32_t backend, int32_t device, void* event);
  int32_t (*event_record)(int32_t backend, int32_t device, void* stream, void* event);
  /* Later work on the stream waits for the event. */
  int32_t (*event_wait)(int32_t backend, int32_t device, void* stream, void* event);
  int32_t (*event_query)(int32_t backend, int32_t device, void* event, int32_t* done);

  /* Wait until ready(ctx) returns 1, at most so many seconds (negative: without a limit), without
   * Python's lock. *done: 0 if the time ran out. `ready` is called again and again on this thread;
   * it returns 0 as long as there is nothing, or 1, or a negative number for an error that err_set
   * was given. Where the user interrupts the program, the wait fails with that. */
  int32_t (*wait)(int32_t (*ready)(void* ctx), void* ctx, double seconds, int32_t* done);

  /* A generator of its own at a place in its sequence; give it back with generator_free. */
  int32_t (*generator_at)(uint64_t seed, uint64_t offset, RbGenerator** out);
  void (*generator_free)(RbGenerator*);
  /* Where a generator is; null: the default one of the device. Nothing is drawn. */
  int32_t (*generator_state)(const RbGenerator*, int32_t backend, int32_t device, RbRngSlice* out);
  /* The generator that the calling thread draws from where a call names none, on all devices; null:
   * the default ones again. The caller keeps it alive until another one, or null, is set. */
  int32_t (*generator_set)(RbGenerator*);

  /* As `decompose`, but the operators in it are called below `layer`: neither it nor the layers
   * above it see them. */
  int32_t (*decompose_below)(const RbCall*, int32_t layer, const RbValue* args, int32_t nargs,
                             RbValue* rets, int32_t nrets);
};

/* ---- what a plugin exports */

typedef struct RbPlugin {
  uint32_t struct_size;
  uint16_t abi_major, abi_built, abi_min, reserved; /* RB_ABI_MAJOR, _MINOR, _NEEDED, 0 */
  uint32_t flags;
  const char* name;    /* the wheel's name */
  const char* version; /* the wheel's version */
  /* Stage registrations; core commits all of them only if it returns RB_OK. */
  int32_t (*init)(const RbHost*, RbTxn*);
  int32_t (*retire)(const RbHost*); /* at exit: stop threads; may be null */
} RbPlugin;

typedef const RbPlugin* (*RbPluginEntry)(void);
#define RB_PLUGIN_SYMBOL "rabbet_plugin_v0"

#ifdef __cplusplus
} /* extern "C" */
#endif
#endif
