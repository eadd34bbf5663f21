"""A vision transformer (Dosovitskiy et al. 2021) of PyTorch's encoder layers."""

import torch
from start import Program
from torch import nn


class ViT(nn.Module):
    def __init__(self, image, patch, width, layers, heads, classes=10):
        super().__init__()
        self.patches = nn.Conv2d(3, width, kernel_size=patch, stride=patch)
        self.cls = nn.Parameter(torch.zeros(1, 1, width))
        self.position = nn.Parameter(torch.randn(1, (image // patch) ** 2 + 1, width) * 0.02)
        layer = nn.TransformerEncoderLayer(
            width, heads, dim_feedforward=2 * width, dropout=0.0, activation="gelu",
            batch_first=True, norm_first=True,
        )  # fmt: skip
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, classes)

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls.expand(x.shape[0], -1, -1), x], dim=1) + self.position
        return self.head(self.norm(self.encoder(x))[:, 0])


def train(program):
    image, patch, width, layers, heads = (16, 4, 16, 2, 2) if program.tiny else (32, 4, 192, 6, 3)
    batch = 4 if program.tiny else 32
    model = program.start(ViT(image, patch, width, layers, heads))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.05)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=program.steps)
    for _ in range(program.steps):
        x, y = program.normal(batch, 3, image, image), program.integers(10, batch)
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        yield loss.item()


if __name__ == "__main__":
    program = Program(__doc__)
    program.report(train(program))
