"""A language model of two LSTM layers, trained by truncated backpropagation through time."""

import torch
from start import Program
from torch import nn


class Model(nn.Module):
    def __init__(self, vocabulary, width, layers=2):
        super().__init__()
        self.encoder = nn.Embedding(vocabulary, width)
        self.rnn = nn.LSTM(width, width, layers, batch_first=True)
        self.decoder = nn.Linear(width, vocabulary)
        self.layers, self.width = layers, width

    def forward(self, tokens, state):
        output, state = self.rnn(self.encoder(tokens), state)
        return self.decoder(output), state

    def first_state(self, batch):
        weight = next(self.parameters())
        return (
            weight.new_zeros(self.layers, batch, self.width),
            weight.new_zeros(self.layers, batch, self.width),
        )


def repackage(state):
    return tuple(s.detach() for s in state)


def train(program):
    vocabulary, width, batch, length = (30, 16, 3, 7) if program.tiny else (1000, 200, 20, 35)
    model = program.start(Model(vocabulary, width))
    text = program.integers(vocabulary, batch, length * program.steps + 1)
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    state = model.first_state(batch)
    for start in range(0, text.size(1) - 1, length):
        state = repackage(state)
        logits, state = model(text[:, start : start + length], state)
        targets = text[:, start + 1 : start + length + 1]
        loss = criterion(logits.flatten(0, 1), targets.flatten())
        model.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.25)
        optimizer.step()
        yield loss.item()


if __name__ == "__main__":
    program = Program(__doc__)
    program.report(train(program))
