"""Train a small character-level transformer on a text that ships with Python, and let it write."""

import argparse
import json
import math
import sys
import time

import rabbet
from rabbet import nn, optim
from rabbet.nn import functional as F
from tqdm import tqdm


def text() -> str:
    """The help texts of the pydoc module: part of every CPython."""
    import pydoc_data.topics

    return "\n".join(pydoc_data.topics.topics.values())


class Attention(nn.Module):
    """Causal self-attention with `heads` heads."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x):
        batch, length, width = x.shape
        parts = (
            self.qkv(x)
            .reshape(batch, length, 3, self.heads, width // self.heads)
            .permute(2, 0, 3, 1, 4)
        )
        mixed = F.scaled_dot_product_attention(parts[0], parts[1], parts[2], is_causal=True)
        return self.out(mixed.transpose(1, 2).reshape(batch, length, width))


class Block(nn.Module):
    """Attention and a two-layer network, each on normalised input and added to the stream."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm1, self.attention = nn.LayerNorm(width), Attention(width, heads)
        self.norm2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class CharGpt(nn.Module):
    """Next-character logits (batch, length, letters) for letters (batch, length)."""

    def __init__(self, letters: int, width: int, heads: int, depth: int, context: int) -> None:
        super().__init__()
        self.letter, self.place = nn.Embedding(letters, width), nn.Embedding(context, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(depth)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, letters)

    def forward(self, tokens):
        x = self.letter(tokens) + self.place(rabbet.arange(tokens.shape[1], device=tokens.device))
        return self.head(self.norm(self.blocks(x)))


@rabbet.no_grad()
def sample(model, start: list[int], length: int, context: int) -> list[int]:
    """`length` more letters, drawn from the model."""
    letters = list(start)
    for _ in range(length):
        logits = model(rabbet.tensor([letters[-context:]]))[0, -1]
        letters.append(int(rabbet.multinomial(F.softmax(logits / 0.8, dim=-1), 1)))
    return letters


def main() -> int:
    """Run the example; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--context", type=int, default=64)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--json", action="store_true", help="print the figures as JSON in the last line"
    )
    options = parser.parse_args()
    rabbet.manual_seed(options.seed)
    corpus = text()
    alphabet = sorted(set(corpus))
    code = {letter: i for i, letter in enumerate(alphabet)}
    data = rabbet.tensor([code[letter] for letter in corpus])
    model = CharGpt(len(alphabet), width=96, heads=4, depth=3, context=options.context)
    optimizer = optim.AdamW(model.parameters(), lr=options.lr)
    began, first, last = time.perf_counter(), math.nan, math.nan
    bar = tqdm(range(1, options.steps + 1), unit="step")
    for step in bar:
        at = rabbet.randint(0, len(data) - options.context - 1, (options.batch, 1)) + rabbet.arange(
            options.context + 1
        )
        batch = data[at]
        logits = model(batch[:, :-1])
        loss = F.cross_entropy(logits.reshape(-1, len(alphabet)), batch[:, 1:].reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        value = loss.item()
        if not math.isfinite(value):
            print(
                f"the loss is {value} at step {step}: training diverged; try a learning rate below {options.lr}",
                file=sys.stderr,
            )
            return 1
        first = value if step == 1 else first
        last = value if step == 1 else 0.95 * last + 0.05 * value
        if step % 50 == 0:
            rate = step * options.batch * options.context / (time.perf_counter() - began)
            bar.set_postfix_str(f"loss {last:.3f}, {rate:.0f} letters/s")
    spent = time.perf_counter() - began
    written = "".join(
        alphabet[i] for i in sample(model, [code[c] for c in "The "], 300, options.context)
    )
    if options.json:
        print(
            json.dumps(
                {
                    "first_loss": round(first, 4),
                    "loss": round(last, 4),
                    "seconds": round(spent, 1),
                    "sample": written,
                }
            )
        )
    else:
        print(written)
    return 0


if __name__ == "__main__":
    sys.exit(main())
