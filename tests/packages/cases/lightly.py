import lightly.loss as losses
import torch
from lightly.models import utils
from lightly.models.modules import heads
from models import array, case, filled, several


def compared(make):
    return lambda: (lambda a, b: make()(a, b), array(5, 6), array(5, 6, seed=1))


NAMES = ("NTXentLoss", "BarlowTwinsLoss", "NegativeCosineSimilarity", "VICRegLoss", "DCLLoss", "DCLWLoss")  # fmt: skip
several("lightly", **{name: compared(getattr(losses, name)) for name in NAMES})
several(
    "lightly",
    dino=lambda: (
        lambda a, b: losses.DINOLoss(output_dim=6).to(torch.float64)(
            [a, b], [b, a, a * 2], epoch=1
        ),
        array(5, 6),
        array(5, 6, seed=1),
    ),
    swav=lambda: (
        lambda a, b: losses.SwaVLoss()([a, b], [a * 2]),
        array(5, 6),
        array(5, 6, seed=1),
    ),
    masked_siamese=lambda: (
        lambda a, b: losses.MSNLoss()(a, b, array(4, 6, seed=2)),
        array(5, 6),
        array(5, 6, seed=1),
    ),
    simclr_head=lambda: (filled(heads.SimCLRProjectionHead(6, 8, 4)), array(4, 6)),
    byol_heads=lambda: (
        filled(
            torch.nn.Sequential(
                heads.BYOLProjectionHead(6, 8, 4), heads.BYOLPredictionHead(4, 8, 4)
            )
        ),
        array(4, 6),
    ),
    dino_head=lambda: (filled(heads.DINOProjectionHead(6, 8, 6, 5)).eval(), array(4, 6)),
)


@case("lightly")
def parts_of_masked_models():
    def call(tokens):
        places = torch.tensor([[0, 2], [1, 3]])
        token = array(1, 1, 3, seed=1)
        return (
            utils.get_at_index(tokens, places),
            utils.mask_at_index(tokens, places, token),
            utils.set_at_index(tokens, places, array(2, 2, 3, seed=2)),
            utils.patchify(array(1, 3, 8, 8), 4),
        )

    return (call, array(2, 5, 3))


@case("lightly")
def momentum():
    def call():
        online, target = (filled(torch.nn.Linear(3, 2)) for _ in range(2))
        with torch.no_grad():
            target.weight.mul_(2)
        utils.deactivate_requires_grad(target)
        utils.update_momentum(online, target, m=0.9)
        return list(target.parameters())

    return (call,)
