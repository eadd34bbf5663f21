// Shapes as text, and their arithmetic.
#pragma once
#include <cstdint>
#include <string>

namespace rabbet {

std::string shape_text(int ndim, const int64_t* shape);
/// a + b and a * b; throw RB_E_ARG where that is no int64 (sizes are whatever the caller wrote).
int64_t checked_sum(const std::string& op, int64_t a, int64_t b);
int64_t checked_product(const std::string& op, int64_t a, int64_t b);
/// `n` where a list may have so many entries; throws before memory is asked for millions of them.
int64_t checked_length(const std::string& op, int64_t n);

}  // namespace rabbet
