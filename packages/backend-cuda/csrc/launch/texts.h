// The texts of kernels/, by the names of their files.
#pragma once

namespace rbcuda {

extern const char* const kText_types;  // before every kernel, and then:
extern const char* const kText_block;
extern const char* const kText_elementwise;
extern const char* const kText_complex;
extern const char* const kText_matmul;
extern const char* const kText_reduce;

}  // namespace rbcuda
