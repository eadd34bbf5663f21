// The texts of kernels/, by the names of their files.
#pragma once

namespace rbcuda {

extern const char* const kText_types;  // before every kernel, and then:
extern const char* const kText_block;
extern const char* const kText_atomics;
extern const char* const kText_attention;
extern const char* const kText_attention_mma;
extern const char* const kText_coefficients;
extern const char* const kText_complex;
extern const char* const kText_conv;
extern const char* const kText_conv_mma;
extern const char* const kText_elementwise;
extern const char* const kText_float8;
extern const char* const kText_fourier;
extern const char* const kText_index;
extern const char* const kText_linalg;
extern const char* const kText_lines;
extern const char* const kText_loss;
extern const char* const kText_matmul;
extern const char* const kText_mma;
extern const char* const kText_movement;
extern const char* const kText_norm;
extern const char* const kText_optim;
extern const char* const kText_order;
extern const char* const kText_pool;
extern const char* const kText_random;
extern const char* const kText_recurrent;
extern const char* const kText_reduce;
extern const char* const kText_report;
extern const char* const kText_scan;
extern const char* const kText_search;
extern const char* const kText_sequence;
extern const char* const kText_tensor_core;
extern const char* const kText_tiles;
extern const char* const kText_softmax;

}  // namespace rbcuda
