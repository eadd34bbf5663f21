"""Operators, methods, indices and conversions of tensors."""

from typing import assert_type

import rabbet
from rabbet import Tensor

x = rabbet.randn(2, 3)
n = rabbet.tensor([[1, 2], [3, 4]], dtype=rabbet.int64)
assert_type(-x + 1, Tensor)
assert_type(2.0 * x - x / 3 + 2**x, Tensor)
assert_type(1 - x, Tensor)
assert_type(x @ x.t(), Tensor)
assert_type((x > 0) & (x < 1), Tensor)
assert_type(~(x == 0), Tensor)
assert_type(n // 2 % 3 << 1, Tensor)
x += 1
x *= x
assert_type(x[0], Tensor)
assert_type(x[:, 1:], Tensor)
assert_type(x[..., None], Tensor)
assert_type(x[x > 0], Tensor)
x[0] = 0
x[:, 1] = x[:, 0]
assert_type(x.shape[0], int)
assert_type(x.size(0), int)
batch, features = x.shape
assert_type(features, int)
assert_type(x.dtype, rabbet.dtype)
assert_type(x.device, rabbet.device)
assert_type(len(x), int)
assert_type(float(x.mean()), float)
assert_type(x.view(3, 2), Tensor)
assert_type(x.view((3, 2)), Tensor)
assert_type(x.reshape(-1), Tensor)
assert_type(x.permute(1, 0), Tensor)
assert_type(x.transpose(0, 1), Tensor)
assert_type(x.to(rabbet.float64).to("cpu"), Tensor)
assert_type(x.float().double().half(), Tensor)
assert_type(x.clone().detach().requires_grad_(), Tensor)
assert_type(x.masked_fill(x > 0, 0.0), Tensor)
assert_type(x.sum(), Tensor)
assert_type(x.sum(0), Tensor)
assert_type(x.sum(dim=(0, 1), keepdim=True, dtype=rabbet.float64), Tensor)
assert_type(x.std(), Tensor)
values, indices = x.max(dim=1)
assert_type(values, Tensor)
top = rabbet.topk(x, 2)
assert_type(top.indices, Tensor)
assert_type(rabbet.where(x > 0, x, 0.0), Tensor)
assert_type(rabbet.zeros(2, 3), Tensor)
assert_type(rabbet.zeros((2, 3), dtype=rabbet.float32, device="cpu"), Tensor)
assert_type(rabbet.full((2,), 1.5), Tensor)
assert_type(rabbet.randint(0, 10, (3,)), Tensor)
assert_type(rabbet.linspace(0, 1, 5), Tensor)
assert_type(rabbet.einsum("ij,jk->ik", x, x.t()), Tensor)
for row in x:
    assert_type(row, Tensor)
if x.grad is not None:
    assert_type(x.grad.norm(), Tensor)
a, b = rabbet.split(x, 1)
assert_type(a, Tensor)
