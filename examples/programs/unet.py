"""A U-Net (Ronneberger et al. 2015) that marks where images are bright, with a soft Dice loss beside the entropy."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from start import Program


def double_conv(inner, outer):
    return nn.Sequential(
        nn.Conv2d(inner, outer, kernel_size=3, padding=1, bias=False),
        nn.GroupNorm(4, outer),
        nn.LeakyReLU(0.1, inplace=True),
        nn.Conv2d(outer, outer, kernel_size=3, padding=1, bias=False),
        nn.GroupNorm(4, outer),
        nn.LeakyReLU(0.1, inplace=True),
    )


class UNet(nn.Module):
    def __init__(self, width, depth=3):
        super().__init__()
        sizes = [width * 2**i for i in range(depth + 1)]
        self.down = nn.ModuleList(
            [double_conv(a, b) for a, b in zip([1, *sizes[:-1]], sizes, strict=False)]
        )
        pairs = list(zip(sizes[::-1], sizes[-2::-1], strict=False))
        self.up = nn.ModuleList([nn.ConvTranspose2d(a, b, 2, stride=2) for a, b in pairs])
        self.join = nn.ModuleList([double_conv(a, b) for a, b in pairs])
        self.out = nn.Conv2d(width, 1, 1)

    def forward(self, x):
        skips = []
        for i, down in enumerate(self.down):
            x = down(F.max_pool2d(x, 2) if i else x)
            skips.append(x)
        skips.pop()
        for up, join in zip(self.up, self.join, strict=True):
            x = join(torch.cat([skips.pop(), up(x)], dim=1))
        return self.out(x)


def dice(logits, target, eps=1.0):
    p = logits.sigmoid()
    shared = (p * target).sum(dim=(1, 2, 3))
    return 1 - ((2 * shared + eps) / (p.sum((1, 2, 3)) + target.sum((1, 2, 3)) + eps)).mean()


def train(program):
    width, size, batch = (4, 16, 2) if program.tiny else (32, 64, 8)
    model = program.start(UNet(width)).to(memory_format=torch.channels_last)
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3, momentum=0.9)
    for _ in range(program.steps):
        x = program.normal(batch, 1, size, size)
        target = (F.avg_pool2d(x, 3, stride=1, padding=1) > 0.2).float()
        logits = model(x.contiguous(memory_format=torch.channels_last))
        loss = F.binary_cross_entropy_with_logits(logits, target) + dice(logits, target)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        yield loss.item()


if __name__ == "__main__":
    program = Program(__doc__)
    program.report(train(program))
