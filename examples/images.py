"""Train a CNN on a folder of image files, one folder for each class, read and augmented by the workers of a DataLoader.

Without `--folder` it writes scikit-learn's handwritten digits as PNG files to a temporary folder first. For each epoch it says how
many images the workers can load in a second, and how many the training step takes.
"""

import argparse
import json
import math
import tempfile
from pathlib import Path

import numpy as np
import rabbet
from PIL import Image
from rabbet import nn, optim
from rabbet.utils.data import DataLoader, Dataset, Subset, random_split
from tqdm import tqdm

SUFFIXES = {".bmp", ".jpeg", ".jpg", ".png", ".webp"}


class Images(Dataset):
    """The images below a folder as (3, size, size) in [0, 1], with the index of their class, a folder each.

    Args:
        augment: a random part of the image, at least three quarters as wide and high, and random brightness.

    Raises:
        ValueError: if there are no images in folders below it.
    """

    def __init__(self, folder: Path, size: int, augment: bool = False) -> None:
        self.classes = sorted(p.name for p in folder.iterdir() if p.is_dir())
        self.files = [
            (path, label)
            for label, name in enumerate(self.classes)
            for path in sorted((folder / name).iterdir())
            if path.suffix.lower() in SUFFIXES
        ]
        if not self.files:
            raise ValueError(
                f"{folder}: expected folders with images, one for each class; found no {', '.join(sorted(SUFFIXES))} in any"
            )
        self.size, self.augment = size, augment

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> tuple[rabbet.Tensor, int]:
        path, label = self.files[index]
        with Image.open(path) as file:
            image = file.convert("RGB")
            box = self._part(*image.size) if self.augment else (0, 0, *image.size)
            image = image.resize((self.size, self.size), Image.Resampling.BILINEAR, box)
        pixels = rabbet.from_numpy(np.asarray(image, np.float32)).permute(2, 0, 1) / 255
        if self.augment:
            pixels = (pixels * (0.8 + 0.4 * rabbet.rand(()))).clamp(0, 1)
        return pixels, label

    def _part(self, width: int, height: int) -> tuple[float, float, float, float]:
        share, left, top = (0.75 + 0.25 * rabbet.rand(3)[0]).item(), *rabbet.rand(2).tolist()
        w, h = width * share, height * share
        left, top = left * (width - w), top * (height - h)
        return left, top, left + w, top + h


def write_digits(folder: Path) -> None:
    """scikit-learn's digits as PNG files, 32 x 32, in folders `0` to `9`."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    for i, (pixels, label) in enumerate(zip(digits.images, digits.target, strict=True)):
        place = folder / str(label)
        place.mkdir(exist_ok=True)
        Image.fromarray((pixels * 15).astype("uint8")).resize((32, 32)).save(place / f"{i}.png")


def make_model(classes: int) -> nn.Module:
    """Three convolutions with stride, and an average over the rest."""
    layers: list[nn.Module] = []
    for before, after in ((3, 16), (16, 32), (32, 64)):
        layers += [
            nn.Conv2d(before, after, 3, stride=2, padding=1),
            nn.BatchNorm2d(after),
            nn.ReLU(),
        ]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, classes))


def train(model: nn.Module, loader: DataLoader, optimizer: optim.Optimizer, device: str) -> float:
    """One epoch; the mean loss.

    Raises:
        FloatingPointError: if it is not finite.
    """
    model.train()
    total = 0.0
    for x, y in tqdm(loader, desc="training", unit="batch", leave=False):
        loss = nn.functional.cross_entropy(model(x.to(device)), y.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item() * len(y)
    mean = total / len(loader.dataset)
    if not math.isfinite(mean):
        raise FloatingPointError(f"the loss is {mean}: training diverged; try a lower --lr")
    return mean


def accuracy(model: nn.Module, loader: DataLoader, device: str) -> float:
    """The fraction of the images that the model classifies correctly."""
    model.eval()
    with rabbet.no_grad():
        right = sum(int((model(x.to(device)).argmax(1).cpu() == y).sum()) for x, y in loader)
    return right / len(loader.dataset)


def split(folder: Path, size: int) -> tuple[Subset, Subset, int]:
    """Images to train with, and a fifth that is held out."""
    augmented, plain = Images(folder, size, augment=True), Images(folder, size)
    held = len(plain) // 5
    parts = random_split(range(len(plain)), [len(plain) - held, held])
    return Subset(augmented, list(parts[0])), Subset(plain, list(parts[1])), len(plain.classes)


def run(options: argparse.Namespace, folder: Path) -> dict:
    """Train, print a line for each epoch, and return the last one's figures."""
    rabbet.manual_seed(options.seed)
    training, held, classes = split(folder, options.size)
    workers = {"num_workers": options.workers, "kind": options.kind, "persistent_workers": options.workers > 0}  # fmt: skip
    loader = DataLoader(training, options.batch, shuffle=True, **workers)
    tests = DataLoader(held, options.batch, num_workers=options.workers, kind=options.kind)
    model = make_model(classes).to(options.device)
    optimizer = optim.AdamW(model.parameters(), lr=options.lr)
    figures: dict = {}
    for epoch in range(1, options.epochs + 1):
        loss = train(model, loader, optimizer, options.device)
        stats = loader.stats()
        figures = {
            "loss": loss,
            "accuracy": accuracy(model, tests, options.device),
            "loading": max(options.workers, 1) * stats.samples / stats.busy,
            "compute": stats.samples / stats.loop,
            "waited": stats.wait / (stats.wait + stats.loop),
        }
        if not options.json:
            print(
                f"epoch {epoch}: loss {loss:.4f}, held out {figures['accuracy']:.2%}; images/s: loading "
                f"{figures['loading']:.0f}, compute {figures['compute']:.0f}; waited {figures['waited']:.0%} of the time"
            )
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, help="one folder for each class in it")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--kind", default="auto", choices=["auto", "processes", "threads"])
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument(
        "--size", type=int, default=32, help="width and height that images are brought to"
    )
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--json", action="store_true", help="print one line of JSON")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as own:
        if options.folder is None:
            write_digits(Path(own))
        figures = run(options, options.folder or Path(own))
    if options.json:
        print(json.dumps(figures))


if __name__ == "__main__":
    try:
        main()
    except (FloatingPointError, ValueError) as error:
        raise SystemExit(str(error)) from None
