"""What a level of vmap adds to a call, and a batched layer beside its loop.

python benchmarks/transforms.py
"""

import rabbet
from common import side_by_side

ROUNDS = 64


def chain(x, y):
    for _ in range(ROUNDS):
        x = rabbet.add(x, y)
    return x


def main() -> None:
    rabbet.set_num_threads(1)
    x, y = rabbet.ones(1), rabbet.ones(1)
    # The level is entered once per chain: what is left is the cost of a call.
    level = rabbet.vmap(lambda a, b: a, (0, 0))
    one = side_by_side(
        {
            "plain": lambda: chain(x, y),
            "vmap": lambda: rabbet.vmap(chain)(x, y),
            "vmap enter": lambda: level(x, y),
            "two": lambda: rabbet.vmap(rabbet.vmap(chain))(x.view(1, 1), y.view(1, 1)),
            "two enter": lambda: rabbet.vmap(level)(x.view(1, 1), y.view(1, 1)),
        }
    )
    plain = one["plain"] / ROUNDS
    first = (one["vmap"] - one["vmap enter"]) / ROUNDS
    second = (one["two"] - one["two enter"]) / ROUNDS
    print(
        f"add of 1 element: {plain * 1e9:.0f} ns; in vmap {first * 1e9:.0f} ns; in two {second * 1e9:.0f} ns"
    )
    print(f"a level adds {(first - plain) * 1e9:.0f} and {(second - first) * 1e9:.0f} ns a call")
    print(f"entering vmap: {one['vmap enter'] * 1e6:.1f} us")
    w, rows = rabbet.randn(64, 64), rabbet.randn(256, 64)
    times = side_by_side(
        {
            "plain": lambda: rows @ w,
            "vmap": lambda: rabbet.vmap(rabbet.matmul, (0, None))(rows, w),
            "loop": lambda: rabbet.stack([row @ w for row in rows]),
        }
    )
    print("(256, 64) @ (64, 64): " + ", ".join(f"{k} {v * 1e6:.0f} us" for k, v in times.items()))


if __name__ == "__main__":
    main()
