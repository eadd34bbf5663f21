import torch
from models import array, filled, several
from nflows import distributions, flows, transforms
from nflows.nn.nets import ResidualNet


class Density(torch.nn.Module):
    """Log probabilities of a flow, and its samples from fixed noise."""

    def __init__(self, transform, size=4):
        super().__init__()
        self.flow = flows.Flow(transform, distributions.StandardNormal([size]))

    def forward(self, x):
        noise, jacobian = self.flow._transform(x)
        back, _ = self.flow._transform.inverse(noise.detach())
        return self.flow.log_prob(x), noise, jacobian, back


def net(i, o):
    return ResidualNet(i, o, hidden_features=8, num_blocks=1)


def flow(make, size=4, **options):
    return lambda: (filled(Density(make(), size)).eval(), array(5, size) * 0.5)


MASK = [1, 0, 1, 0]
SPLINES = {"features": 4, "hidden_features": 8, "num_blocks": 1, "num_bins": 4}
several(
    "nflows",
    masked_affine=flow(lambda: transforms.MaskedAffineAutoregressiveTransform(4, 8)),
    masked_quadratic=flow(
        lambda: transforms.MaskedPiecewiseQuadraticAutoregressiveTransform(
            tails="linear", tail_bound=3.0, **SPLINES
        )
    ),
    masked_rational=flow(
        lambda: transforms.MaskedPiecewiseRationalQuadraticAutoregressiveTransform(
            tails="linear", tail_bound=3.0, **SPLINES
        )
    ),
    affine_coupling=flow(lambda: transforms.AffineCouplingTransform(MASK, net)),
    additive_coupling=flow(lambda: transforms.AdditiveCouplingTransform(MASK, net)),
    quadratic_coupling=flow(
        lambda: transforms.PiecewiseQuadraticCouplingTransform(MASK, net, 4, tails="linear")
    ),
    rational_coupling=flow(
        lambda: transforms.PiecewiseRationalQuadraticCouplingTransform(MASK, net, 4, tails="linear")
    ),
    householder=flow(lambda: transforms.HouseholderSequence(4, 3)),
    leaky=flow(lambda: transforms.LeakyReLU()),
    tanh=flow(lambda: transforms.LogTanh()),
    cauchy=flow(lambda: transforms.CompositeTransform([transforms.Sigmoid(), transforms.Logit()])),
    reversed_order=flow(lambda: transforms.ReversePermutation(4)),
    composed=flow(
        lambda: transforms.CompositeTransform(
            [
                transforms.ReversePermutation(4),
                transforms.MaskedAffineAutoregressiveTransform(4, 8),
                transforms.LULinear(4),
            ]
        )
    ),
)
