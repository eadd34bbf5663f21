import os
import tempfile

import numpy as np
import torch
import torchvision
from models import array, case, filled, integers, several
from PIL import Image
from torchvision import transforms
from torchvision.transforms import v2

NAMES = {
    "resnet18": 64, "resnext50_32x4d": 64, "densenet121": 64, "mobilenet_v2": 64, "mobilenet_v3_small": 64,
    "shufflenet_v2_x0_5": 64, "squeezenet1_1": 64, "mnasnet0_5": 64, "efficientnet_b0": 64, "regnet_y_400mf": 64,
    "convnext_tiny": 64, "vgg11_bn": 64, "alexnet": 96, "googlenet": 64, "vit_b_32": 224, "swin_t": 64, "maxvit_t": 224,
}  # fmt: skip


def model(name, size):
    def make():
        options = {"init_weights": False} if name == "googlenet" else {}
        return filled(
            torchvision.models.get_model(name, weights=None, num_classes=5, **options)
        ).eval(), array(1, 3, size, size)

    return make


def image(function):
    return lambda: (function, array(2, 3, 20, 24, low=0.0))


several(
    "torchvision",
    **{name: model(name, size) for name, size in NAMES.items()},
    deeplab=lambda: (
        filled(
            torchvision.models.segmentation.lraspp_mobilenet_v3_large(
                weights=None, weights_backbone=None, num_classes=4
            )
        ).eval(),
        array(1, 3, 64, 64),
    ),
    video=lambda: (
        filled(torchvision.models.video.r3d_18(weights=None, num_classes=4)).eval(),
        array(1, 3, 4, 32, 32),
    ),
    resized=image(lambda x: v2.functional.resize(x, [11, 17], antialias=True)),
    cropped=image(lambda x: v2.functional.center_crop(x, [12, 30])),
    rotated=image(lambda x: v2.functional.rotate(x, 20.0)),
    affine=image(lambda x: v2.functional.affine(x, 15.0, [1, 2], 1.1, [5.0, 3.0])),
    normalised=image(lambda x: v2.functional.normalize(x, [0.5, 0.4, 0.3], [0.2, 0.3, 0.4])),
    blurred=image(lambda x: v2.functional.gaussian_blur(x, [3, 5])),
    boxes=lambda: (
        lambda a, b: (
            torchvision.ops.box_iou(a.abs(), b.abs()),
            torchvision.ops.generalized_box_iou_loss(a, a.flip(0) + 1),
        ),
        array(5, 4),
        array(6, 4, seed=1),
    ),
    focal=lambda: (
        lambda x: torchvision.ops.sigmoid_focal_loss(
            x, integers(2, 6, 3).double(), reduction="mean"
        ),
        array(6, 3),
    ),
)


def folder_of_images(root):
    for name in ("cat", "dog"):
        os.makedirs(f"{root}/{name}")
        for i in range(5):
            pixels = np.random.RandomState(i).randint(0, 255, (20 + i, 30, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(f"{root}/{name}/{i}.png")


@case("torchvision")
def folders_are_loaded_by_workers():
    steps = [
        transforms.Resize((16, 24)),
        transforms.CenterCrop(16),
        transforms.ToTensor(),
        transforms.Normalize((0.5,) * 3, (0.25,) * 3),
    ]

    def call():
        with tempfile.TemporaryDirectory() as root:
            folder_of_images(root)
            data = torchvision.datasets.ImageFolder(root, transforms.Compose(steps))
            loader = torch.utils.data.DataLoader(data, batch_size=4, num_workers=2)
            batches = [(x.double(), y) for x, y in loader]
        assert data.classes == ["cat", "dog"] and [len(y) for _, y in batches] == [4, 4, 2]
        return batches

    return (call,)
