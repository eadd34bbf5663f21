from models import array, several
from pytorch_msssim import MS_SSIM, SSIM


def between(make, size):
    return lambda: (
        make(),
        array(2, 3, size, size, low=0.0),
        array(2, 3, size, size, seed=1, low=0.0),
    )


several(
    "pytorch_msssim",
    ssim=between(lambda: SSIM(data_range=1.0, win_size=7), 24),
    nonnegative=between(lambda: SSIM(data_range=1.0, nonnegative_ssim=True), 24),
    several_scales=between(lambda: MS_SSIM(data_range=1.0), 176),
)
