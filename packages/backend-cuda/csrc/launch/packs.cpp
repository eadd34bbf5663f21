#include "launch/packs.h"

#include <algorithm>

namespace rbcuda {

bool takes_packs(const Layout& inner, const Layout* outer, const Operands4& operands, int pack,
                 int32_t* singles) {
  const int last = inner.ndim - 1;
  *singles = 0;
  if (pack < 2 || inner.n == 0 || inner.shape[last] % pack) return false;
  for (int k = 0; k < kLayoutTensors; ++k) {
    if (!operands[k].data) continue;
    if (inner.strides[k][last] == 0) {
      *singles |= 1 << k;
      continue;
    }
    const unsigned bytes = static_cast<unsigned>(std::min(kPackBytes, pack * operands[k].size));
    if (inner.strides[k][last] != 1 || reinterpret_cast<uintptr_t>(operands[k].data) % bytes)
      return false;
    for (int d = 0; d < last; ++d)
      if (inner.strides[k][d] % pack) return false;
    for (int d = 0; outer && d < outer->ndim; ++d)
      if (outer->shape[d] > 1 && outer->strides[k][d] % pack) return false;
  }
  return true;
}

Layout packs_of(Layout layout, int pack) {
  const int last = layout.ndim - 1;
  layout.shape[last] /= pack;
  layout.n /= pack;
  for (int64_t(&strides)[kLayoutDims] : layout.strides) strides[last] *= pack;
  return layout;
}

Packed packed(const Layout& layout, const Operands4& operands, int lead, int32_t single,
              const Layout* outer) {
  const int pack = kPackBytes / operands[lead].size;
  int32_t singles = 0;
  Packed way;
  way.packs = takes_packs(layout, outer, operands, pack, &singles) && (singles & single) == single;
  way.count = way.packs ? layout.n / pack : layout.n;
  way.places = way.packs ? Positions(packs_of(layout, pack), singles) : Positions(layout, 0);
  return way;
}

PackedTexts::PackedTexts(const std::string& begin) {
  for (int packs = 0; packs < 2; ++packs) {
    for (int held = 0; held < 3; ++held) {
      const std::string loads = packs ? "RB_PACK" : "1";
      const std::string kept = std::to_string(2 * held * (packs ? 1 : 4));
      for (int kind = 0; kind < Positions::kKinds; ++kind)
        texts_[packs][held][kind] =
            begin + loads + ", " + kept + ", " + Positions::kNames[kind] + ")\n";
    }
  }
}

Positions::Positions(const Layout& layout, int32_t singles) {
  Layout32 narrow;
  if (layout.ndim == 1) {
    as_.strided = {layout.n, {}, singles, 0};
    for (int k = 0; k < kLayoutTensors; ++k) as_.strided.steps[k] = layout.strides[k][0];
  } else if (fits_32(layout, &narrow)) {
    kind_ = kNested;
    as_.nested = {narrow, singles, 0};
  } else {
    kind_ = kFar;
    as_.far = {layout, singles, 0};
  }
}

}  // namespace rbcuda
