"""Neural operators, whose layers multiply in the frequency domain."""

import torch
from models import DTYPE, array, several
from neuralop.losses import H1Loss, LpLoss
from neuralop.models import FNO


def operator(make, *shape):
    def build():
        model = make()
        with torch.no_grad():
            for number, p in enumerate(model.parameters()):
                if p.is_complex():
                    parts = [0.2 * array(*p.shape, seed=2 * number + i) for i in range(2)]
                    p.data = torch.complex(*parts)
        complex_parameters = {n: p.data for n, p in model.named_parameters() if p.is_complex()}
        real = [p for p in model.parameters() if not p.is_complex()]
        for number, p in enumerate(real):
            p.data = 0.2 * array(*p.shape, seed=100 + number).to(DTYPE)
        assert complex_parameters
        return lambda x: model(x), array(*shape)

    return build


several(
    "neuralop",
    line=operator(
        lambda: FNO(n_modes=(6,), in_channels=2, out_channels=1, hidden_channels=8, n_layers=2),
        2,
        2,
        16,
    ),
    plane=operator(
        lambda: FNO(n_modes=(6, 6), in_channels=2, out_channels=1, hidden_channels=8, n_layers=2),
        2,
        2,
        12,
        12,
    ),
    space=operator(
        lambda: FNO(
            n_modes=(4, 4, 4), in_channels=1, out_channels=1, hidden_channels=4, n_layers=2
        ),
        1,
        1,
        8,
        8,
        8,
    ),
    lp_loss=lambda: (
        lambda x, y: LpLoss(d=2, p=2)(x, y),
        array(2, 1, 8, 8),
        array(2, 1, 8, 8, seed=1),
    ),
    h1_loss=lambda: (lambda x, y: H1Loss(d=2)(x, y), array(2, 1, 8, 8), array(2, 1, 8, 8, seed=1)),
)
