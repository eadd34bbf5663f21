import segmentation_models_pytorch as smp
from models import array, filled, integers, several

DECODERS = (
    "Unet",
    "UnetPlusPlus",
    "MAnet",
    "Linknet",
    "FPN",
    "PSPNet",
    "DeepLabV3",
    "DeepLabV3Plus",
    "UPerNet",
    "Segformer",
)
ENCODERS = ("mobilenet_v2", "efficientnet-b0", "vgg11_bn", "densenet121", "mit_b0")


def segmenter(architecture, encoder="resnet18"):
    def make():
        model = smp.create_model(
            architecture, encoder_name=encoder, encoder_weights=None, classes=3
        )
        return filled(model).eval(), array(1, 3, 64, 64)

    return make


def loss(made, labels=None):
    labels = integers(3, 2, 8, 8) if labels is None else labels
    return lambda: (lambda x: made(x, labels), array(2, 3, 8, 8))


several(
    "segmentation_models_pytorch",
    **{name.lower(): segmenter(name) for name in DECODERS},
    **{f"unet_{name}": segmenter("Unet", name) for name in ENCODERS},
    dice=loss(smp.losses.DiceLoss("multiclass")),
    jaccard=loss(smp.losses.JaccardLoss("multiclass")),
    tversky=loss(smp.losses.TverskyLoss("multiclass", alpha=0.3, beta=0.7)),
    focal=loss(smp.losses.FocalLoss("multiclass")),
    soft_cross_entropy=loss(smp.losses.SoftCrossEntropyLoss(smooth_factor=0.1)),
    metrics=lambda: (
        lambda: smp.metrics.iou_score(
            *smp.metrics.get_stats(
                integers(3, 2, 8, 8), integers(3, 2, 8, 8, seed=1), mode="multiclass", num_classes=3
            ),
            reduction="macro",
        ),
    ),
)
