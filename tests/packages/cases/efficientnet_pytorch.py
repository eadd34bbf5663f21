from efficientnet_pytorch import EfficientNet
from models import array, filled, several


def model(name, **options):
    def make():
        made = EfficientNet.from_name(name, num_classes=5, **options)
        return filled(made).eval(), array(1, 3, 64, 64)

    return make


several(
    "efficientnet_pytorch",
    b0=model("efficientnet-b0"),
    b1_of_fixed_size=model("efficientnet-b1", image_size=64),
    b0_without_head=model("efficientnet-b0", include_top=False),
)
