"""Training steps and forward passes as graphs and replayed, beside the eager programs of rabbet and torch."""

import rabbet.graph
from common import finish, side_by_side, torch_or_none
from training import gpt, library


def tiny_mlp(t, nn, optim, **options):
    """64-64-64-10, batch 32, Adam."""
    model = nn.Sequential(
        nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 10)
    )
    optimizer = optim.Adam(model.parameters(), **options)
    return model, t.randn(32, 64), t.randint(0, 10, (32,)), optimizer


def tiny_gpt(t, nn, optim, **options):
    """2 layers, 32 wide, batch 4 of 16 tokens, AdamW."""
    return gpt(t, nn, optim, width=32, depth=2, batch=4, length=16, **options)


def small_gpt(t, nn, optim, **options):
    """4 layers, 128 wide, batch 8 of 64 tokens, AdamW."""
    return gpt(t, nn, optim, width=128, batch=8, length=64, **options)


CASES = {
    "MLP 64-64-64-10, batch 32, Adam": tiny_mlp,
    "GPT 2 x 32, batch 4 x 16, AdamW": tiny_gpt,
    "GPT 4 x 128, batch 8 x 64, AdamW": small_gpt,
}


def step_of(make, modules, **options):
    """A training step, and the objects that it changes."""
    t, nn, optim = modules
    t.manual_seed(0)
    model, x, y, optimizer = make(t, nn, optim, **options)
    loss_of = nn.CrossEntropyLoss()

    def step(x, y):
        loss = loss_of(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    step(x, y)
    return step, (x, y), [model, optimizer]


def rows(torch):
    """All measurements."""
    modules = library("rabbet")
    for what, make in CASES.items():
        step, data, (model, _) = step_of(make, modules)
        counted, other, state = step_of(make, modules, capturable=True)
        graph = rabbet.graph.capture(counted, *other, state=state)
        plain, inputs, _ = step_of(make, modules)
        replayed = rabbet.compile(plain)
        for _ in range(4):
            replayed(*inputs)
        steps = {
            "eager": lambda f=step, a=data: f(*a),
            "graph": lambda g=graph, a=other: g.run(*a),
            "replay": lambda f=replayed, a=inputs: f(*a),
        }
        if torch:
            theirs, tensors, _ = step_of(make, library("torch"))
            steps["torch"] = lambda f=theirs, a=tensors: f(*a)
        times = side_by_side(steps, 15, 0.1)
        for how in ("eager", "graph", "replay"):
            yield {
                "what": f"step of {what}: {how}",
                "rabbet": times[how],
                "torch": times.get("torch"),
            }
        with rabbet.no_grad():
            forward = rabbet.graph.capture(model, data[0])
            compiled = rabbet.compile(model)
            for _ in range(4):
                compiled(data[0])
            times = side_by_side(
                {
                    "eager": lambda m=model, x=data[0]: m(x),
                    "graph": lambda g=forward, x=data[0]: g.run(x),
                    "replay": lambda m=compiled, x=data[0]: m(x),
                }
            )
        for how, seconds in times.items():
            yield {"what": f"forward of {what}: {how}", "rabbet": seconds}


if __name__ == "__main__":
    finish("graphs", "Graphs", list(rows(torch_or_none())))
