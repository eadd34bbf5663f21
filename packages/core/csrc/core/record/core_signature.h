// The field `core`: which sizes the last dimensions of arguments and results have.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace rabbet {

constexpr int kMaxCoreDims = 6, kMaxCoreSizes = 16;

/// `(...,m,k?)` of one tensor, or `*`: any shape.
struct CoreGroup {
  int8_t index = 0;      // of the argument or result
  bool any = false;      // `*`
  bool batch = false;    // `...`: dimensions in front, which broadcast
  uint8_t ndim = 0;      // the named ones
  uint8_t optional = 0;  // bit per dimension: `k?`, which a tensor may lack
  int8_t sizes[kMaxCoreDims];
};

struct CoreSignature {
  std::vector<std::string> names;  // of sizes
  std::vector<int64_t> fixed;      // sizes written as numbers; -1: it has a name
  std::vector<CoreGroup> args, rets;
  bool plain = false;  // every dimension has a name, and no group is `*`

  bool empty() const { return rets.empty(); }
};

/// Parse `text`, for arguments of which `tensors` has a bit and `nrets` results; false, with the
/// reason in `error`, where it does not fit them.
bool parse_core(const std::string& text, uint64_t tensors, int nrets, CoreSignature& out,
                std::string& error);

}  // namespace rabbet
