"""What the programs share: their options, weights to start from that do not depend on the framework, and the losses."""

import argparse
import json
import os

import numpy as np
import torch


class Program:
    """The options of a program, its random numbers, and where its weights come from.

    All numbers come from NumPy, so that every framework trains on the same data from the same weights.
    """

    def __init__(self, description):
        parser = argparse.ArgumentParser(description=description)
        parser.add_argument("--steps", type=int, default=20)
        parser.add_argument("--tiny", action="store_true", help="a model that trains in a second")
        parser.add_argument("--weights", help=".npz to start from; written if it does not exist")
        self.options = parser.parse_args()
        self.tiny = self.options.tiny
        self.steps = self.options.steps
        self.random = np.random.default_rng(0)

    def normal(self, *shape):
        """Normal numbers as a float32 tensor."""
        return torch.from_numpy(self.random.standard_normal(shape, dtype=np.float32))

    def uniform(self, *shape):
        """Numbers from [0, 1) as a float32 tensor."""
        return torch.from_numpy(self.random.random(shape, dtype=np.float32))

    def integers(self, high, *shape):
        """Integers from [0, high) as an int64 tensor."""
        return torch.from_numpy(self.random.integers(0, high, shape))

    def start(self, model):
        """Give a model its first weights; returns it."""
        state = model.state_dict()
        path = self.options.weights
        if path and os.path.exists(path):
            with np.load(path) as file:
                weights = {name: file[name] for name in state}
        else:
            weights = {name: self._first(value.numpy()) for name, value in state.items()}
            if path:
                np.savez(path, **weights)
        model.load_state_dict({name: torch.from_numpy(w) for name, w in weights.items()})
        return model

    def _first(self, value):
        """Normal numbers that keep the size of signals; what a model sets to one constant stays."""
        if value.dtype != np.float32 or (value.size > 1 and np.all(value == value.flat[0])):
            return value.copy()
        fan_in = value[0].size if value.ndim > 1 else 2500
        return (
            self.random.standard_normal(value.shape, dtype=np.float32) / np.float32(fan_in) ** 0.5
        )

    def report(self, losses):
        """Train by running through the losses, and print them: the last line is JSON."""
        found = []
        for step, loss in zip(range(self.steps), losses):
            found.append(float(loss))
            print(f"step {step:3d}  loss {found[-1]:.6f}", flush=True)
        print(json.dumps({"losses": found}))
