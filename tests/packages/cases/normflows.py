import normflows as nf
import torch
from models import array, filled, several


class Density(torch.nn.Module):
    def __init__(self, flows, size):
        super().__init__()
        self.model = nf.NormalizingFlow(nf.distributions.DiagGaussian(size), flows)

    def forward(self, x):
        return self.model.log_prob(x), self.model.forward_kld(x)


def flow(*makers, size=2):
    return lambda: (filled(Density([m() for m in makers], size)).eval(), array(6, size) * 0.5)


class Forward(torch.nn.Module):
    """A flow that has no inverse."""

    def __init__(self, flow):
        super().__init__()
        self.flow = flow

    def forward(self, x):
        return self.flow(x)


def one_way(make):
    return lambda: (filled(Forward(make())).eval(), array(6, 2))


several(
    "normflows",
    real_nvp=flow(
        lambda: nf.flows.AffineCouplingBlock(nf.nets.MLP([1, 8, 2])),
        lambda: nf.flows.Permute(2, mode="swap"),
    ),
    masked_affine=flow(
        lambda: nf.flows.MaskedAffineFlow(
            torch.tensor([1.0, 0.0]), nf.nets.MLP([2, 8, 2]), nf.nets.MLP([2, 8, 2])
        )
    ),
    planar=one_way(lambda: nf.flows.Planar((2,))),
    radial=one_way(lambda: nf.flows.Radial((2,))),
    spline=flow(lambda: nf.flows.AutoregressiveRationalQuadraticSpline(2, 1, 8, num_bins=4)),
    coupled_spline=flow(
        lambda: nf.flows.CoupledRationalQuadraticSpline(4, 1, 8, num_bins=4), size=4
    ),
    autoregressive=flow(lambda: nf.flows.MaskedAffineAutoregressive(2, 8)),
    convolution=flow(lambda: nf.flows.AffineConstFlow((2,))),
)
