#include "launch/packs.h"

#include <algorithm>

namespace rbcuda {

bool takes_packs(const Layout& inner, const Layout* outer, const Operands4& operands, int pack,
                 int32_t* singles) {
  const int last = inner.ndim - 1;
  *singles = 0;
  if (inner.n < pack || pack < 2 || inner.shape[last] % pack) return false;
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
    for (int d = 0; outer && outer->n > 1 && d < outer->ndim; ++d)
      if (outer->strides[k][d] % pack) return false;
  }
  return true;
}

void Packed::set(const Layout& layout, const Operands4& operands, int lead, int32_t single,
                 const Layout* outer) {
  const int whole = kPackBytes / operands[lead].size;
  int32_t singles = 0;
  packs = takes_packs(layout, outer, operands, whole, &singles) && (singles & single) == single &&
          !(singles >> lead & 1);  // a broadcast line is read by elements
  const int pack = packs ? whole : 1;
  count = layout.n / pack;
  places.set(layout, pack, packs ? singles : 0);
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

void Positions::set(const Layout& layout, int pack, int32_t singles) {
  if (layout.ndim == 1) {
    kind_ = kStrided;
    as_.strided = {layout.n / pack, {}, singles, 0};
    for (int k = 0; k < kLayoutTensors; ++k) as_.strided.steps[k] = layout.strides[k][0] * pack;
    return;
  }
  Layout all = layout;
  const int last = all.ndim - 1;
  all.shape[last] /= pack;
  all.n /= pack;
  for (int64_t(&strides)[kLayoutDims] : all.strides) strides[last] *= pack;
  Layout32 narrow;
  if (fits_32(all, &narrow)) {
    kind_ = kNested;
    as_.nested = {narrow, singles, 0};
  } else {
    kind_ = kFar;
    as_.far = {all, singles, 0};
  }
}

}  // namespace rbcuda
