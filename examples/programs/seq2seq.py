"""A transformer that reverses sequences: encoder, decoder with cross-attention, padding and teacher forcing."""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from start import Program

PAD, BEGIN = 0, 1


class PositionalEncoding(nn.Module):
    def __init__(self, width, length=64):
        super().__init__()
        position = torch.arange(length).unsqueeze(1)
        rates = torch.exp(torch.arange(0, width, 2) * (-math.log(10000.0) / width))
        table = torch.zeros(length, width)
        table[:, 0::2] = torch.sin(position * rates)
        table[:, 1::2] = torch.cos(position * rates)
        self.register_buffer("table", table, persistent=False)

    def forward(self, x):
        return x + self.table[: x.size(1)]


class Layer(nn.Module):
    """One layer; with `memory` it also attends to the encoder's output."""

    def __init__(self, width, heads, cross):
        super().__init__()
        self.attention = nn.MultiheadAttention(width, heads, batch_first=True)
        self.cross = nn.MultiheadAttention(width, heads, batch_first=True) if cross else None
        self.norms = nn.ModuleList([nn.LayerNorm(width) for _ in range(3 if cross else 2)])
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.ReLU(), nn.Linear(4 * width, width)
        )

    def forward(self, x, padding, mask=None, memory=None, memory_padding=None):
        h = self.norms[0](x)
        x = (
            x
            + self.attention(h, h, h, key_padding_mask=padding, attn_mask=mask, need_weights=False)[
                0
            ]
        )
        if self.cross is not None:
            h = self.norms[1](x)
            x = x + self.cross(h, memory, memory, key_padding_mask=memory_padding)[0]
        return x + self.mlp(self.norms[-1](x))


class Seq2Seq(nn.Module):
    def __init__(self, vocabulary, width, heads, layers):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width, padding_idx=PAD)
        self.position = PositionalEncoding(width)
        self.encoder = nn.ModuleList([Layer(width, heads, False) for _ in range(layers)])
        self.decoder = nn.ModuleList([Layer(width, heads, True) for _ in range(layers)])
        self.norm = nn.LayerNorm(width)
        self.out = nn.Linear(width, vocabulary)

    def forward(self, source, target):
        source_padding, target_padding = source == PAD, target == PAD
        length = target.size(1)
        causal = torch.triu(torch.ones(length, length, dtype=torch.bool), diagonal=1)
        memory = self.position(self.embedding(source))
        for layer in self.encoder:
            memory = layer(memory, source_padding)
        x = self.position(self.embedding(target))
        for layer in self.decoder:
            x = layer(x, target_padding, causal, memory, source_padding)
        return self.out(self.norm(x))


def batch_of(program, vocabulary, batch, length):
    """Sequences of different lengths, and the same ones backwards."""
    source = program.integers(vocabulary - 2, batch, length) + 2
    lengths = program.integers(length // 2, batch) + length // 2 + 1
    steps = torch.arange(length)
    source = source.masked_fill(steps >= lengths[:, None], PAD)
    index = (lengths[:, None] - 1 - steps).clamp(min=0)
    return source, source.gather(1, index).masked_fill(steps >= lengths[:, None], PAD)


def train(program):
    vocabulary, width, heads, layers, batch, length = (
        (12, 16, 2, 1, 4, 6) if program.tiny else (100, 128, 4, 3, 64, 20)
    )
    model = program.start(Seq2Seq(vocabulary, width, heads, layers))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, betas=(0.9, 0.98), eps=1e-9)
    for _ in range(program.steps):
        source, target = batch_of(program, vocabulary, batch, length)
        begin = torch.full((batch, 1), BEGIN)
        logits = model(source, torch.cat([begin, target[:, :-1]], dim=1))
        loss = F.cross_entropy(logits.transpose(1, 2), target, ignore_index=PAD)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield loss.item()


if __name__ == "__main__":
    program = Program(__doc__)
    program.report(train(program))
