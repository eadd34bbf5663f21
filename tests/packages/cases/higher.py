import higher
import torch
from models import array, filled, several

OPTIMIZERS = {
    "sgd": (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9}), "adam": (torch.optim.Adam, {"lr": 0.1, "eps": 1e-3}),
    "rmsprop": (torch.optim.RMSprop, {"lr": 0.05, "eps": 1e-3}),
    "adagrad": (torch.optim.Adagrad, {"lr": 0.1}), "adadelta": (torch.optim.Adadelta, {"lr": 0.5}),
}  # fmt: skip


def through_steps(kind, options):
    """Gradients of a loss after three steps, for the parameters before them."""

    def made():
        def call(x):
            net = [torch.nn.Linear(4, 6), torch.nn.Tanh(), torch.nn.Linear(6, 1)]
            model = filled(torch.nn.Sequential(*net))
            optimizer = kind(model.parameters(), **options)
            with higher.innerloop_ctx(model, optimizer, copy_initial_weights=False) as (
                inner,
                steps,
            ):
                for _ in range(3):
                    steps.step(inner(x).square().mean())
                loss = inner(x).sum()
                found = torch.autograd.grad(loss, list(model.parameters()), retain_graph=True)
            return loss, [g.detach() for g in found]

        return (call, array(5, 4))

    return made


several("higher", **{name: through_steps(*given) for name, given in OPTIMIZERS.items()})
