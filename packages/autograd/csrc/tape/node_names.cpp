// Names of nodes: PyTorch's, by the record of the call.
#include <cctype>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>

#include "engine.h"
#include "node.h"

namespace tape {
namespace {

// What tells PyTorch's operators apart that are one record here.
enum class By { kRecord, kEdges, kRank };  // the number of tensor arguments, the result's rank
struct Name {
  std::string_view record;
  By by;
  int at;  // names[0] is that of `at` or less, the last one that of all above
  const char* names[5];
  int most = 64;  // the largest rank of the result that the entry is for
};
constexpr Name names[] = {
    {"adaptive_avg_pool",
     By::kRank,
     4,
     {"AdaptiveAvgPool2DBackward0", "AdaptiveAvgPool3DBackward0"}},
    {"adaptive_max_pool_with_indices",
     By::kRank,
     4,
     {"AdaptiveMaxPool2DBackward0", "AdaptiveMaxPool3DBackward0"}},
    {"attention", By::kRecord, 0, {"ScaledDotProductFlashAttentionForCpuBackward0"}},
    {"avg_pool", By::kRank, 4, {"AvgPool2DBackward0", "AvgPool3DBackward0"}},
    {"batch_norm_train", By::kRecord, 0, {"NativeBatchNormBackward0"}},
    {"cast", By::kRecord, 0, {"ToCopyBackward0"}},
    {"clamp", By::kEdges, 1, {"ClampBackward1", "ClampBackward0"}},
    {"convolution_dx", By::kRecord, 0, {"ConvolutionBackward0"}},
    {"copy", By::kRecord, 0, {"CopyBackwards"}},
    {"cross_entropy_loss", By::kRecord, 0, {"NllLossBackward0"}},
    {"entr", By::kRecord, 0, {"SpecialEntrBackward0"}},
    {"fmod", By::kEdges, 1, {"FmodBackward0", "FmodBackward1"}},
    {"group_norm", By::kRecord, 0, {"NativeGroupNormBackward0"}},
    {"layer_norm", By::kRecord, 0, {"NativeLayerNormBackward0"}},
    {"lerp", By::kEdges, 2, {"LerpBackward0", "LerpBackward1"}},
    {"linear", By::kEdges, 2, {"MmBackward0", "AddmmBackward0"}, 2},
    {"linear", By::kEdges, 2, {"UnsafeViewBackward0", "ViewBackward0"}},
    {"logsigmoid", By::kRecord, 0, {"LogSigmoidBackward0"}},
    {"mT", By::kRecord, 0, {"TransposeBackward0"}},
    {"matmul",
     By::kRank,
     0,
     {"DotBackward0", "MvBackward0", "MmBackward0", "BmmBackward0", "UnsafeViewBackward0"}},
    {"max_pool_with_indices",
     By::kRank,
     4,
     {"MaxPool2DWithIndicesBackward0", "MaxPool3DWithIndicesBackward0"}},
    {"mean", By::kRank, 0, {"MeanBackward0", "MeanBackward1"}},
    {"pad_constant", By::kRecord, 0, {"ConstantPadNdBackward0"}},
    {"pow", By::kEdges, 1, {"PowBackward0", "PowBackward1"}},
    {"prelu", By::kRecord, 0, {"PreluKernelBackward0"}},
    {"prod", By::kRank, 0, {"ProdBackward0", "ProdBackward1"}},
    {"remainder", By::kEdges, 1, {"RemainderBackward0", "RemainderBackward1"}},
    {"selu", By::kRecord, 0, {"EluBackward0"}},
    {"square", By::kRecord, 0, {"PowBackward0"}},
    {"strided_view", By::kRecord, 0, {"AsStridedBackward0"}},
    {"sum", By::kRank, 0, {"SumBackward0", "SumBackward1"}},
    {"vector_norm", By::kRecord, 0, {"LinalgVectorNormBackward0"}},
    {"xlog1py", By::kRecord, 0, {"SpecialXlog1PyBackward0"}},
};

const char* choose(const Name& entry, int count) {
  int i = count > entry.at ? count - entry.at : 0;
  while (i > 4 || !entry.names[i]) --i;
  return entry.names[i];
}

int tensor_arguments(const Node* n) {
  int count = 0;
  for (int i = 0; i < n->nedges; ++i) count += n->edges[i].meta != nullptr;
  return count;
}

// "log1p" is Log1PBackward0, "mine::scale" MineScaleBackward0.
std::string camel_case(std::string_view record) {
  std::string name;
  bool upper = true;
  for (const char c : record) {
    const bool letter = c != '_' && c != ':';
    if (letter) name += upper ? static_cast<char>(std::toupper(c)) : c;
    upper = !letter || std::isdigit(static_cast<unsigned char>(c));
  }
  return name + "Backward0";
}

}  // namespace

const char* node_name(const Node* n) {
  switch (n->kind) {
    case NodeKind::kAccumulate:
      return "AccumulateGrad";
    case NodeKind::kViewWrite:
      return "CopySlices";
    case NodeKind::kCustom:
    case NodeKind::kFlat:
      return n->name->c_str();
    default:
      break;
  }
  const std::string_view full = n->info->name;
  const std::string_view record = full.substr(0, full.find('.'));
  for (const Name& entry : names) {
    if (entry.record != record || n->out_metas[0].ndim > entry.most) continue;
    return choose(entry, entry.by == By::kRank    ? n->out_metas[0].ndim
                         : entry.by == By::kEdges ? tensor_arguments(n)
                                                  : 0);
  }
  static std::mutex mutex;
  static auto& made = *new std::unordered_map<const RbOpInfo*, std::string>;
  const std::lock_guard<std::mutex> lock(mutex);
  std::string& name = made[n->info];
  if (name.empty()) name = camel_case(record);
  return name.c_str();
}

}  // namespace tape
