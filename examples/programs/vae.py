"""A variational autoencoder (Kingma and Welling 2014) of images with pixels in [0, 1]."""

import torch
import torch.nn.functional as F
from start import Program
from torch import nn


class VAE(nn.Module):
    def __init__(self, pixels, hidden, latent):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(pixels, hidden), nn.ReLU())
        self.mean = nn.Linear(hidden, latent)
        self.logvar = nn.Linear(hidden, latent)
        self.decoder = nn.Sequential(
            nn.Linear(latent, hidden), nn.ReLU(), nn.Linear(hidden, pixels), nn.Sigmoid()
        )

    def forward(self, x, noise):
        h = self.encoder(x)
        mean, logvar = self.mean(h), self.logvar(h)
        z = mean + noise * torch.exp(0.5 * logvar)
        return self.decoder(z), mean, logvar


def loss_of(output, x, mean, logvar):
    likelihood = F.binary_cross_entropy(output, x, reduction="sum")
    divergence = -0.5 * torch.sum(1 + logvar - mean.pow(2) - logvar.exp())
    return (likelihood + divergence) / len(x)


def train(program):
    pixels, hidden, latent, batch = (36, 16, 4, 8) if program.tiny else (784, 400, 20, 128)
    model = program.start(VAE(pixels, hidden, latent))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for _ in range(program.steps):
        x, noise = program.uniform(batch, pixels), program.normal(batch, latent)
        output, mean, logvar = model(x, noise)
        loss = loss_of(output, x, mean, logvar)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield loss.item()


if __name__ == "__main__":
    program = Program(__doc__)
    program.report(train(program))
