// Positions of a call's tensors as kernels go through them: by packs of 16 bytes where they lie in
// rows that begin where packs do, else one by one.
#pragma once
#include <string>

#include "device/dtypes.h"
#include "launch/layout.h"

namespace rbcuda {

constexpr int kPackBytes = 16;

/// A tensor of a layout as a kernel sees it; without data it does not count.
struct Operand {
  const void* data = nullptr;
  int size = 0;  // bytes of an element

  Operand() = default;
  Operand(const void* at, int dtype) : data(at), size(at ? stored_size(dtype) : 0) {}
  Operand(const RbTensor* t) : Operand(t ? t->data : nullptr, t ? t->dtype_id : 0) {}
  Operand(const RbTensor& t) : Operand(&t) {}
};
using Operands4 = Operand[kLayoutTensors];

/// Whether `pack` positions of the last dimension of `inner` can be loaded at once in every
/// operand, also for all positions of `outer`, if there is one. `singles`: a bit for each operand
/// that has one element for them all.
bool takes_packs(const Layout& inner, const Layout* outer, const Operands4& operands, int pack,
                 int32_t* singles);
/// Twins of Strided, Nested and NestedFar in lines.cuh: positions of one dimension, of several, and
/// of more than 2**31.
struct Strided {
  int64_t n, steps[4];
  int32_t singles, reserved;
};
struct Nested {
  Layout32 layout;
  int32_t singles, reserved;
};
struct NestedFar {
  Layout layout;
  int32_t singles, reserved;
};

/// One of the three, as a kernel's argument.
class Positions {
 public:
  enum Kind { kStrided, kNested, kFar, kKinds };
  static constexpr const char* kNames[kKinds] = {"Strided", "Nested", "NestedFar"};
  Positions() {}  // to be set
  /// `pack` elements of the last dimension are a position.
  void set(const Layout& layout, int pack, int32_t singles);
  Kind kind() const { return kind_; }
  void* argument() { return &as_; }

 private:
  Kind kind_ = kStrided;
  union {
    Strided strided;
    Nested nested;
    NestedFar far;
  } as_;
};

/// How a kernel goes through positions: `count` packs or elements.
struct Packed {
  bool packs = false;
  int held = 0;  // packs of a line that a thread holds, or four times as many elements; 0: none
  int64_t count = 0;
  Positions places;

  /// All positions of `layout`. `single`: a bit for each operand of which the kernel takes one
  /// element for a whole pack.
  void set(const Layout& layout, const Operands4& operands, int lead, int32_t single = 0,
           const Layout* outer = nullptr);
};
inline Packed packed(const Layout& layout, const Operands4& operands, int lead) {
  Packed way;
  way.set(layout, operands, lead);
  return way;
}

/// The texts of a kernel for every way of going through positions: `begin`, then "RB_PACK, 2,
/// Strided)": elements of a load, loads of a line that a thread holds, and the type of the
/// positions. Lives as long as the process.
class PackedTexts {
 public:
  explicit PackedTexts(const std::string& begin);
  const char* operator[](const Packed& way) const {
    return texts_[way.packs][way.held / 2][way.places.kind()].c_str();
  }

 private:
  std::string texts_[2][3][Positions::kKinds];
};

}  // namespace rbcuda
