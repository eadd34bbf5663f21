"""REINFORCE (Williams 1992) with a baseline and an entropy bonus: a policy learns to keep a pole upright."""

import numpy as np
import torch
from start import Program
from torch import nn
from torch.distributions import Categorical, kl_divergence


class Poles:
    """Poles on a joint that is pushed left or right; one that leans more than 0.5 rad has fallen."""

    gravity, push, friction, step = 9.8, 8.0, 0.1, 0.05

    def __init__(self, random, count):
        self.angle = random.uniform(-0.1, 0.1, count)
        self.speed = random.uniform(-0.1, 0.1, count)
        self.upright = np.ones(count, bool)

    def observe(self):
        return torch.tensor(np.stack([self.angle, self.speed], -1), dtype=torch.float32)

    def act(self, action):
        """Push for one step; the reward is 1 for each pole that still stands."""
        force = self.push * (2 * action.numpy() - 1)
        pull = self.gravity * np.sin(self.angle)
        self.speed = self.speed + self.step * (pull + force - self.friction * self.speed)
        self.angle = self.angle + self.step * self.speed
        self.upright &= abs(self.angle) < 0.5
        return torch.tensor(self.upright, dtype=torch.float32)


class Policy(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(2, hidden), nn.Tanh(), nn.Linear(hidden, 2))

    def forward(self, observation):
        return Categorical(logits=self.layers(observation))


def draw(policy, uniform):
    """Actions of the policy's probabilities by the inverse of their sums, so that NumPy chooses them."""
    below = policy.probs.cumsum(-1)[..., :-1] < uniform.unsqueeze(-1)
    return below.sum(-1)


def play(program, model, episodes, length):
    """Log probabilities, entropies and rewards of all steps (length, episodes), and what was seen."""
    poles = Poles(program.random, episodes)
    log_probs, entropies, rewards, seen = [], [], [], []
    for _ in range(length):
        seen.append(poles.observe())
        policy = model(seen[-1])
        action = draw(policy, program.uniform(episodes))
        log_probs.append(policy.log_prob(action))
        entropies.append(policy.entropy())
        rewards.append(poles.act(action))
    return tuple(torch.stack(x) for x in (log_probs, entropies, rewards, seen))


def returns_of(rewards, discount):
    """The discounted sums of what comes after each step."""
    total, found = torch.zeros_like(rewards[0]), []
    for reward in rewards.flip(0):
        total = reward + discount * total
        found.append(total)
    return torch.stack(found[::-1])


def train(program):
    hidden, episodes, length = (16, 8, 20) if program.tiny else (64, 64, 100)
    model = program.start(Policy(hidden))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(program.steps):
        log_probs, entropies, rewards, seen = play(program, model, episodes, length)
        returns = returns_of(rewards, discount=0.97)
        advantage = returns - returns.mean(1, keepdim=True)
        advantage = advantage / (1 + advantage.std())  # where all stand there is nothing to learn
        loss = -(log_probs * advantage).mean() - 0.01 * entropies.mean()
        before = Categorical(logits=model(seen).logits.detach())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        change = kl_divergence(before, model(seen)).mean()
        # How long the poles stood, and how far the policy went in this step.
        yield loss.item() + rewards.mean().item() + change.item()


if __name__ == "__main__":
    program = Program(__doc__)
    program.report(train(program))
