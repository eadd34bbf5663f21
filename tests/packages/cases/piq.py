import piq
from models import array, several


def between(measure, size=64, **options):
    def call(x, y):
        return measure(x, y.detach(), data_range=1.0, **options)

    return lambda: (
        call,
        array(2, 3, size, size, low=0.05),
        array(2, 3, size, size, seed=1, low=0.05),
    )


several(
    "piq",
    ssim=between(piq.ssim),
    ms_ssim=between(piq.multi_scale_ssim, 192),
    iw_ssim=between(piq.information_weighted_ssim, 192),
    vif=between(piq.vif_p),
    fsim=between(piq.fsim),
    gmsd=between(piq.gmsd),
    ms_gmsd=between(piq.multi_scale_gmsd),
    haar=between(piq.haarpsi),
    mdsi=between(piq.mdsi),
    vsi=between(piq.vsi),
    sr_sim=between(piq.srsim),
    dss=between(piq.dss),
    psnr=between(piq.psnr),
    total_variation=lambda: (piq.total_variation, array(2, 3, 16, 16, low=0.05)),
)
