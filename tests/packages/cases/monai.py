import torch
from models import array, case, filled, integers, several
from monai import inferers, losses, metrics
from monai import transforms as mt
from monai.networks import blocks, nets


def model(make, *shape):
    return lambda: (filled(make()).eval(), array(*shape))


def loss(make, channels=3):
    target = torch.nn.functional.one_hot(integers(channels, 2, 8, 8), channels)
    target = target.movedim(-1, 1).double()
    return lambda: (lambda x: make()(x, target), array(2, channels, 8, 8))


UNET = {
    "spatial_dims": 2, "in_channels": 1, "out_channels": 2, "channels": (4, 8, 16), "strides": (2, 2),
}  # fmt: skip
several(
    "monai",
    unet=model(lambda: nets.UNet(**UNET, num_res_units=2), 1, 1, 32, 32),
    unet_3d=model(lambda: nets.UNet(**{**UNET, "spatial_dims": 3}), 1, 1, 16, 16, 16),
    basic_unet=model(lambda: nets.BasicUNet(2, 1, 2, (4, 4, 8, 8, 8, 4)), 1, 1, 32, 32),
    basic_unet_plus_plus=model(
        lambda: nets.BasicUNetPlusPlus(2, 1, 2, (4, 4, 8, 8, 8, 4)), 1, 1, 32, 32
    ),
    attention_unet=model(lambda: nets.AttentionUnet(2, 1, 2, (4, 8, 16), (2, 2)), 1, 1, 32, 32),
    segresnet=model(lambda: nets.SegResNet(2, 8, 1, 2), 1, 1, 32, 32),
    vnet=model(lambda: nets.VNet(2, 1, 2), 1, 1, 32, 32),
    dynunet=model(
        lambda: nets.DynUNet(2, 1, 2, [3, 3, 3], [1, 2, 2], [2, 2], filters=[4, 8, 16]), 1, 1, 32, 32
    ),
    highresnet=model(lambda: nets.HighResNet(2, 1, 2), 1, 1, 16, 16),
    densenet=model(lambda: nets.DenseNet121(2, 1, 3), 1, 1, 32, 32),
    resnet=model(lambda: nets.resnet10(spatial_dims=2, n_input_channels=1, num_classes=3), 1, 1, 32, 32),
    senet=model(lambda: nets.SEResNet50(spatial_dims=2, in_channels=1, num_classes=3), 1, 1, 32, 32),
    efficientnet=model(
        lambda: nets.EfficientNetBN("efficientnet-b0", pretrained=False, spatial_dims=2, in_channels=1, num_classes=3),
        1, 1, 32, 32,
    ),
    vit=model(
        lambda: nets.ViT(1, 16, 8, hidden_size=32, mlp_dim=48, num_layers=2, num_heads=4, spatial_dims=2),
        1, 1, 16, 16,
    ),
    unetr=model(
        lambda: nets.UNETR(1, 2, 32, feature_size=4, hidden_size=24, mlp_dim=32, num_heads=4, spatial_dims=2),
        1, 1, 32, 32,
    ),
    swin_unetr=model(
        lambda: nets.SwinUNETR(1, 2, feature_size=12, depths=(1, 1, 1, 1), num_heads=(1, 2, 2, 2), spatial_dims=2),
        1, 1, 64, 64,
    ),
    autoencoder=model(lambda: nets.AutoEncoder(2, 1, 1, (4, 8), (2, 2)), 1, 1, 16, 16),
    discriminator=model(lambda: nets.PatchDiscriminator(2, 4, 1, num_layers_d=2), 1, 1, 32, 32),
    squeeze=model(lambda: blocks.ResidualSELayer(2, 8), 2, 8, 8, 8),
    self_attention=model(lambda: blocks.SABlock(16, 4), 2, 6, 16),
    dice=loss(lambda: losses.DiceLoss(sigmoid=True)),
    dice_squared=loss(lambda: losses.DiceLoss(softmax=True, squared_pred=True, jaccard=True)),
    generalized_dice=loss(lambda: losses.GeneralizedDiceLoss(softmax=True)),
    dice_and_entropy=loss(lambda: losses.DiceCELoss(softmax=True)),
    dice_and_focal=loss(lambda: losses.DiceFocalLoss(softmax=True)),
    focal=loss(lambda: losses.FocalLoss(gamma=2.0, use_softmax=True)),
    tversky=loss(lambda: losses.TverskyLoss(softmax=True, alpha=0.3, beta=0.7)),
    unified_focal=loss(losses.AsymmetricUnifiedFocalLoss, 2),
    ssim=loss(lambda: losses.SSIMLoss(2, win_size=5)),
    local_correlation=loss(lambda: losses.LocalNormalizedCrossCorrelationLoss(2, 3)),
    mutual_information=loss(lambda: losses.GlobalMutualInformationLoss(num_bins=8)),
    bending=lambda: (lambda x: losses.BendingEnergyLoss()(x), array(1, 2, 8, 8)),
    contrastive=lambda: (lambda x, y: losses.ContrastiveLoss()(x, y), array(4, 6), array(4, 6, seed=1)),
)  # fmt: skip


@case("monai")
def sliding_window():
    net = filled(nets.UNet(**UNET)).eval()

    def call(x):
        return inferers.sliding_window_inference(x, (16, 16), 2, net, overlap=0.5, mode="gaussian")

    return call, array(1, 1, 24, 40)


@case("monai")
def scores():
    def call():
        masks = [
            torch.nn.functional.one_hot(integers(3, 2, 8, 8, seed=s), 3).movedim(-1, 1)
            for s in (0, 1)
        ]
        dice = metrics.DiceMetric(reduction="mean_batch")
        dice(*masks)
        iou = metrics.MeanIoU()
        iou(*masks)
        confusion = metrics.get_confusion_matrix(*masks)
        return (
            dice.aggregate(),
            iou.aggregate(),
            confusion,
            metrics.compute_surface_dice(*masks, [1.0, 1.0]),
        )

    return (call,)


@case("monai")
def transformed():
    pipeline = mt.Compose(
        [
            mt.ScaleIntensity(0.0, 1.0),
            mt.NormalizeIntensity(),
            mt.SpatialPad((24, 24)),
            mt.CenterSpatialCrop((20, 20)),
            mt.Flip(0),
            mt.Rotate90(),
            mt.Resize((10, 14), mode="bilinear"),
            mt.Rotate(0.3),
            mt.Zoom(1.2),
            mt.GaussianSmooth(1.0),
        ]
    )
    return lambda x: pipeline(x.detach()).as_tensor(), array(1, 18, 22)


@case("monai")
def transformed_dictionaries():
    pipeline = mt.Compose(
        [
            mt.ScaleIntensityRanged("image", -3, 3, 0, 1, clip=True),
            mt.AsDiscreted("label", to_onehot=3),
            mt.CropForegroundd(["image", "label"], source_key="image"),
            mt.Rand2DElasticd("image", (6, 6), (1, 2), prob=1.0, padding_mode="border"),
            mt.RandGaussianNoised("image", prob=1.0),
            mt.RandFlipd(["image", "label"], prob=1.0, spatial_axis=1),
        ]
    )
    pipeline.set_random_state(3)

    def call(x):
        found = pipeline({"image": x.detach(), "label": integers(3, 1, 16, 16)})
        return found["image"].as_tensor(), found["label"].as_tensor()

    return call, array(1, 16, 16)
