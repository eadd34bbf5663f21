from models import several, trained
from prodigyopt import Prodigy

several(
    "prodigyopt",
    plain=trained(Prodigy),
    safeguarded=trained(Prodigy, safeguard_warmup=True, use_bias_correction=True),
    decayed=trained(Prodigy, weight_decay=0.1, slice_p=2),
)
