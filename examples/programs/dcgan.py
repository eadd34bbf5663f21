"""A DCGAN (Radford et al. 2016): transposed convolutions, batch norm, own initial weights by `apply`."""

import torch
from start import Program
from torch import nn


def weights_init(m):
    name = m.__class__.__name__
    if name.find("Conv") != -1:
        torch.nn.init.normal_(m.weight, 0.0, 0.02)
    elif name.find("BatchNorm") != -1:
        torch.nn.init.constant_(m.weight, 1.0)
        torch.nn.init.zeros_(m.bias)


def generator(latent, width):
    return nn.Sequential(
        nn.ConvTranspose2d(latent, 4 * width, 4, 1, 0, bias=False), nn.BatchNorm2d(4 * width), nn.ReLU(True),
        nn.ConvTranspose2d(4 * width, 2 * width, 4, 2, 1, bias=False), nn.BatchNorm2d(2 * width), nn.ReLU(True),
        nn.ConvTranspose2d(2 * width, 1, 4, 2, 1, bias=False), nn.Tanh(),
    )  # fmt: skip


def discriminator(width):
    return nn.Sequential(
        nn.Conv2d(1, width, 4, 2, 1, bias=False), nn.LeakyReLU(0.2, inplace=True),
        nn.Conv2d(width, 2 * width, 4, 2, 1, bias=False), nn.BatchNorm2d(2 * width),
        nn.LeakyReLU(0.2, inplace=True), nn.Conv2d(2 * width, 1, 4, 1, 0, bias=False), nn.Sigmoid(),
    )  # fmt: skip


def train(program):
    latent, width, batch = (4, 4, 4) if program.tiny else (64, 64, 64)
    both = nn.ModuleList([generator(latent, width), discriminator(width)]).apply(weights_init)
    net_g, net_d = program.start(both)
    optimizer_d = torch.optim.Adam(net_d.parameters(), lr=0.0002, betas=(0.5, 0.999))
    optimizer_g = torch.optim.Adam(net_g.parameters(), lr=0.0002, betas=(0.5, 0.999))
    criterion = nn.BCELoss()
    for _ in range(program.steps):
        net_d.zero_grad()
        label = torch.full((batch,), 1.0)
        error_real = criterion(net_d(program.normal(batch, 1, 16, 16)).view(-1), label)
        error_real.backward()
        fake = net_g(program.normal(batch, latent, 1, 1))
        label.fill_(0.0)
        error_fake = criterion(net_d(fake.detach()).view(-1), label)
        error_fake.backward()
        optimizer_d.step()
        net_g.zero_grad()
        label.fill_(1.0)
        error_g = criterion(net_d(fake).view(-1), label)
        error_g.backward()
        optimizer_g.step()
        yield (error_real + error_fake + error_g).item()


if __name__ == "__main__":
    program = Program(__doc__)
    program.report(train(program))
