"""ResNet-18 (He et al. 2016) for images of 32 x 32, with a loader, momentum and a step schedule."""

import torch
import torch.nn.functional as F
from start import Program
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Block(nn.Module):
    def __init__(self, inner, outer, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inner, outer, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(outer)
        self.conv2 = nn.Conv2d(outer, outer, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(outer)
        self.shortcut = nn.Sequential()
        if stride != 1 or inner != outer:
            self.shortcut = nn.Sequential(
                nn.Conv2d(inner, outer, 1, stride, bias=False), nn.BatchNorm2d(outer)
            )

    def forward(self, x):
        out = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.bn2(self.conv2(out)) + self.shortcut(x))


class ResNet18(nn.Module):
    def __init__(self, width, classes=10):
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, width, 3, padding=1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
        )
        blocks, inner = [], width
        for stage in range(4):
            outer = width * 2**stage
            blocks += [Block(inner, outer, 1 if stage == 0 else 2), Block(outer, outer, 1)]
            inner = outer
        self.blocks = nn.Sequential(*blocks)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.head = nn.Linear(inner, classes)

    def forward(self, x):
        return self.head(self.pool(self.blocks(self.stem(x))).flatten(1))


def train(program):
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    batch = 8 if program.tiny else 64
    model = program.start(ResNet18(8 if program.tiny else 64)).to(device)
    images = program.normal(batch * program.steps, 3, 32, 32)
    data = TensorDataset(images, program.integers(10, len(images)))
    optimizer = torch.optim.SGD(
        model.parameters(), lr=0.002, momentum=0.9, weight_decay=5e-4, nesterov=True
    )
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, step_size=10, gamma=0.1)
    model.train()
    for x, y in DataLoader(data, batch_size=batch):
        optimizer.zero_grad()
        loss = nn.CrossEntropyLoss(label_smoothing=0.1)(model(x.to(device)), y.to(device))
        loss.backward()
        optimizer.step()
        schedule.step()
        yield loss.item()


if __name__ == "__main__":
    program = Program(__doc__)
    program.report(train(program))
