from lion_pytorch import Lion
from models import several, trained

several(
    "lion_pytorch",
    plain=trained(Lion, lr=1e-2),
    decayed=trained(Lion, lr=1e-2, weight_decay=0.1),
    decoupled=trained(Lion, lr=1e-2, weight_decay=0.1, decoupled_weight_decay=True),
    betas=trained(Lion, lr=1e-2, betas=(0.95, 0.98)),
)
