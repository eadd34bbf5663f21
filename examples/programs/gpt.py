"""A GPT: causal transformer with tied embeddings, AdamW with two groups, warmup and cosine decay."""

import math
from dataclasses import dataclass

import torch
import torch.nn as nn
from start import Program
from torch.nn import functional as F


@dataclass
class Config:
    vocabulary: int = 256
    context: int = 128
    layers: int = 6
    heads: int = 6
    width: int = 192


class CausalSelfAttention(nn.Module):
    def __init__(self, config):
        super().__init__()
        assert config.width % config.heads == 0
        self.heads = config.heads
        self.c_attn = nn.Linear(config.width, 3 * config.width, bias=False)
        self.c_proj = nn.Linear(config.width, config.width, bias=False)

    def forward(self, x):
        B, T, C = x.size()
        q, k, v = self.c_attn(x).split(C, dim=2)
        q, k, v = (t.view(B, T, self.heads, C // self.heads).transpose(1, 2) for t in (q, k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.c_proj(y.transpose(1, 2).contiguous().view(B, T, C))


class Block(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.ln_1 = nn.LayerNorm(config.width)
        self.attn = CausalSelfAttention(config)
        self.ln_2 = nn.LayerNorm(config.width)
        self.mlp = nn.Sequential(
            nn.Linear(config.width, 4 * config.width),
            nn.GELU(approximate="tanh"),
            nn.Linear(4 * config.width, config.width),
        )

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.wte = nn.Embedding(config.vocabulary, config.width)
        self.wpe = nn.Embedding(config.context, config.width)
        self.h = nn.ModuleList([Block(config) for _ in range(config.layers)])
        self.ln_f = nn.LayerNorm(config.width)
        self.lm_head = nn.Linear(config.width, config.vocabulary, bias=False)
        self.wte.weight = self.lm_head.weight

    def forward(self, tokens, targets):
        positions = torch.arange(tokens.size(1), dtype=torch.long, device=tokens.device)
        x = self.wte(tokens) + self.wpe(positions)
        for block in self.h:
            x = block(x)
        logits = self.lm_head(self.ln_f(x))
        return F.cross_entropy(logits.view(-1, logits.size(-1)), targets.reshape(-1))


def optimizer_of(model):
    decayed = [p for p in model.parameters() if p.dim() >= 2]
    others = [p for p in model.parameters() if p.dim() < 2]
    groups = [
        {"params": decayed, "weight_decay": 0.1},
        {"params": others, "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=1e-3, betas=(0.9, 0.95))


def learning_rate(step, warmup=5, total=20):
    if step < warmup:
        return (step + 1) / warmup
    return 0.1 + 0.45 * (1 + math.cos(math.pi * (step - warmup) / (total - warmup)))


def train(program):
    config = Config(64, 16, 2, 2, 32) if program.tiny else Config()
    model = program.start(GPT(config))
    optimizer = optimizer_of(model)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, learning_rate)
    for _ in range(program.steps):
        data = program.integers(config.vocabulary // 4, 4, config.context + 1)
        loss = model(data[:, :-1], data[:, 1:])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        yield loss.item()


if __name__ == "__main__":
    program = Program(__doc__)
    program.report(train(program))
