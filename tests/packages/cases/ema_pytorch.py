import torch
from ema_pytorch import EMA
from models import array, filled, several


def averaged(make):
    def call(x):
        model = filled(torch.nn.Linear(4, 2))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        average = make(model)
        for _ in range(8):
            optimizer.zero_grad()
            model(x.detach()).square().mean().backward()
            optimizer.step()
            average.update()
        return average(x.detach()).detach(), [p.detach() for p in average.parameters()]

    return lambda: (call, array(8, 4))


several(
    "ema_pytorch",
    plain=averaged(lambda m: EMA(m, beta=0.9, update_after_step=2, update_every=1)),
    powered=averaged(lambda m: EMA(m, power=0.75, update_every=2, update_after_step=0)),
    switched=averaged(lambda m: EMA(m, beta=0.9, update_model_with_ema_every=3)),
)
