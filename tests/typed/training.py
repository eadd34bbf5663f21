"""A model, its training and its evaluation, as users write them."""

from collections.abc import Iterator

import rabbet
from rabbet import Tensor, nn, optim
from rabbet.nn import functional as F
from rabbet.utils.data import DataLoader, Dataset


class Points(Dataset[tuple[Tensor, Tensor]]):
    def __init__(self, count: int) -> None:
        self.x = rabbet.randn(count, 2)
        self.y = (self.x.norm(dim=1) > 1).long()

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return self.x[index], self.y[index]


class Net(nn.Module):
    def __init__(self, hidden: int, dropout: float = 0.1) -> None:
        super().__init__()
        self.first = nn.Linear(2, hidden)
        self.scale = nn.Parameter(rabbet.ones(hidden))
        self.drop = nn.Dropout(dropout)
        self.layers = nn.ModuleList([nn.Linear(hidden, hidden) for _ in range(2)])
        self.last = nn.Sequential(nn.ReLU(), nn.Linear(hidden, 2))

    def forward(self, x: Tensor) -> Tensor:
        h = F.relu(self.first(x)) * self.scale
        for layer in self.layers:
            h = h + self.drop(layer(h))
        out: Tensor = self.last(h)
        return out


def train(model: Net, loader: DataLoader[tuple[Tensor, Tensor]], epochs: int) -> Iterator[float]:
    optimizer = optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.01)
    schedule = optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=epochs)
    criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
    for _ in range(epochs):
        model.train()
        for x, y in loader:
            optimizer.zero_grad(set_to_none=True)
            loss = criterion(model(x), y)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            yield loss.item()
        schedule.step()


@rabbet.inference_mode()
def accuracy(model: Net, x: Tensor, y: Tensor) -> float:
    model.eval()
    return (model(x).argmax(dim=1) == y).float().mean().item()  # type: ignore[no-any-return]


data = Points(64)
net = Net(8)
losses = list(train(net, DataLoader(data, batch_size=16, shuffle=True), epochs=2))
print(losses[-1], accuracy(net, data.x, data.y))
