import kornia as k
import torch
from models import array, integers, several


def on_image(function, channels=3):
    return lambda: (function, array(2, channels, 16, 16, low=0.05))


SHIFT = torch.tensor([[[0.9, 0.1, 1.0], [-0.1, 1.1, -2.0]]]).repeat(2, 1, 1)
WARP = torch.tensor([[[1.0, 0.1, 0.5], [0.05, 0.95, -1.0], [0.001, 0.002, 1.0]]]).repeat(2, 1, 1)
KERNEL = torch.ones(3, 3)

several(
    "kornia",
    gaussian_blur=on_image(lambda x: k.filters.gaussian_blur2d(x, (5, 5), (1.5, 1.5))),
    box_blur=on_image(lambda x: k.filters.box_blur(x, (3, 3))),
    sobel=on_image(k.filters.sobel),
    laplacian=on_image(lambda x: k.filters.laplacian(x, 3)),
    spatial_gradient=on_image(k.filters.spatial_gradient),
    unsharp=on_image(lambda x: k.filters.unsharp_mask(x, (3, 3), (1.0, 1.0))),
    motion_blur=on_image(lambda x: k.filters.motion_blur(x, 5, 35.0, 0.5)),
    grayscale=on_image(k.color.rgb_to_grayscale),
    hsv=on_image(k.color.rgb_to_hsv),
    hls=on_image(k.color.rgb_to_hls),
    lab=on_image(k.color.rgb_to_lab),
    luv=on_image(k.color.rgb_to_luv),
    xyz=on_image(k.color.rgb_to_xyz),
    ycbcr=on_image(k.color.rgb_to_ycbcr),
    yuv=on_image(k.color.rgb_to_yuv),
    brightness=on_image(lambda x: k.enhance.adjust_brightness(x, 0.2)),
    contrast=on_image(lambda x: k.enhance.adjust_contrast(x, 0.7)),
    gamma=on_image(lambda x: k.enhance.adjust_gamma(x, 1.7)),
    saturation=on_image(lambda x: k.enhance.adjust_saturation(x, 1.5)),
    hue=on_image(lambda x: k.enhance.adjust_hue(x, 0.3)),
    normalised=on_image(
        lambda x: k.enhance.normalize(x, torch.full((3,), 0.5), torch.full((3,), 0.2))
    ),
    warp_affine=on_image(lambda x: k.geometry.transform.warp_affine(x, SHIFT, (16, 16))),
    warp_perspective=on_image(lambda x: k.geometry.transform.warp_perspective(x, WARP, (16, 16))),
    rotated=on_image(lambda x: k.geometry.transform.rotate(x, torch.tensor([30.0, -45.0]))),
    resized=on_image(lambda x: k.geometry.transform.resize(x, (11, 23))),
    flipped=on_image(k.geometry.transform.hflip),
    pyramid=on_image(lambda x: k.geometry.transform.pyrdown(x)),
    dilation=on_image(lambda x: k.morphology.dilation(x, KERNEL)),
    erosion=on_image(lambda x: k.morphology.erosion(x, KERNEL)),
    opening=on_image(lambda x: k.morphology.opening(x, KERNEL)),
    harris=on_image(lambda x: k.feature.harris_response(x), 1),
    gftt=on_image(lambda x: k.feature.gftt_response(x), 1),
    ssim=on_image(lambda x: k.metrics.ssim(x, x.detach().flip(-1), 5)),
    ssim_loss=on_image(lambda x: k.losses.ssim_loss(x, x.detach().flip(-1), 5)),
    total_variation=on_image(k.losses.total_variation),
    psnr=on_image(lambda x: k.metrics.psnr(x, x.detach().flip(-1), 1.0)),
    dice=on_image(lambda x: k.losses.dice_loss(x, integers(3, 2, 16, 16))),
    focal=on_image(lambda x: k.losses.focal_loss(x, integers(3, 2, 16, 16), alpha=0.5)),
    tversky=on_image(lambda x: k.losses.tversky_loss(x, integers(3, 2, 16, 16), 0.5, 0.5)),
    quaternion=lambda: (
        lambda q: k.geometry.conversions.quaternion_to_rotation_matrix(q),
        array(4, 4),
    ),
    homogeneous=lambda: (
        lambda p: k.geometry.conversions.convert_points_to_homogeneous(p),
        array(4, 2),
    ),
)
