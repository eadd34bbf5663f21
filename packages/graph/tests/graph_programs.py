"""Random programs for captures: the same steps on the same tensors, eagerly and in a graph."""

import functools
import random

import rabbet
from rabbet.graph import cond, while_loop

UNARY = ["sin", "exp", "tanh", "relu", "sigmoid", "abs", "neg", "square", "erf", "floor"]
BINARY = ["add", "mul", "sub", "maximum", "minimum"]


def _shapes_agree(a, b):
    return a.shape == b.shape and a.dtype == b.dtype


class Program:
    """A list of steps. Each takes the list of tensors that are there and appends to it, or writes one of them."""

    def __init__(self, seed: int, length: int = 14, control: bool = True) -> None:
        self.rng = random.Random(seed)
        self.length = length
        self.control = control
        self.shape = (self.rng.randint(2, 4), self.rng.randint(2, 5))
        self.ninputs = self.rng.randint(1, 3)
        self.steps = self._make()

    def inputs(self, seed: int):
        g = rabbet.Generator().manual_seed(seed)
        made = [rabbet.randn(*self.shape, generator=g) for _ in range(self.ninputs)]
        if self.ninputs > 2:
            made[2] = made[2].t().contiguous().t()
        return made

    def __call__(self, *inputs):
        values = list(inputs)
        for step in self.steps:
            step(values)
        return {"all": values[len(inputs) :], "last": values[-1]}

    # ---- steps

    def _make(self):
        """Draw the steps while running them, so that every step fits the tensors that are there."""
        values = self.inputs(0)
        kinds = [
            self._unary, self._binary, self._number, self._write, self._write_view, self._view, self._reduce,
            self._random, self._out, self._matmul, self._index, self._join, self._cast, self._where, self._data,
            self._gradient, self._set_item,
        ]  # fmt: skip
        if self.control:
            kinds += [self._branch, self._loop]
        steps = []
        while len(steps) < self.length:
            step = self.rng.choice(kinds)(values)
            if step is None:
                continue
            before = len(values)
            step(values)
            steps.append(step)
            if len(values) > before and not all(
                bool(v.isfinite().all()) for v in values[before:] if v.is_floating_point()
            ):
                for i in range(before, len(values)):
                    if values[i].is_floating_point():
                        values[i].nan_to_num_(0.5, 1.0, -1.0)
                steps.append(functools.partial(_tame, a=before, b=len(values)))
        return steps

    def _pick(self, values, test=lambda t: True):
        found = [i for i, t in enumerate(values) if test(t)]
        return self.rng.choice(found) if found else None

    def _floats(self, values):
        return self._pick(values, lambda t: t.is_floating_point())

    def _pair(self, values):
        i = self._floats(values)
        if i is None:
            return None
        j = self._pick(values, lambda t: _shapes_agree(t, values[i]))
        return (i, j)

    def _unary(self, values):
        i, name = self._floats(values), self.rng.choice(UNARY)
        return lambda vs: vs.append(getattr(vs[i], name)())

    def _binary(self, values):
        (i, j), name = self._pair(values), self.rng.choice(BINARY)
        return lambda vs: vs.append(getattr(rabbet, name)(vs[i], vs[j]))

    def _number(self, values):
        i, c = self._floats(values), round(self.rng.uniform(-2, 2), 2)
        return self.rng.choice(
            [
                lambda vs: vs.append(vs[i] * c + 1),
                lambda vs: vs.append(c - vs[i]),
                lambda vs: vs.append(vs[i].clamp(-1, 1)),
            ]
        )

    def _write(self, values):
        i, j = self._pair(values)
        c = round(self.rng.uniform(-1, 1), 2)
        return self.rng.choice(
            [
                lambda vs: vs[i].mul_(c),
                lambda vs: vs[i].add_(vs[j].clone(), alpha=c),
                lambda vs: vs[i].tanh_(),
                lambda vs: vs[i].copy_(vs[j]) if i != j else vs[i].zero_(),
                lambda vs: vs[i].fill_(c),
            ]
        )

    def _write_view(self, values):
        i = self._pick(values, lambda t: t.is_floating_point() and t.ndim == 2 and t.shape[0] > 1)
        if i is None:
            return None
        c = round(self.rng.uniform(-1, 1), 2)
        return self.rng.choice(
            [
                lambda vs: vs[i][1:].mul_(c),
                lambda vs: vs[i].t()[0].add_(c),
                lambda vs: vs[i].select(1, 0).sin_(),
                lambda vs: vs[i].diagonal().fill_(c),
                lambda vs: vs[i].view(-1)[:2].neg_() if vs[i].is_contiguous() else vs[i][:1].neg_(),
            ]
        )

    def _set_item(self, values):
        i = self._pick(values, lambda t: t.is_floating_point() and t.ndim == 2)
        if i is None:
            return None
        c = round(self.rng.uniform(-1, 1), 2)
        return self.rng.choice(
            [lambda vs: vs[i].__setitem__(0, c), lambda vs: vs[i].__setitem__((slice(None), 0), c)]
        )

    def _view(self, values):
        i = self._pick(values, lambda t: t.ndim == 2)
        if i is None:
            return None
        return self.rng.choice(
            [
                lambda vs: vs.append(vs[i].t()),
                lambda vs: vs.append(vs[i][:, :2]),
                lambda vs: vs.append(vs[i].reshape(-1)),
                lambda vs: vs.append(vs[i].unsqueeze(0).squeeze(0)),
                lambda vs: vs.append(vs[i].flatten().view(vs[i].shape)),
                lambda vs: vs.extend(vs[i].split(2)),
                lambda vs: vs.append(vs[i].contiguous()),
                lambda vs: vs.append(vs[i].detach()),
                lambda vs: vs.append(vs[i].expand(2, *vs[i].shape).sum(0)),
            ]
        )

    def _reduce(self, values):
        i = self._pick(values, lambda t: t.is_floating_point() and t.ndim == 2 and t.numel() > 0)
        if i is None:
            return None
        return self.rng.choice(
            [
                lambda vs: vs.append(vs[i].sum(0)),
                lambda vs: vs.append(vs[i].mean()),
                lambda vs: vs.extend(vs[i].max(dim=1)),
                lambda vs: vs.append(vs[i].softmax(-1)),
                lambda vs: vs.append(vs[i].cumsum(0)),
                lambda vs: vs.append(vs[i].var(0, correction=0)),
                lambda vs: vs.append(rabbet.linalg.vector_norm(vs[i])),
            ]
        )

    def _random(self, values):
        i = self._floats(values)
        return self.rng.choice(
            [
                lambda vs: vs.append(rabbet.rand(*self.shape)),
                lambda vs: vs.append(rabbet.randn_like(vs[i])),
                lambda vs: vs.append(rabbet.nn.functional.dropout(vs[i], 0.3)),
                lambda vs: vs[i].uniform_(-1, 1),
            ]
        )

    def _out(self, values):
        i, j = self._pair(values)
        k = self._pick(values, lambda t: _shapes_agree(t, values[i]))
        if len({i, j, k}) < 3 or _overlap(values[k], values[i]) or _overlap(values[k], values[j]):
            return None
        return lambda vs: rabbet.add(vs[i], vs[j], out=vs[k])

    def _matmul(self, values):
        i = self._pick(values, lambda t: t.dtype == rabbet.float32 and t.ndim == 2)
        if i is None:
            return None
        return lambda vs: vs.append((vs[i] @ vs[i].t()) / 4)

    def _index(self, values):
        i = self._pick(values, lambda t: t.ndim == 2 and t.shape[0] > 1)
        if i is None:
            return None
        at = [self.rng.randrange(values[i].shape[0]) for _ in range(3)]
        return self.rng.choice(
            [
                lambda vs: vs.append(vs[i][at]),
                lambda vs: vs.append(vs[i].index_select(0, rabbet.tensor(at))),
                lambda vs: vs.append(vs[i].flip(0)),
            ]
        )

    def _join(self, values):
        i, j = self._pair(values)
        if values[i].ndim == 0:
            return lambda vs: vs.append(rabbet.stack([vs[i], vs[j]]))
        return lambda vs: vs.append(rabbet.cat([vs[i], vs[j]]))

    def _cast(self, values):
        i, dtype = (
            self._floats(values),
            self.rng.choice([rabbet.float64, rabbet.bfloat16, rabbet.int32]),
        )
        return lambda vs: vs.append(vs[i].clamp(-9, 9).to(dtype))

    def _where(self, values):
        i, j = self._pair(values)
        return lambda vs: vs.append(rabbet.where(vs[i] > 0, vs[i], vs[j]))

    def _data(self, values):
        data = [[round(self.rng.uniform(-1, 1), 2) for _ in range(2)] for _ in range(2)]

        def step(vs):
            made = rabbet.tensor(data)
            made.add_(1)
            vs.append(made)

        return step

    def _gradient(self, values):
        i = self._floats(values)

        def step(vs):
            x = vs[i].detach().clone().requires_grad_()
            y = (x.sin() * x + x.exp().tanh()).sum()
            vs.append(rabbet.autograd.grad(y, x)[0])

        return step

    def _branch(self, values):
        i, j = self._pair(values)
        c = round(self.rng.uniform(-1, 1), 2)
        writes = self.rng.random() < 0.3

        def then(a, b):
            if writes:
                a.mul_(c)
            return a * 2 + values_of(), b

        def otherwise(a, b):
            return a - b, (b.sin() if b.is_floating_point() else b) * 1

        hidden = self.rng.uniform(0, 1)

        def values_of():
            return hidden

        return lambda vs: vs.extend(
            t.clone() for t in cond(vs[i].sum() > c, then, otherwise, (vs[i], vs[j]))
        )

    def _loop(self, values):
        i = self._pick(values, lambda t: t.dtype == rabbet.float32)
        if i is None:
            return None
        rounds = self.rng.randint(0, 3)
        noisy = self.rng.random() < 0.5

        def body(k, x):
            x = x * 0.5 + 1
            return k + 1, x + rabbet.rand(x.shape) if noisy else x

        def step(vs):
            _, x = while_loop(lambda k, x: k < rounds, body, (rabbet.tensor(0), vs[i]))
            vs.append(x.clone())

        return step


def _overlap(a, b):
    return a._storage_id() == b._storage_id()


def _tame(vs, a, b):
    for i in range(a, b):
        if vs[i].is_floating_point():
            vs[i].nan_to_num_(0.5, 1.0, -1.0)
