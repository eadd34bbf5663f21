"""A Wasserstein GAN with gradient penalty (Gulrajani et al. 2017): the critic's loss needs second derivatives."""

import torch
import torch.autograd as autograd
from start import Program
from torch import nn


def network(inner, hidden, outer):
    return nn.Sequential(
        nn.Linear(inner, hidden), nn.LeakyReLU(0.2), nn.Linear(hidden, hidden), nn.Tanh(),
        nn.Linear(hidden, outer),
    )  # fmt: skip


def gradient_penalty(critic, real, fake, alpha):
    mixed = (alpha * real + (1 - alpha) * fake).requires_grad_(True)
    scores = critic(mixed)
    (gradients,) = autograd.grad(
        outputs=scores, inputs=mixed, grad_outputs=torch.ones_like(scores),
        create_graph=True, retain_graph=True, only_inputs=True,
    )  # fmt: skip
    return ((gradients.norm(2, dim=1) - 1) ** 2).mean()


def train(program):
    latent, hidden, size, batch = (4, 16, 2, 8) if program.tiny else (64, 512, 64, 128)
    both = nn.ModuleDict(
        {"generator": network(latent, hidden, size), "critic": network(size, hidden, 1)}
    )
    program.start(both)
    generator, critic = both["generator"], both["critic"]
    optimizer_g = torch.optim.Adam(generator.parameters(), lr=1e-3, betas=(0.5, 0.9))
    optimizer_c = torch.optim.Adam(critic.parameters(), lr=1e-3, betas=(0.5, 0.9))
    for _ in range(program.steps):
        for _ in range(2):
            real = program.normal(batch, size) + 2
            with torch.no_grad():
                fake = generator(program.normal(batch, latent))
            penalty = gradient_penalty(critic, real, fake, program.uniform(batch, 1))
            loss_c = critic(fake).mean() - critic(real).mean() + 10 * penalty
            optimizer_c.zero_grad()
            loss_c.backward()
            optimizer_c.step()
        for p in critic.parameters():
            p.requires_grad_(False)
        optimizer_g.zero_grad()
        loss_g = -critic(generator(program.normal(batch, latent))).mean()
        loss_g.backward()
        optimizer_g.step()
        for p in critic.parameters():
            p.requires_grad_(True)
        yield loss_c.item() + loss_g.item()


if __name__ == "__main__":
    program = Program(__doc__)
    program.report(train(program))
