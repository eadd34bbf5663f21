import os
import tempfile

import torch
from accelerate import Accelerator, init_empty_weights, load_checkpoint_and_dispatch
from accelerate.state import AcceleratorState
from accelerate.utils import compute_module_sizes, find_tied_parameters, set_seed
from models import array, case, filled, several


def network():
    return filled(
        torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
    )


def loader(x):
    data = torch.utils.data.TensorDataset(x.detach(), x.detach().sum(1, keepdim=True))
    return torch.utils.data.DataLoader(data, batch_size=4)


def prepared(accelerator, x, lr=1e-2):
    model = network()
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr, eps=1e-3)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 8)
    return accelerator.prepare(model, optimizer, loader(x), scheduler)


def epoch(accelerator, model, optimizer, batches, scheduler, clip=None):
    losses = []
    for x, y in batches:
        with accelerator.accumulate(model):
            loss = (model(x) - y).square().mean()
            accelerator.backward(loss)
            if clip is not None and accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), clip)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
        losses.append(loss.detach())
    return losses


def trained(clip=None, **options):
    def call(x):
        accelerator = Accelerator(cpu=True, **options)
        parts = prepared(accelerator, x)
        losses = [epoch(accelerator, *parts, clip) for _ in range(2)]
        parameters = [p.detach() for p in accelerator.unwrap_model(parts[0]).parameters()]
        return losses, parameters, parts[3].get_last_lr()

    return lambda: (call, array(16, 4))


several(
    "accelerate",
    trained=trained(),
    accumulated=trained(gradient_accumulation_steps=2),
    clipped=trained(clip=0.1),
)


@case("accelerate")
def bfloat16_autocast():
    def call(x):
        AcceleratorState._reset_state(reset_partial_state=True)
        accelerator = Accelerator(cpu=True, mixed_precision="bf16")
        model = accelerator.prepare(network().float())
        found = model(x.detach().float())
        assert found.dtype == torch.float32, found.dtype
        AcceleratorState._reset_state(reset_partial_state=True)
        return torch.tensor(float((found - network().float()(x.float())).abs().max() < 0.1))

    return call, array(16, 4)


@case("accelerate")
def a_saved_state_is_loaded():
    def call(x):
        with tempfile.TemporaryDirectory() as folder:
            accelerator = Accelerator(cpu=True)
            parts = prepared(accelerator, x)
            epoch(accelerator, *parts)
            accelerator.save_state(folder)
            first = epoch(accelerator, *parts)
            accelerator.load_state(folder)
            second = epoch(accelerator, *parts)
        assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
        return second

    return call, array(16, 4)


@case("accelerate")
def a_saved_model_is_dispatched():
    with tempfile.TemporaryDirectory() as folder:
        accelerator = Accelerator(cpu=True)
        accelerator.save_model(network(), folder)
        with init_empty_weights():
            empty = torch.nn.Sequential(
                torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1)
            )
        assert all(p.device.type == "meta" for p in empty.parameters())
        model = load_checkpoint_and_dispatch(
            empty, os.path.join(folder, "model.safetensors"), device_map={"": "cpu"}
        )
    return model, array(16, 4)


@case("accelerate")
def sizes_and_ties():
    def call():
        model = network()
        tied = torch.nn.ModuleDict({"a": torch.nn.Linear(3, 3), "b": torch.nn.Linear(3, 3)})
        tied["b"].weight = tied["a"].weight
        assert find_tied_parameters(tied) == [["a.weight", "b.weight"]]
        return list(compute_module_sizes(model).values())

    return (call,)


@case("accelerate")
def gathered():
    def call(x):
        accelerator = Accelerator(cpu=True)
        set_seed(3)
        found = accelerator.gather_for_metrics({"x": x.detach(), "y": [x.detach() * 2]})
        return found, accelerator.reduce(x.detach(), "sum"), accelerator.num_processes

    return call, array(4, 4)
