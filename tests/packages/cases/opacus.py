import torch
from models import array, case, filled, integers, several
from opacus import GradSampleModule, PrivacyEngine
from opacus.accountants import GaussianAccountant, RDPAccountant
from opacus.accountants.utils import get_noise_multiplier
from opacus.layers import DPGRU, DPLSTM, DPRNN, DPMultiheadAttention
from opacus.optimizers import DPOptimizer
from opacus.validators import ModuleValidator


class First(torch.nn.Module):
    """The first result of a module."""

    def __init__(self, inner, *more):
        super().__init__()
        self.inner, self.more = inner, more

    def forward(self, x):
        return self.inner(x, *[x for _ in self.more])[0]


def per_sample(make, *inputs, **options):
    """Gradients of each sample, of all parameters."""

    def call(*inputs):
        model = GradSampleModule(filled(make()), **options)
        model(*inputs).square().sum().backward()
        return [p.grad_sample for p in model.parameters()]

    return lambda: (call, *inputs)


nn = torch.nn
several(
    "opacus",
    linear=per_sample(lambda: nn.Linear(4, 3), array(5, 4)),
    linear_of_sequences=per_sample(lambda: nn.Linear(4, 3), array(5, 6, 4)),
    conv_1d=per_sample(lambda: nn.Conv1d(3, 4, 3, padding=1), array(5, 3, 8)),
    conv_2d=per_sample(lambda: nn.Conv2d(2, 4, 3, stride=2, groups=2), array(5, 2, 8, 8)),
    conv_3d=per_sample(lambda: nn.Conv3d(2, 3, 2), array(3, 2, 4, 4, 4)),
    embedding=per_sample(lambda: nn.Embedding(9, 4), integers(9, 5, 3)),
    layer_norm=per_sample(lambda: nn.LayerNorm(4), array(5, 6, 4)),
    group_norm=per_sample(lambda: nn.GroupNorm(2, 4), array(5, 4, 6)),
    instance_norm=per_sample(lambda: nn.InstanceNorm1d(4, affine=True), array(5, 4, 6)),
    network=per_sample(
        lambda: nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, 3)),
        array(5, 1, 8, 8),
    ),
    by_functorch=per_sample(
        lambda: nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3)),
        array(5, 4),
        force_functorch=True,
    ),
    rnn=per_sample(lambda: First(DPRNN(4, 6, batch_first=True)), array(5, 7, 4)),
    gru=per_sample(lambda: First(DPGRU(4, 6, batch_first=True)), array(5, 7, 4)),
    lstm=per_sample(lambda: First(DPLSTM(4, 6, batch_first=True)), array(5, 7, 4)),
    attention=per_sample(lambda: First(DPMultiheadAttention(8, 2), 1, 2), array(5, 3, 8)),
)


def private(x, noise=0.0, **options):
    model = filled(nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    data = torch.utils.data.TensorDataset(x.detach(), x.detach().sum(1, keepdim=True))
    engine = PrivacyEngine()
    model, optimizer, loader = engine.make_private(
        module=model,
        optimizer=optimizer,
        data_loader=torch.utils.data.DataLoader(data, batch_size=4),
        noise_multiplier=noise,
        max_grad_norm=0.5,
        poisson_sampling=False,
        **options,
    )
    losses = []
    for inputs, targets in loader:
        optimizer.zero_grad()
        loss = (model(inputs) - targets).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return engine, losses, [p.detach() for p in model.parameters()]


@case("opacus")
def clipped_steps():
    return lambda x: private(x)[1:], array(16, 4)


@case("opacus")
def clipped_by_layer():
    return lambda x: private_by_layer(x), array(16, 4)


def private_by_layer(x):
    model = GradSampleModule(filled(nn.Linear(4, 1)))
    optimizer = DPOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1),
        noise_multiplier=0.0,
        max_grad_norm=0.1,
        expected_batch_size=4,
    )
    for inputs in x.detach().split(4):
        optimizer.zero_grad()
        model(inputs).square().mean().backward()
        optimizer.step()
    return [p.detach() for p in model.parameters()]


@case("opacus")
def the_budget_that_is_spent():
    def call(x):
        engine, *_ = private(x, noise=1.1)
        found = [engine.get_epsilon(1e-5)]
        for accountant in (RDPAccountant(), GaussianAccountant()):
            for _ in range(20):
                accountant.step(noise_multiplier=1.2, sample_rate=0.05)
            found.append(accountant.get_epsilon(1e-5))
        noise = get_noise_multiplier(
            target_epsilon=3.0, target_delta=1e-5, sample_rate=0.1, epochs=2, accountant="rdp"
        )
        return [*found, noise]

    return call, array(16, 4)


@case("opacus")
def modules_are_validated():
    model = nn.Sequential(nn.Conv2d(3, 32, 3), nn.BatchNorm2d(32), nn.ReLU())
    assert ModuleValidator.validate(model)
    fixed = ModuleValidator.fix(model)
    assert isinstance(fixed[1], nn.GroupNorm) and not ModuleValidator.validate(fixed)
    return filled(fixed), array(2, 3, 8, 8)
