// Which attributes descriptors have: their types, counts and whether they must be set.
#include <cstring>

#include "dnn.h"

namespace cusim {
namespace {

enum As {
  kAsHandle = 0,
  kAsDataType = 1,
  kAsBool = 2,
  kAsInt64 = 3,
  kAsFloat = 4,
  kAsDouble = 5,
  kAsPointer = 6,
  kAsConvolutionMode = 7,
  kAsHeuristicsMode = 8,
  kAsNote = 11,
  kAsPointwiseMode = 14,
  kAsDescriptor = 15,
  kAsReduction = 18,
  kAsReordering = 20,
  kAsChar = 24,
};
enum Use { kMust, kMay, kComputed };  // computed: can be read only
constexpr int64_t kMostDims = 8, kMany = 1 << 20;

struct Rule {
  int kind, attribute, type;
  int64_t most;
  Use use;
};
constexpr Rule kRules[] = {
    {kTensor, 900, kAsInt64, 1, kMust},
    {kTensor, 901, kAsDataType, 1, kMust},
    {kTensor, 902, kAsInt64, kMostDims, kMust},
    {kTensor, 903, kAsInt64, kMostDims, kMust},
    {kTensor, 906, kAsInt64, 1, kMust},
    {kTensor, 907, kAsBool, 1, kMay},
    {kTensor, 908, kAsBool, 1, kMay},
    {kTensor, 909, kAsReordering, 1, kMay},
    {kConvolution, 100, kAsDataType, 1, kMay},
    {kConvolution, 101, kAsConvolutionMode, 1, kMay},
    {kConvolution, 102, kAsInt64, kMostDims, kMust},
    {kConvolution, 103, kAsInt64, kMostDims, kMust},
    {kConvolution, 104, kAsInt64, kMostDims, kMay},
    {kConvolution, 105, kAsInt64, kMostDims, kMay},
    {kConvolution, 106, kAsInt64, 1, kMust},
    {kForward, 700, kAsFloat, 1, kMay},
    {kForward, 701, kAsFloat, 1, kMay},
    {kForward, 702, kAsDescriptor, 1, kMust},
    {kForward, 703, kAsDescriptor, 1, kMust},
    {kForward, 704, kAsDescriptor, 1, kMust},
    {kForward, 705, kAsDescriptor, 1, kMust},
    {kBackwardData, 706, kAsFloat, 1, kMay},
    {kBackwardData, 707, kAsFloat, 1, kMay},
    {kBackwardData, 708, kAsDescriptor, 1, kMust},
    {kBackwardData, 709, kAsDescriptor, 1, kMust},
    {kBackwardData, 710, kAsDescriptor, 1, kMust},
    {kBackwardData, 711, kAsDescriptor, 1, kMust},
    {kBackwardFilter, 712, kAsFloat, 1, kMay},
    {kBackwardFilter, 713, kAsFloat, 1, kMay},
    {kBackwardFilter, 714, kAsDescriptor, 1, kMust},
    {kBackwardFilter, 715, kAsDescriptor, 1, kMust},
    {kBackwardFilter, 716, kAsDescriptor, 1, kMust},
    {kBackwardFilter, 717, kAsDescriptor, 1, kMust},
    {kPointwise, 0, kAsPointwiseMode, 1, kMust},
    {kPointwise, 1, kAsDataType, 1, kMust},
    {kPointwise, 9, kAsInt64, 1, kMay},
    {kDoPointwise, 750, kAsDescriptor, 1, kMust},
    {kDoPointwise, 751, kAsDescriptor, 1, kMust},
    {kDoPointwise, 752, kAsDescriptor, 1, kMay},
    {kDoPointwise, 753, kAsDescriptor, 1, kMust},
    {kDoPointwise, 758, kAsDescriptor, 1, kMay},
    {kMatmul, 1500, kAsDataType, 1, kMust},
    {kDoMatmul, 1520, kAsDescriptor, 1, kMust},
    {kDoMatmul, 1521, kAsDescriptor, 1, kMust},
    {kDoMatmul, 1522, kAsDescriptor, 1, kMust},
    {kDoMatmul, 1523, kAsDescriptor, 1, kMust},
    {kReduction, 1600, kAsReduction, 1, kMust},
    {kReduction, 1601, kAsDataType, 1, kMust},
    {kDoReduction, 1610, kAsDescriptor, 1, kMust},
    {kDoReduction, 1611, kAsDescriptor, 1, kMust},
    {kDoReduction, 1612, kAsDescriptor, 1, kMust},
    {kDoReshape, 2200, kAsDescriptor, 1, kMust},
    {kDoReshape, 2201, kAsDescriptor, 1, kMust},
    {kGraph, 800, kAsHandle, 1, kMust},
    {kGraph, 801, kAsDescriptor, kMany, kMust},
    {kHeuristics, 200, kAsHeuristicsMode, 1, kMust},
    {kHeuristics, 201, kAsDescriptor, 1, kMust},
    {kHeuristics, 202, kAsDescriptor, kMany, kComputed},
    {kEngine, 1303, kAsNote, kMany, kComputed},
    {kEngineConfig, 300, kAsDescriptor, 1, kMust},
    {kPlan, 400, kAsHandle, 1, kMust},
    {kPlan, 401, kAsDescriptor, 1, kMay},
    {kPlan, 402, kAsInt64, 1, kComputed},
    {kPlan, 405, kAsChar, int64_t{1} << 40, kMay},
    {kVariantPack, 1000, kAsInt64, kMany, kMust},
    {kVariantPack, 1001, kAsPointer, kMany, kMust},
    {kVariantPack, 1003, kAsPointer, 1, kMay},
};

const Rule* rule_of(int kind, int attribute) {
  for (const Rule& rule : kRules)
    if (rule.kind == kind && rule.attribute == attribute) return &rule;
  return nullptr;
}

}  // namespace

int dnn_bytes_of(int type) {
  switch (type) {
    case kAsHandle:
    case kAsInt64:
    case kAsDouble:
    case kAsPointer:
    case kAsDescriptor:
      return 8;
    case kAsBool:
    case kAsChar:
      return 1;
    default:
      return 4;
  }
}

bool dnn_has_kind(int kind) {
  for (const Rule& rule : kRules)
    if (rule.kind == kind) return true;
  return false;
}

int dnn_set(DnnDescriptor& d, int attribute, int type, int64_t count, const void* from,
            const std::vector<DnnPart>& parts) {
  const Rule* rule = rule_of(d.kind, attribute);
  if (d.finalized || !rule || rule->use == kComputed) return kDnnBad;
  if (rule->type != type) return kDnnBadType;
  if (count < 1 || count > rule->most || !from) return kDnnBad;
  DnnValue value{type, count, {}, parts};
  const size_t size = static_cast<size_t>(count) * static_cast<size_t>(dnn_bytes_of(type));
  if (parts.empty()) value.bytes.assign(static_cast<const char*>(from), size);
  d.values[attribute] = std::move(value);
  return kDnnFine;
}

int dnn_get(const DnnDescriptor& d, int attribute, int type, int64_t wanted, int64_t* count,
            void* to) {
  const Rule* rule = rule_of(d.kind, attribute);
  if (!d.finalized) return kDnnNotFinalized;
  if (!rule || !count || (wanted > 0 && !to) || type == kAsDescriptor) return kDnnBad;
  if (rule->type != type) return kDnnBadType;
  const auto found = d.values.find(attribute);
  if (found == d.values.end()) return kDnnBad;
  const int64_t there = found->second.count;
  *count = wanted > 0 && wanted < there ? wanted : there;
  if (wanted > 0)
    std::memcpy(to, found->second.bytes.data(),
                static_cast<size_t>(*count) * static_cast<size_t>(dnn_bytes_of(type)));
  return kDnnFine;
}

bool dnn_is_complete(const DnnDescriptor& d) {
  for (const Rule& rule : kRules)
    if (rule.kind == d.kind && rule.use == kMust && !d.values.count(rule.attribute)) return false;
  for (const auto& [attribute, value] : d.values)
    for (const DnnPart& part : value.parts)
      if (!part->finalized) return false;
  return true;
}

}  // namespace cusim
