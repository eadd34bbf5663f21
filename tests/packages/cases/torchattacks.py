import torch
import torchattacks
from models import array, filled, integers, several

LABELS = integers(5, 4)


def network():
    layers = [torch.nn.Conv2d(3, 4, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(144, 5)]  # fmt: skip
    return filled(torch.nn.Sequential(*layers)).eval()


def attacked(name, **options):
    def made():
        def call(x):
            return getattr(torchattacks, name)(network(), **options)(x.detach(), LABELS)

        return (call, array(4, 3, 8, 8, low=0.0))

    return made


ATTACKS = {
    "FGSM": {}, "BIM": {}, "CW": {"steps": 5}, "PGD": {"steps": 3, "random_start": False},
    "PGDL2": {"steps": 3, "random_start": False}, "EOTPGD": {"steps": 2, "random_start": False},
    "MIFGSM": {"steps": 3}, "NIFGSM": {"steps": 3}, "SINIFGSM": {"steps": 3}, "UPGD": {"steps": 3},
    "DeepFool": {"steps": 5}, "SparseFool": {"steps": 3}, "GN": {"std": 0.0},
}  # fmt: skip
several("torchattacks", **{name: attacked(name, **options) for name, options in ATTACKS.items()})
