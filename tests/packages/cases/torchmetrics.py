import torch
import torchmetrics.functional as F
from models import array, integers, several
from torchmetrics import MeanMetric, MetricCollection
from torchmetrics.classification import BinaryAUROC, MulticlassAccuracy, MulticlassConfusionMatrix

LABELS = integers(5, 40)
BITS = integers(2, 40, seed=2)


def classes(function, **options):
    return lambda: (
        lambda x: function(x.softmax(-1), LABELS, num_classes=5, **options),
        array(40, 5),
    )


def binary(function, **options):
    return lambda: (lambda x: function(x.sigmoid(), BITS, **options), array(40))


def values(function, **options):
    return lambda: (
        lambda a, b: function(a, b, **options),
        array(40, low=0.1),
        array(40, seed=1, low=0.1),
    )


def images(function, **options):
    return lambda: (
        lambda a, b: function(a, b, **options),
        array(2, 3, 24, 24, low=0.1),
        array(2, 3, 24, 24, seed=1, low=0.1),
    )


def collected(x):
    metrics = MetricCollection([MulticlassAccuracy(5), MulticlassConfusionMatrix(5)])
    mean, area = MeanMetric(), BinaryAUROC()
    for part, labels in zip(x.detach().split(10), LABELS.split(10)):
        metrics.update(part, labels)
        mean.update(part)
        area.update(part[:, 0].sigmoid(), labels % 2)
    return metrics.compute(), mean.compute(), area.compute()


C, R = F.classification, F.regression
several(
    "torchmetrics",
    accuracy=classes(C.multiclass_accuracy),
    precision=classes(C.multiclass_precision, average="macro"),
    recall=classes(C.multiclass_recall, average=None),
    f1=classes(C.multiclass_f1_score),
    confusion=classes(C.multiclass_confusion_matrix),
    kappa=classes(C.multiclass_cohen_kappa),
    matthews=classes(C.multiclass_matthews_corrcoef),
    jaccard=classes(C.multiclass_jaccard_index),
    specificity=classes(C.multiclass_specificity),
    hinge=classes(C.multiclass_hinge_loss),
    roc=classes(C.multiclass_roc, thresholds=7),
    area=classes(C.multiclass_auroc),
    average_precision=classes(C.multiclass_average_precision),
    calibration=classes(C.multiclass_calibration_error),
    binary_accuracy=binary(C.binary_accuracy),
    binary_area=binary(C.binary_auroc),
    binary_curve=binary(C.binary_precision_recall_curve),
    binary_stat_scores=binary(C.binary_stat_scores),
    squared=values(R.mean_squared_error),
    absolute=values(R.mean_absolute_error),
    percentage=values(R.mean_absolute_percentage_error),
    r2=values(R.r2_score),
    pearson=values(R.pearson_corrcoef),
    spearman=values(R.spearman_corrcoef),
    kendall=values(R.kendall_rank_corrcoef),
    explained=values(R.explained_variance),
    log_cosh=values(R.log_cosh_error),
    tweedie=values(R.tweedie_deviance_score, power=1.5),
    concordance=values(R.concordance_corrcoef),
    ssim=images(F.image.structural_similarity_index_measure),
    psnr=images(F.image.peak_signal_noise_ratio, data_range=1.0),
    uqi=images(F.image.universal_image_quality_index),
    total_variation=lambda: (F.image.total_variation, array(2, 3, 24, 24)),
    retrieval=binary(F.retrieval.retrieval_average_precision),
    normalized_gain=binary(F.retrieval.retrieval_normalized_dcg),
    pairwise_cosine=lambda: (F.pairwise_cosine_similarity, array(6, 4), array(5, 4, seed=1)),
    snr=values(F.audio.signal_noise_ratio),
    word_errors=lambda: (
        lambda: torch.stack(
            [F.text.word_error_rate(["a b c"], ["a d c"]), F.text.char_error_rate(["abc"], ["adc"])]
        ),
    ),
    classes_that_accumulate=lambda: (collected, array(40, 5)),
)
