"""Every module is an attribute after `import rabbet` alone."""

from typing import assert_type

import rabbet

model = rabbet.nn.Linear(3, 4)
optimizer = rabbet.optim.SGD(model.parameters(), lr=0.1)
scheduler = rabbet.optim.lr_scheduler.StepLR(optimizer, step_size=2)
averaged = rabbet.optim.swa_utils.AveragedModel(model)
x = rabbet.randn(2, 3, requires_grad=True)
assert_type(rabbet.autograd.grad(x.sum(), x), tuple[rabbet.Tensor | None, ...])
loader = rabbet.utils.data.DataLoader(rabbet.utils.data.TensorDataset(x), batch_size=2)
normal = rabbet.distributions.Normal(0.0, 1.0)
assert_type(normal.sample((2,)), rabbet.Tensor)
gradient = rabbet.func.grad(lambda t: (t * t).sum())(x)
rows = rabbet.vmap(lambda row: row @ row)(x)
scaler = rabbet.amp.GradScaler("cpu")
with rabbet.autocast("cpu", dtype=rabbet.bfloat16), rabbet.no_grad():
    y = model(x)
rabbet.linalg.inv(x)
rabbet.fft.fft(x)
rabbet.sparse.mm(x, x)
rabbet.utils.checkpoint.checkpoint(model, x, use_reentrant=False)
rabbet.save(model.state_dict(), "model.safetensors")
if rabbet.cuda.is_available():
    x = x.cuda()
rabbet.nn.functional.conv2d(rabbet.randn(1, 3, 8, 8), rabbet.randn(4, 3, 3, 3), padding=1)
rabbet.conv2d(rabbet.randn(1, 3, 8, 8), rabbet.randn(4, 3, 3, 3))


@rabbet.no_grad()
def evaluate(batch: rabbet.Tensor) -> float:
    return float(model(batch).mean())


assert_type(evaluate(x), float)
