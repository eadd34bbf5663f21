import pytorch_optimizer as o
from models import several, trained

NAMES = (
    "A2Grad", "AdaBelief", "AdaBound", "AdaDelta", "AdaFactor", "AdaHessian", "AdaMax", "AdaMod", "AdaNorm", "AdaPNM",
    "AdaSmooth", "AdaTAM", "ADOPT", "AdamC", "AdamMini", "AdamP", "AdamS", "AdEMAMix", "Adai", "Adan", "AggMo", "Aida",
    "AvaGrad", "AccSGD", "ASGD", "CAME", "DAdaptAdam", "DAdaptSGD", "DiffGrad", "Fromage", "FTRL", "Grams",
    "Kate", "Lamb", "LARS", "Lion", "MADGRAD", "MARS", "NovoGrad", "PAdam", "PID", "PNM", "Prodigy", "QHAdam",
    "QHM", "RACS", "Ranger", "Ranger21", "SGDP", "SGDW", "SignSGD", "SM3", "SRMM", "StableAdamW", "SWATS", "Tiger",
    "VSGD", "Yogi",
)  # fmt: skip
OPTIONS = {"Ranger21": {"num_iterations": 20}, "AdamMini": None, "AdaHessian": None, "Adai": {}}


several(
    "pytorch_optimizer",
    **{
        name: trained(getattr(o, name), **OPTIONS.get(name, {}))
        for name in NAMES
        if hasattr(o, name) and OPTIONS.get(name, {}) is not None
    },
)
