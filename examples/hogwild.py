"""Train one model by several processes at once, without locks (Hogwild, Niu et al. 2011), on scikit-learn's digits.

The parameters are in shared memory. Each process reads them, computes a gradient from its own part of the images, and
writes its step, whatever the others do meanwhile.
"""

import argparse
import json

import rabbet
from digits import load_digits
from rabbet import multiprocessing, nn, optim
from rabbet.utils.data import DataLoader, TensorDataset


def make_model() -> nn.Module:
    """One hidden layer."""
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))


def accuracy(model: nn.Module, images: rabbet.Tensor, labels: rabbet.Tensor) -> float:
    """The fraction of the images that the model classifies correctly."""
    with rabbet.no_grad():
        return float((model(images).argmax(1) == labels).float().mean())


def train(rank: int, model: nn.Module, images, labels, options) -> None:
    """The body of a process: all epochs on every `processes`-th image."""
    rabbet.set_num_threads(1)
    rabbet.manual_seed(options.seed + rank)
    part = TensorDataset(images[rank :: options.processes], labels[rank :: options.processes])
    batches = DataLoader(part, 16, shuffle=True)
    optimizer = optim.SGD(model.parameters(), lr=options.lr, momentum=0.5)
    for _ in range(options.epochs):
        for x, y in batches:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=16)
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--start", default="spawn", choices=multiprocessing.get_all_start_methods())
    parser.add_argument("--json", action="store_true", help="print one line of JSON")
    options = parser.parse_args()
    rabbet.manual_seed(options.seed)
    images, test_images, labels, test_labels = load_digits()
    model = make_model().share_memory()
    before = accuracy(model, test_images, test_labels)
    multiprocessing.start_processes(
        train, (model, images, labels, options), options.processes, start_method=options.start
    )
    after = accuracy(model, test_images, test_labels)
    if options.json:
        print(json.dumps({"processes": options.processes, "before": before, "after": after}))
    else:
        print(f"accuracy on held-out images: {before:.3f} before, {after:.3f} after training")


if __name__ == "__main__":
    main()
