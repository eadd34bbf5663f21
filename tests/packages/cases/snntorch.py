import snntorch as snn
import torch
from models import array, case, filled, integers, several
from snntorch import functional as SF
from snntorch import surrogate, utils


class Spiking(torch.nn.Module):
    """Spikes and potentials of one layer for a sequence."""

    def __init__(self, neuron):
        super().__init__()
        self.inputs, self.neuron = torch.nn.Linear(4, 6), neuron

    def forward(self, x):
        utils.reset(self)
        state, found = None, []
        for step in x:
            current = self.inputs(step)
            state = self.neuron(current) if state is None else self.neuron(current, *state[1:])
            found.append(torch.stack([state[0], state[-1]]))
        return torch.stack(found)


def spikes(make):
    def made():
        layer = Spiking(make())
        filled(layer.inputs)
        return layer.to(torch.float64), array(7, 3, 4) * 2

    return made


class Stateful(torch.nn.Module):
    def __init__(self, neuron):
        super().__init__()
        self.inputs, self.neuron = filled(torch.nn.Linear(4, 6)), neuron.to(torch.float64)

    def forward(self, x):
        utils.reset(self)
        return torch.stack([self.neuron(self.inputs(step)) for step in x])


def stateful(make):
    return lambda: (Stateful(make()), array(7, 3, 4) * 2)


def lossy(loss):
    return lambda: (lambda x: loss(x, integers(6, 3)), array(7, 3, 6, low=0.0))


LOSSES = {
    "rate": SF.ce_rate_loss(),
    "count": SF.ce_count_loss(),
    "count_mse": SF.mse_count_loss(0.8, 0.2),
}
several(
    "snntorch",
    leaky=spikes(lambda: snn.Leaky(0.9, spike_grad=surrogate.fast_sigmoid())),
    leaky_learned=spikes(lambda: snn.Leaky(0.9, learn_beta=True, learn_threshold=True)),
    leaky_to_zero=spikes(lambda: snn.Leaky(0.9, reset_mechanism="zero")),
    synaptic=spikes(lambda: snn.Synaptic(0.8, 0.9)),
    alpha=spikes(lambda: snn.Alpha(0.9, 0.8)),
    lapicque=spikes(lambda: snn.Lapicque(0.9)),
    hidden=stateful(lambda: snn.Leaky(0.9, init_hidden=True, spike_grad=surrogate.atan())),
    straight_through=stateful(
        lambda: snn.Leaky(0.9, init_hidden=True, spike_grad=surrogate.straight_through_estimator())
    ),
    triangular=stateful(
        lambda: snn.Leaky(0.9, init_hidden=True, spike_grad=surrogate.triangular())
    ),
    **{name: lossy(loss) for name, loss in LOSSES.items()},
)


@case("snntorch")
def accuracies():
    spikes = (array(7, 3, 6) > 0.5).double()
    return (
        lambda: [
            SF.accuracy_rate(spikes, integers(6, 3)),
            SF.accuracy_temporal(spikes, integers(6, 3)),
        ],
    )
