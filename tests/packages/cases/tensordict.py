import tempfile

import torch
from models import array, case, filled
from tensordict import MemoryMappedTensor, TensorDict, tensorclass
from tensordict.nn import TensorDictModule, TensorDictSequential


@tensorclass
class Points:
    place: torch.Tensor
    weight: torch.Tensor


@case("tensordict")
def shapes_and_indices():
    def call(x):
        whole = TensorDict({"a": x, "b": {"c": x * 2}}, batch_size=[4])
        part = whole[1:3].clone()
        part["a"] = part["a"] + 1
        stacked, joined = torch.stack([whole, whole], 0), torch.cat([whole, whole], 0)
        summed = whole.reshape(2, 2).apply(lambda t: t.sum(-1))
        picked = whole.gather(0, torch.tensor([1, 0]))
        flat = whole.flatten_keys(".")
        return (
            part["a"], stacked["b", "c"], joined["a"], summed["a"], picked["a"], flat["b.c"],
            whole.split(2)[1]["a"], whole.to(torch.float32)["a"], whole.unsqueeze(1)["b", "c"],
        )  # fmt: skip

    return (call, array(4, 3))


@case("tensordict")
def arithmetic():
    def call(x):
        a = TensorDict({"x": x, "y": x.exp()}, batch_size=[4])
        b = a * 2 + a
        return b["x"], b["y"], a.mean(dim=0)["x"], (a - b).abs()["y"], a.lerp(b, 0.25)["x"]

    return (call, array(4, 3))


@case("tensordict")
def modules():
    net = filled(torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 2)))
    chain = TensorDictSequential(
        TensorDictModule(net[0], in_keys=["x"], out_keys=["h"]),
        TensorDictModule(net[1:], in_keys=["h"], out_keys=["y"]),
    )

    class Called(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.chain = chain

        def forward(self, x):
            found = self.chain(TensorDict({"x": x}, batch_size=[x.shape[0]]))
            return found["h"], found["y"]

    return (Called(), array(4, 3))


@case("tensordict")
def parameters_of_a_module():
    net = filled(torch.nn.Linear(3, 2))

    def call(x):
        params = TensorDict.from_module(net)
        doubled = params.apply(lambda t: t * 2)
        with doubled.to_module(net):
            found = net(x)
        return found, net(x), doubled["weight"]

    return (call, array(4, 3))


@case("tensordict")
def classes():
    def call(x):
        points = Points(place=x, weight=x[:, 0], batch_size=[4])
        both = torch.stack([points, points])
        return points[:2].place, (points + 1).weight, both.place, points.reshape(2, 2).weight

    return (call, array(4, 3))


@case("tensordict")
def files_and_state():
    def call(x):
        whole = TensorDict({"a": x.detach(), "b": {"c": x.detach() * 2}}, batch_size=[4])
        with tempfile.TemporaryDirectory() as folder:
            whole.memmap(folder)
            again = TensorDict.load_memmap(folder)
            assert isinstance(again["a"], MemoryMappedTensor)
            found = [again["a"].clone(), again["b", "c"].clone()]
        other = TensorDict({"a": torch.zeros(4, 3), "b": {"c": torch.zeros(4, 3)}}, batch_size=[4])
        other.load_state_dict(whole.state_dict())
        return found, other["b", "c"]

    return (call, array(4, 3))
