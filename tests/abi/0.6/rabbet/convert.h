/* rabbet/convert.h: kernels that convert their tensors' elements as they read them. */
#ifndef RABBET_CONVERT_H
#define RABBET_CONVERT_H

/* RbKernel.flags: core does not cast the tensors to the compute dtype. The kernel converts their
 * elements to the dtype of its first result as it reads them; the values are those that a cast of
 * the whole tensor gives. An older core ignores the flag and casts. */
enum { RB_K_CONVERTS = 64 };

#endif
