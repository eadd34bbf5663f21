"""What a call of a user's operator costs: kernels in Python and in C, beside torch.library.custom_op."""

import ctypes
import subprocess
import tempfile
from pathlib import Path

import rabbet
from common import finish, statement, torch_or_none
from rabbet import library

KERNEL = """
#include "rabbet/abi.h"
int32_t scale(void* self, const RbCall* call, const RbValue* args, int32_t nargs, RbValue* rets, int32_t nrets) {
  (void)self; (void)call; (void)nargs; (void)nrets;
  const float* x = (const float*)args[0].v.t->data;
  float* y = (float*)rets[0].v.t->data;
  for (int64_t i = 0; i < rets[0].v.t->numel; ++i) y[i] = (float)args[1].v.f * x[i];
  return RB_OK;
}
"""


def compiled(folder: Path) -> ctypes.CDLL:
    source, target = folder / "scale.c", folder / "libscale.so"
    source.write_text(KERNEL)
    command = ["gcc", "-std=c11", "-O2", "-shared", "-fPIC", f"-I{rabbet.get_include()}"]
    subprocess.run([*command, str(source), "-o", str(target)], check=True)
    return ctypes.CDLL(str(target))


def ours(c: ctypes.CDLL) -> dict[str, object]:
    """The operators, by the names that the statements use."""
    schema = "bench::{}(Tensor x, float a) -> Tensor"
    made = rabbet.ones(1)
    in_c = library.define(schema.format("in_c"), shape="x.shape")
    library.impl(in_c, "cpu", c.scale, contiguous=True)
    unary_c = library.define(schema.format("elementwise_c"), kind="elementwise")
    library.impl(unary_c, "cpu", c.scale, contiguous=True)
    empty = library.define(schema.format("empty"))
    library.impl(empty, "cpu", lambda x, a: made)
    fills = library.define(schema.format("fills"), shape="x.shape")
    library.impl(fills, "cpu", lambda x, a, out: None)
    works = library.define(schema.format("works"))
    library.impl(works, "cpu", lambda x, a: x * a)
    library.vjp(works, lambda ctx, grad: (grad * ctx.inputs[1], None))
    composite = library.op(schema.format("composite"))(lambda x, a: x * a)
    x = rabbet.ones(1)
    return {
        "in_c": in_c, "elementwise_c": unary_c, "empty": empty, "fills": fills, "works": works,
        "composite": composite, "x": x, "r": rabbet.ones(1, requires_grad=True),
    }  # fmt: skip


def theirs(torch) -> dict[str, object]:
    made = torch.ones(1)

    def empty(x: torch.Tensor, a: float) -> torch.Tensor:
        return made

    def works(x: torch.Tensor, a: float) -> torch.Tensor:
        return x * a

    def save(ctx, inputs, output):
        ctx.a = inputs[1]

    scope = {}
    for function in (empty, works):
        op = torch.library.custom_op(f"bench::{function.__name__}", mutates_args=())(function)
        op.register_autograd(lambda ctx, grad: (grad * ctx.a, None), setup_context=save)
        scope[function.__name__] = op
    return {**scope, "x": torch.ones(1), "r": torch.ones(1, requires_grad=True)}


# What, the statement, the target in seconds.
ROWS = [
    ("kernel in C, one element", "in_c(x, 2.0)", 150e-9),
    ("kernel in C, elementwise", "elementwise_c(x, 2.0)", 150e-9),
    ("kernel in Python that does nothing", "empty(x, 2.0)", 600e-9),
    ("kernel in Python that fills its result", "fills(x, 2.0)", 600e-9),
    ("kernel in Python: x * a", "works(x, 2.0)", 600e-9),
    ("the same, recorded", "works(r, 2.0)", None),
    ("the same, recorded, and backward", "works(r, 2.0).backward()", None),
    ("composite: x * a", "composite(x, 2.0)", 600e-9),
]


def main() -> None:
    torch = torch_or_none()
    with tempfile.TemporaryDirectory() as folder:
        own, other = ours(compiled(Path(folder))), theirs(torch) if torch else {}
        rows = []
        for what, code, limit in ROWS:
            row = {"what": what, "rabbet": statement(code, own)}
            if limit:
                row["limit"] = limit
            if code.partition("(")[0] in other:
                row["torch"] = statement(code, other)
            rows.append(row)
    finish("custom_ops", "Operators of your own (torch: torch.library.custom_op)", rows)


if __name__ == "__main__":
    main()
