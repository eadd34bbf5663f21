// The `example` and `domain` fields of a record: calls that fit the operator, for tests and
// documentation.
#pragma once
#include <string>
#include <vector>

#include "record/op.h"

namespace rabbet {

/// A value in an example.
struct ExampleValue {
  enum Kind { kNone, kBool, kInt, kFloat, kString, kName, kList, kTensor, kResult };
  Kind kind = kNone;
  int64_t whole = 0;    // kInt; kBool; of a kResult which result
  double number = 0;    // kFloat
  std::string text;     // kString, kName; the maker of a kTensor, the operator of a kResult
  std::string keyword;  // `keyword=value` among the arguments of a call; else empty
  std::vector<ExampleValue> items;  // of a kList; arguments of a maker or an operator
  std::vector<int64_t> shape;       // kTensor
};

struct Example {
  std::string text;
  std::vector<ExampleValue> args;
};

/// `domain low < argument < high`, or `argument != 0`.
struct Bound {
  std::string argument;
  bool has_low = false, has_high = false, low_closed = false, high_closed = false;
  bool nonzero = false;
  double low = 0, high = 0;
};

/// What the lines of a record say; throws Error naming file, line and reason where one does not
/// parse or does not fit the signature.
std::vector<Example> read_examples(const Op& op);
std::vector<Bound> read_domain(const Op& op);
/// The same for the error alone.
void check_examples(const Op& op);

}  // namespace rabbet
