"""Run every benchmark and write RESULTS.md and a picture of the ratios; --write: from what ran last."""

import json
import statistics
import subprocess
import sys
from pathlib import Path

from common import HERE, machine, table

BENCHMARKS = [
    "overhead", "elementwise", "rows", "matmul", "convolution", "attention", "recurrent", "training", "optimizers",
    "surface", "threads", "loading", "autocast", "transforms", "autograd", "custom_ops", "profiler", "regions", "graphs", "newcomer",
    "programs",
]  # fmt: skip


def draw(results: list[dict], path: Path) -> None:
    """For each table the geometric mean of torch's time over ours, and a line from the least to the most."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    groups = {}
    for result in results:
        ratios = [r["torch"] / r["rabbet"] for r in result["rows"] if r.get("torch")]
        if ratios:
            groups[f"{result['title']} ({len(ratios)})"] = ratios
    if not groups:
        return
    means = [statistics.geometric_mean(ratios) for ratios in groups.values()]
    below = [mean - min(ratios) for mean, ratios in zip(means, groups.values(), strict=True)]
    above = [max(ratios) - mean for mean, ratios in zip(means, groups.values(), strict=True)]
    figure, axes = plt.subplots(figsize=(9, 0.4 * len(groups) + 1))
    axes.barh(list(groups), means, xerr=[below, above], capsize=3, color="tab:blue", ecolor="gray")
    axes.axvline(1.0, color="black", linewidth=1)
    axes.set_xscale("log")
    axes.set_xlabel("torch's time / rabbet's time (right of the line: rabbet is faster)")
    axes.invert_yaxis()
    figure.tight_layout()
    figure.savefig(path, dpi=100)


def main() -> None:
    """Each benchmark runs in a process of its own."""
    for name in BENCHMARKS:
        subprocess.run([sys.executable, "-W", "ignore", str(HERE / f"{name}.py")], check=True)
    write()


def write() -> None:
    """RESULTS.md and the picture, from the last result of every benchmark; some give two tables."""
    files = [f for name in BENCHMARKS for f in sorted((HERE / "results").glob(f"{name}*.json"))]
    results = [json.loads(file.read_text()) for file in files]
    lines = [
        "# Results",
        "",
        "Measured with `python benchmarks/run_all.py` (what `make bench` runs; install torch==2.13.0 into .venv for its",
        f"column) on: {machine()}, 2 threads. Least time of several repeats, rabbet,",
        "torch 2.13 and NumPy in one run; read the ratios, the machine is shared.",
        "",
        "![ratios](ratios.png)",
        "",
    ]
    for result in results:
        lines += [table(result["title"], result["rows"]), ""]
        for row in result["rows"]:
            if "memory" in row:
                sizes = ", ".join(f"{k} {v / 1e6:.0f} MB" for k, v in row["memory"].items())
                lines += [f"Peak memory, {row['what']}: {sizes}.", ""]
    lines.append((HERE / "NOTES.md").read_text())  # where a number is missed, and why
    (HERE / "RESULTS.md").write_text("\n".join(lines))
    draw(results, HERE / "ratios.png")


if __name__ == "__main__":
    write() if sys.argv[1:] == ["--write"] else main()
