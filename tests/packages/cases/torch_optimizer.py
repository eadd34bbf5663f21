import torch_optimizer as o
from models import several, trained

NAMES = (
    "A2GradExp", "A2GradInc", "A2GradUni", "AccSGD", "AdaBelief", "AdaBound", "AdaMod", "AdamP", "AggMo", "Apollo",
    "DiffGrad", "Lamb", "LARS", "MADGRAD", "NovoGrad", "PID", "QHAdam", "QHM", "RAdam", "Ranger", "RangerQH", "RangerVA",
    "SGDP", "SGDW", "SWATS", "Yogi",
)  # fmt: skip
NEEDED = {"A2GradExp": {}, "Apollo": {"lr": 0.01}}

several(
    "torch_optimizer",
    **{name: trained(getattr(o, name), **NEEDED.get(name, {})) for name in NAMES},
    lookahead=trained(lambda p: o.Lookahead(o.Yogi(p, lr=1e-2), k=3)),
)
