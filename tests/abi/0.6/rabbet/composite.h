/* rabbet/composite.h: composite tensors, tensors that are made of parts.
 *
 * Core keeps shape, dtype, device and the key of the owning layer; the layer keeps any number of
 * part tensors and a blob of bytes that says what they mean. Sparse, quantized, nested and sharded
 * tensors are composites. Copies, detach, moves between devices, files, pickling and printing work
 * on them part by part, without code of the layer; every other operator runs the layer's kernel for
 * it (RbHost.add_kernel with the layer's name), else the layer's fallback, else the operator's
 * decomposition, else it fails with a message that names operator and layer.
 *
 *   const RbComposites* composites = host->get_ext(RB_COMPOSITE_EXT, RB_COMPOSITE_VERSION);
 *
 * The rules of rabbet/abi.h hold here too.
 */
#ifndef RABBET_COMPOSITE_H
#define RABBET_COMPOSITE_H

#include "rabbet/abi.h"

#define RB_COMPOSITE_EXT "rabbet.composite"
#define RB_COMPOSITE_VERSION 1

#ifdef __cplusplus
extern "C" {
#endif

/* RbLayer.flags. VIEWS: composites that the layer returns for a view operator are views of the
 * argument, a composite of the layer. Core records how they were made, and they share its version
 * counter. Not for layers that describe their composites: there the parts show it. */
enum { RB_L_VIEWS = 1 };

/* One composite tensor. */
typedef struct RbComposite {
  uint32_t struct_size, flags;
  int32_t layer;                  /* the id that add_layer gave */
  int32_t backend, device;        /* where it is; its parts may be elsewhere */
  int32_t dtype, ndim;            /* what it shows */
  uint32_t nparts;                /* 0: a stub, which has no values at all (rabbet/trace.h) */
  const int64_t *shape, *strides; /* strides null: row-major */
  RbTensor* const* parts;         /* borrowed; an entry may be null */
  const void* blob;               /* copied */
  uint64_t nbytes;                /* of the blob */
  RbTensor* base; /* null, or the tensor of which this is a view: they share the version counter */
  int32_t layout; /* RB_STRIDED, RB_SPARSE_COO, ...: what Tensor.layout reports */
  int32_t reserved;
} RbComposite;

/* What a layer says of its composites. `name` stands in files, which need it to be read again. */
typedef struct RbCompositeLayer {
  uint32_t struct_size, flags;
  const char* name; /* null: the layer's */
  void* self;
  /* Make the tensor that a file or a pickle describes (`saved`, without strides and base): here the
   * layer checks what it may not have written itself. Null: it is composed as it stands. */
  int32_t (*load)(void* self, const RbComposite* saved, RbTensor** out);
  /* What print() shows, zero-terminated, at most `size` bytes. Null: the parts. */
  int32_t (*text)(void* self, const RbTensor* t, char* text, uint32_t size);
} RbCompositeLayer;

typedef struct RbComposites {
  uint32_t struct_size, flags;
  /* Once for each layer, before its first composite; inside `init` as a rule. A layer that has a
   * data hook (rabbet/trace.h) may leave it out: then core does nothing part by part, and every
   * call comes to the layer's fallback. */
  int32_t (*describe)(int32_t layer, const RbCompositeLayer* what);
  int32_t (*compose)(const RbComposite* what, RbTensor** out);
  /* What a composite is made of. The caller sets out->struct_size; pointers are valid as long as
   * the tensor lives. A transform's wrapper answers too: its parts are RbWrap's inner and second,
   * its layer is that of its level. RB_E_TYPE: the tensor has memory of its own. */
  int32_t (*get)(const RbTensor* t, RbComposite* out);
  /* Give a composite the parts and the blob of `with` in place of its own (coalesce, accumulate).
   * `with` shows what the composite shows; its strides and base are not read. The version counter
   * rises. Views and aliases of the composite, which still have the former parts, are refused from
   * then on; what `get` has said of the composite is no longer valid. Not while another thread uses
   * it. */
  int32_t (*replace)(RbTensor* t, const RbComposite* with);
} RbComposites;

#ifdef __cplusplus
} /* extern "C" */
#endif
#endif
