import timm
from models import array, filled, several

SIZES = {
    "resnet18": 64, "resnet26d": 64, "resnext26ts": 64, "seresnet18": 64, "resnetv2_50": 64, "densenet121": 64,
    "efficientnet_b0": 64, "mobilenetv2_050": 64, "mobilenetv3_small_050": 64, "mnasnet_small": 64, "ghostnet_100": 64,
    "regnetx_002": 64, "regnety_002": 64, "convnext_atto": 64, "convnextv2_atto": 64, "convmixer_768_32": 32,
    "vit_tiny_patch16_224": None, "deit_tiny_distilled_patch16_224": None, "beit_base_patch16_224": None,
    "mixer_s32_224": None, "resmlp_12_224": None, "gmlp_ti16_224": None, "swin_tiny_patch4_window7_224": None,
    "pvt_v2_b0": 64, "edgenext_xx_small": 64, "mobilevit_xxs": 64, "levit_128s": None, "cait_xxs24_224": None,
    "coat_tiny": None, "poolformer_s12": 64, "dla34": 64, "darknet17": 64, "hardcorenas_a": 64, "dpn48b": 64,
    "vgg11": 32, "tiny_vit_5m_224": None, "fastvit_t8": 64, "repvgg_a0": 64, "efficientformer_l1": None,
}  # fmt: skip


def model(name, size):
    def make():
        options = {"depth": 2} if name.startswith(("beit", "cait")) else {}
        made = timm.create_model(name, pretrained=False, num_classes=7, **options)
        return filled(made).eval(), array(1, 3, size or 224, size or 224)

    return make


several("timm", **{name: model(name, size) for name, size in SIZES.items()})
