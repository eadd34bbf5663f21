from models import array, integers, several
from pytorch_metric_learning import distances, losses, miners

LABELS = integers(4, 24)


def loss(make):
    return lambda: (lambda x: make()(x, LABELS), array(24, 8))


def mined(miner, make):
    def call(x):
        return make()(x, LABELS, miner(x, LABELS))

    return lambda: (call, array(24, 8))


several(
    "pytorch_metric_learning",
    contrastive=loss(losses.ContrastiveLoss),
    triplet=loss(losses.TripletMarginLoss),
    ntxent=loss(losses.NTXentLoss),
    supcon=loss(losses.SupConLoss),
    multi_similarity=loss(losses.MultiSimilarityLoss),
    circle=loss(losses.CircleLoss),
    lifted=loss(losses.LiftedStructureLoss),
    generalized_lifted=loss(losses.GeneralizedLiftedStructureLoss),
    margin=loss(losses.MarginLoss),
    fast_ap=loss(lambda: losses.FastAPLoss(num_bins=5)),
    signal_to_noise=loss(losses.SignalToNoiseRatioContrastiveLoss),
    intra_pair_variance=loss(losses.IntraPairVarianceLoss),
    tuplet=loss(losses.TupletMarginLoss),
    cosine_triplet=loss(lambda: losses.TripletMarginLoss(distance=distances.CosineSimilarity())),
    hard_triplets=mined(
        miners.TripletMarginMiner(type_of_triplets="hard"), losses.TripletMarginLoss
    ),
    hard_pairs=mined(miners.BatchHardMiner(), losses.TripletMarginLoss),
    multi_similarity_pairs=mined(miners.MultiSimilarityMiner(), losses.MultiSimilarityLoss),
)
