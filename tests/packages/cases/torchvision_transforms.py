import numpy as np
import torch
from models import DTYPE, array, integers, numbers_of_numpy, several
from torchvision import tv_tensors
from torchvision.transforms import InterpolationMode, v2
from torchvision.transforms.v2 import functional as F


def floats(function):
    return lambda: (function, array(2, 3, 20, 24, low=0.0))


def with_default_float32(function):
    """Call where float32 is the default dtype, which torchvision's matrices of an expanded rotation need."""

    def call(*args):
        torch.set_default_dtype(torch.float32)
        try:
            return function(*args)
        finally:
            torch.set_default_dtype(DTYPE)

    return call


def values(function):
    """Of floats without a history, for functions that write in place what their gradient needs."""
    return floats(lambda x: function(x.detach()))


def bytes_of(function):
    return lambda: (lambda: function(integers(256, 2, 3, 20, 24).to(torch.uint8)),)


def draws(transform, dtype=None):
    """Three results of a random transform, which draws from NumPy."""

    def call(x):
        with numbers_of_numpy():
            return [transform()(x.to(dtype or x.dtype)) for _ in range(3)]

    return call


def drawn(transform):
    return values(draws(transform))


def drawn_bytes(transform):
    return bytes_of(draws(transform))


def annotated(transform):
    """An image with boxes, a mask, key points, and labels, transformed together."""

    def call():
        image = tv_tensors.Image(integers(256, 3, 20, 24).to(torch.uint8))
        boxes = tv_tensors.BoundingBoxes(
            torch.tensor(
                [[2.0, 3.0, 10.0, 12.0], [5.0, 1.0, 20.0, 18.0], [0.0, 0.0, 1.0, 2.0]],
                dtype=torch.float32,
            ),
            format="XYXY",
            canvas_size=(20, 24),
        )
        masks = tv_tensors.Mask(integers(2, 3, 20, 24, seed=1).to(torch.uint8))
        points = tv_tensors.KeyPoints(
            torch.tensor([[1.0, 2.0], [20.0, 10.0]], dtype=torch.float32), canvas_size=(20, 24)
        )
        sample = {
            "image": image,
            "boxes": boxes,
            "masks": masks,
            "points": points,
            "labels": torch.arange(3),
        }
        with numbers_of_numpy():
            found = transform()(sample)
        kinds = [type(found[key]).__name__ for key in ("image", "boxes", "masks", "points")]
        assert kinds == ["Image", "BoundingBoxes", "Mask", "KeyPoints"], kinds
        return (
            found,
            found["boxes"].canvas_size,
            [float(ord(c)) for c in found["boxes"].format.value],
        )

    return lambda: (with_default_float32(call),)


def batch(transform):
    def call(x):
        with numbers_of_numpy():
            return transform()(x, torch.tensor([0, 3]))

    return floats(call)


def picture():
    import PIL.Image

    return PIL.Image.fromarray(
        np.random.RandomState(0).randint(0, 256, (20, 24, 3), dtype=np.uint8)
    )


MODES = ("nearest", "nearest-exact", "bilinear", "bicubic")
several(
    "torchvision_transforms",
    # deterministic functions of floats, with gradients
    **{
        f"resized_{mode}": floats(
            lambda x, mode=mode: F.resize(
                x, [11, 31], InterpolationMode(mode), antialias="bi" in mode
            )
        )
        for mode in MODES
    },
    padded=floats(
        lambda x: [F.pad(x, [1, 2, 3, 4], padding_mode=m) for m in ("constant", "edge", "reflect")]
    ),
    padded_symmetric=floats(lambda x: F.pad(x, [1, 2], padding_mode="symmetric")),
    flipped=floats(lambda x: (F.horizontal_flip(x), F.vertical_flip(x))),
    cropped=floats(
        lambda x: (F.crop(x, -2, 3, 12, 30), F.five_crop(x, [8, 8]), F.ten_crop(x, [8, 8]))
    ),
    resized_crop=floats(lambda x: F.resized_crop(x, 2, 3, 10, 12, [16, 16], antialias=True)),
    rotated=values(
        with_default_float32(
            lambda x: [
                F.rotate(x.float(), 31.0, InterpolationMode.BILINEAR, expand=e)
                for e in (False, True)
            ]
        )
    ),
    affine=values(
        lambda x: F.affine(
            x, 15.0, [1, 2], 1.1, [5.0, 3.0], InterpolationMode.BILINEAR, [0.5, 0, 1]
        )
    ),
    perspective=floats(
        lambda x: F.perspective(
            x,
            None,
            None,
            InterpolationMode.BILINEAR,
            coefficients=[1.1, 0.1, -1.0, 0.05, 0.9, 0.5, 0.002, 0.001],
        )
    ),
    elastic=floats(
        lambda x: F.elastic(x, 0.1 * array(1, 20, 24, 2, seed=2), InterpolationMode.BILINEAR)
    ),
    brightness=floats(lambda x: F.adjust_brightness(x, 1.3)),
    contrast=floats(lambda x: F.adjust_contrast(x, 0.6)),
    saturation=floats(lambda x: F.adjust_saturation(x, 1.7)),
    hue=values(lambda x: F.adjust_hue(x, 0.21)),
    gamma=floats(lambda x: F.adjust_gamma(x, 0.8, 1.1)),
    sharpness=values(lambda x: F.adjust_sharpness(x, 1.8)),
    gray=floats(lambda x: F.rgb_to_grayscale(x, 3)),
    autocontrast=values(F.autocontrast),
    normalised=floats(lambda x: F.normalize(x, [0.5, 0.4, 0.3], [0.2, 0.3, 0.4])),
    blurred=floats(lambda x: F.gaussian_blur(x, [3, 5], [0.7, 1.2])),
    erased=floats(lambda x: F.erase(x, 2, 3, 5, 6, torch.zeros(3, 5, 6, dtype=x.dtype))),
    permuted=floats(lambda x: F.permute_channels(x, [2, 0, 1])),
    solarized_float=floats(lambda x: F.solarize(x, 0.6)),
    # of images of 8 bits
    **{
        f"bytes_resized_{mode}": bytes_of(
            lambda x, mode=mode: [
                F.resize(v, [11, 31], InterpolationMode(mode), antialias="bi" in mode)
                for v in (x, x.contiguous(memory_format=torch.channels_last))
            ]
        )
        for mode in MODES
    },
    bytes_posterized=bytes_of(lambda x: F.posterize(x, 3)),
    bytes_solarized=bytes_of(lambda x: F.solarize(x, 100)),
    bytes_equalized=bytes_of(F.equalize),
    bytes_autocontrast=bytes_of(F.autocontrast),
    bytes_inverted=bytes_of(F.invert),
    bytes_colours=bytes_of(
        lambda x: (
            F.adjust_brightness(x, 1.3),
            F.adjust_contrast(x, 0.6),
            F.adjust_saturation(x, 1.7),
            F.adjust_hue(x, -0.2),
        )
    ),
    bytes_sharpness=bytes_of(lambda x: F.adjust_sharpness(x, 0.3)),
    bytes_rotated=bytes_of(lambda x: [F.rotate(x, 31.0, InterpolationMode(m)) for m in MODES[::2]]),
    bytes_blurred=bytes_of(lambda x: F.gaussian_blur(x, [5, 5])),
    bytes_to_float=bytes_of(lambda x: F.to_dtype(x, torch.float32, scale=True)),
    floats_to_bytes=floats(lambda x: F.to_dtype(x.detach(), torch.uint8, scale=True)),
    pil=lambda: (
        lambda: (
            F.pil_to_tensor(picture()),
            v2.ToImage()(picture()),
            F.to_image(picture()).float(),
        ),
    ),
    # random transforms
    resized_crops=drawn(lambda: v2.RandomResizedCrop(16, antialias=True)),
    jitter=drawn(lambda: v2.ColorJitter(0.4, 0.4, 0.4, 0.2)),
    erasing=drawn(lambda: v2.RandomErasing(p=1.0)),
    random_affine=drawn(lambda: v2.RandomAffine(20, (0.1, 0.2), (0.8, 1.2), 10)),
    rotations=values(
        with_default_float32(draws(lambda: v2.RandomRotation(30, expand=True), torch.float32))
    ),
    flips=drawn(lambda: v2.Compose([v2.RandomHorizontalFlip(), v2.RandomVerticalFlip(0.7)])),
    zoomed_out=drawn(lambda: v2.RandomZoomOut(p=1.0)),
    photometric=drawn(lambda: v2.RandomPhotometricDistort(p=1.0)),
    blur=drawn(lambda: v2.GaussianBlur(5)),
    noise=drawn(lambda: v2.GaussianNoise()),
    channels=drawn(lambda: v2.RandomChannelPermutation()),
    choice=drawn(
        lambda: v2.RandomOrder([v2.RandomGrayscale(0.5), v2.RandomAdjustSharpness(2, 0.5)])
    ),
    augmented=drawn_bytes(lambda: v2.RandAugment()),
    trivially_augmented=drawn_bytes(lambda: v2.TrivialAugmentWide()),
    auto_augmented=drawn_bytes(lambda: v2.AutoAugment()),
    classifier=drawn_bytes(
        lambda: v2.Compose(
            [
                v2.RandomResizedCrop(14, antialias=True),
                v2.RandomHorizontalFlip(),
                v2.ToDtype(torch.float32, scale=True),
                v2.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]),
            ]
        )
    ),
    # images with their annotations
    detection=annotated(
        lambda: v2.Compose(
            [
                v2.RandomPhotometricDistort(p=1.0),
                v2.RandomZoomOut(fill={tv_tensors.Image: 9, "others": 0}),
                v2.RandomIoUCrop(),
                v2.RandomHorizontalFlip(p=1.0),
                v2.SanitizeBoundingBoxes(),
                v2.ToDtype({tv_tensors.Image: torch.float32, "others": None}, scale=True),
            ]
        )
    ),
    geometry=annotated(
        lambda: v2.Compose(
            [
                v2.Resize((30, 40), antialias=True),
                v2.RandomRotation(45, expand=True),
                v2.Pad(3),
                v2.CenterCrop(32),
                v2.ClampBoundingBoxes(),
                v2.ConvertBoundingBoxFormat("CXCYWH"),
            ]
        )
    ),
    scale_jitter=annotated(lambda: v2.ScaleJitter((24, 24), antialias=True)),
    elastic_pictures=annotated(lambda: v2.ElasticTransform(20.0, 2.0)),
    mixup=batch(lambda: v2.MixUp(num_classes=5)),
    cutmix=batch(lambda: v2.CutMix(num_classes=5)),
)
