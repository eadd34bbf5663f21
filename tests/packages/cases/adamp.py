from adamp import SGDP, AdamP
from models import several, trained

several(
    "adamp",
    adam=trained(AdamP, lr=1e-2, weight_decay=0.01),
    adam_nesterov=trained(AdamP, lr=1e-2, nesterov=True),
    sgd=trained(SGDP, lr=0.1, momentum=0.9, weight_decay=0.01),
)
