"""Train an MLP and a small CNN on scikit-learn's handwritten digits (1,797 images of 8 x 8), with Rabbet.

Shows a progress bar, held-out accuracy, a checkpoint that is saved and reloaded, and writes one PNG with learning
curves and the misclassified digits.
"""

import argparse
import json
import math
import sys
import time
from pathlib import Path

import rabbet
from rabbet import nn, optim
from tqdm import tqdm


class Mlp(nn.Module):
    """Two hidden layers on the flattened image."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Flatten(), nn.Linear(64, 512), nn.ReLU(), nn.Dropout(0.3), nn.Linear(512, 256), nn.ReLU(),
            nn.Dropout(0.3), nn.Linear(256, 10),
        )  # fmt: skip

    def forward(self, x):
        return self.layers(x)


class Cnn(nn.Module):
    """Three 3 x 3 convolutions with batch norm, one pooling step, two linear layers."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(),
            nn.Conv2d(32, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(32, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(),
        )  # fmt: skip
        self.head = nn.Sequential(
            nn.Flatten(), nn.Dropout(0.3), nn.Linear(64 * 16, 64), nn.ReLU(), nn.Linear(64, 10)
        )

    def forward(self, x):
        return self.head(self.features(x))


def load_digits():
    """Images (1797, 1, 8, 8) in [0, 1] and labels, split at random but always alike: 1,437 to train, 360 held out."""
    from sklearn.datasets import load_digits as load
    from sklearn.model_selection import train_test_split

    data = load()
    images, labels = data.images.astype("float32")[:, None] / 16.0, data.target
    split = train_test_split(images, labels, test_size=0.2, random_state=0, stratify=labels)
    return tuple(rabbet.tensor(part) for part in split)


def shifted(x):
    """Each batch moved by up to one pixel in either direction, with zeros moving in."""
    dy, dx = (int(rabbet.randint(-1, 2, (1,))) for _ in range(2))
    return nn.functional.pad(x, (1, 1, 1, 1))[:, :, 1 + dy : 9 + dy, 1 + dx : 9 + dx]


@rabbet.no_grad()
def predict(model, images):
    """Most likely class of each image."""
    model.eval()
    return model(images).argmax(1)


def accuracy(model, images, labels) -> float:
    """Share of right predictions."""
    return (predict(model, images) == labels).float().mean().item()


def train(name: str, model, data, epochs: int, lr: float, augment: bool) -> dict:
    """Train with AdamW and a cosine schedule; returns losses and held-out accuracies by epoch.

    Raises:
        FloatingPointError: if the loss becomes NaN or infinite.
    """
    train_x, test_x, train_y, test_y = data
    optimizer = optim.AdamW(model.parameters(), lr=lr, weight_decay=1e-2)
    schedule = optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs)
    loss_of = nn.CrossEntropyLoss(label_smoothing=0.05)
    history: dict = {"loss": [], "accuracy": []}
    size, batch = len(train_x), 64
    bar = tqdm(range(1, epochs + 1), desc=name, unit="epoch")
    for epoch in bar:
        model.train()
        began, total = time.perf_counter(), 0.0
        order = rabbet.randperm(size)
        for at in range(0, size, batch):
            pick = order[at : at + batch]
            x = shifted(train_x[pick]) if augment else train_x[pick]
            loss = loss_of(model(x), train_y[pick])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            value = loss.item()
            if not math.isfinite(value):
                raise FloatingPointError(
                    f"{name}: the loss is {value} in epoch {epoch}: training diverged; try a learning rate below {lr}"
                )
            total += value * len(pick)
        schedule.step()
        history["loss"].append(total / size)
        history["accuracy"].append(accuracy(model, test_x, test_y))
        rate = size / (time.perf_counter() - began)
        bar.set_postfix_str(
            f"loss {total / size:.4f}, {rate:.0f} images/s, held out {history['accuracy'][-1]:.2%}"
        )
    return history


def check_checkpoint(model, make, images, path: Path) -> None:
    """Save the model, load it into a fresh one, and require equal predictions."""
    rabbet.save(model.state_dict(), path)
    fresh = make().to(images.device)
    fresh.load_state_dict(rabbet.load(path))
    if not rabbet.equal(predict(model, images), predict(fresh, images)):
        raise RuntimeError(
            f"the model reloaded from {path} predicts otherwise than the one that was saved"
        )


def draw(histories: dict, wrong, path: Path) -> None:
    """Learning curves above, misclassified held-out digits below."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure = plt.figure(figsize=(10, 6))
    grid = figure.add_gridspec(2, 10)
    for i, key in enumerate(("loss", "accuracy")):
        axes = figure.add_subplot(grid[0, 5 * i : 5 * i + 5])
        for name, history in histories.items():
            axes.plot(range(1, len(history[key]) + 1), history[key], label=name)
        axes.set_xlabel("epoch")
        axes.set_ylabel("training loss" if key == "loss" else "held-out accuracy")
        axes.legend()
    for i, (name, image, said, truth) in enumerate(wrong[:10]):
        axes = figure.add_subplot(grid[1, i])
        axes.imshow(image.numpy()[0], cmap="gray_r")
        axes.set_title(f"{name}: {truth}\nread as {said}", fontsize=8)
        axes.axis("off")
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def main() -> int:
    """Run the example; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--epochs", type=int, default=100, help="epochs of the MLP; the CNN takes a quarter"
    )
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cpu", help="any device that a wheel provides")
    parser.add_argument(
        "--out", type=Path, default=Path("out"), help="folder for checkpoints and the picture"
    )
    parser.add_argument(
        "--json", action="store_true", help="print the figures as JSON in the last line"
    )
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    data = tuple(part.to(options.device) for part in load_digits())
    histories, scores, spent = {}, {}, 0.0
    wrong = []
    try:
        for name, make, epochs in (
            ("MLP", Mlp, options.epochs),
            ("CNN", Cnn, max(options.epochs // 4, 1)),
        ):
            rabbet.manual_seed(options.seed)
            model = make().to(options.device)
            began = time.perf_counter()
            histories[name] = train(name, model, data, epochs, options.lr, augment=True)
            spent += time.perf_counter() - began
            scores[name.lower()] = round(accuracy(model, data[1], data[3]), 4)
            check_checkpoint(
                model, make, data[1], options.out / f"digits_{name.lower()}.safetensors"
            )
            said = predict(model, data[1])
            for i in (said != data[3]).nonzero().flatten().tolist():
                wrong.append((name, data[1][i].cpu(), int(said[i]), int(data[3][i])))
    except FloatingPointError as error:
        print(f"\n{error}", file=sys.stderr)
        return 1
    draw(histories, wrong, options.out / "digits.png")
    if options.json:
        print(json.dumps({**scores, "train_seconds": round(spent, 2)}))
    else:
        print(
            f"held-out accuracy: MLP {scores['mlp']:.2%}, CNN {scores['cnn']:.2%}; trained in {spent:.1f} s"
        )
        print(
            f"checkpoints and {options.out / 'digits.png'} written; reloaded models predict alike"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
