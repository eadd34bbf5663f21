"""A siamese network (Hadsell et al. 2006): the contrastive loss of pairs from a dataset of its own."""

import torch
import torch.nn.functional as F
from start import Program
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Pairs(Dataset):
    """Pairs of images, and whether they show the same class."""

    def __init__(self, images, labels, order):
        self.images, self.labels, self.order = images, labels, order

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        other = self.order[index].item()
        same = float(self.labels[index] == self.labels[other])
        return {"left": self.images[index], "right": self.images[other], "same": same}


class Siamese(nn.Module):
    def __init__(self, size, width, features):
        super().__init__()
        self.conv = nn.Sequential(
            nn.Conv2d(1, width, 3), nn.BatchNorm2d(width), nn.ReLU(), nn.MaxPool2d(2, stride=2),
            nn.Conv2d(width, 2 * width, 3, padding=1), nn.PReLU(), nn.AvgPool2d(2),
        )  # fmt: skip
        side = (size - 2) // 2 // 2
        self.fc = nn.Linear(2 * width * side * side, features)

    def one(self, x):
        return self.fc(torch.flatten(self.conv(x), start_dim=1))

    def forward(self, left, right):
        return self.one(left), self.one(right)


def contrastive(a, b, same, margin=1.0):
    distance = F.pairwise_distance(a, b, keepdim=False)
    apart = torch.clamp(margin - distance, min=0.0)
    return torch.mean(same * distance.pow(2) + (1 - same) * apart.pow(2))


def train(program):
    size, width, batch = (12, 4, 4) if program.tiny else (28, 32, 64)
    model = program.start(Siamese(size, width, 8))
    count = batch * program.steps
    order = torch.from_numpy(program.random.permutation(count))
    data = Pairs(program.normal(count, 1, size, size), program.integers(3, count), order)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-4, amsgrad=True)
    for pair in DataLoader(data, batch_size=batch, shuffle=False, num_workers=0):
        a, b = model(pair["left"], pair["right"])
        loss = contrastive(a, b, pair["same"].float())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield loss.item()


if __name__ == "__main__":
    program = Program(__doc__)
    program.report(train(program))
