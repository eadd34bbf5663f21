import torch
from models import array, case, filled
from torch_ema import ExponentialMovingAverage


@case("torch_ema")
def averages_of_training():
    def call(x):
        model = filled(torch.nn.Linear(4, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        average = ExponentialMovingAverage(model.parameters(), decay=0.9)
        for _ in range(5):
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
            average.update()
        with average.average_parameters():
            inside = model(x)
        return inside.detach(), model(x).detach(), average.state_dict()["shadow_params"]

    return call, array(8, 4)


@case("torch_ema")
def a_state_is_loaded():
    model = filled(torch.nn.Linear(4, 2))
    average = ExponentialMovingAverage(model.parameters(), decay=0.5)
    other = ExponentialMovingAverage(torch.nn.Linear(4, 2).parameters(), decay=0.9)
    other.load_state_dict(average.state_dict())
    other.copy_to(model.parameters())
    return model, array(3, 4)
