"""Optimizers and learning rate schedulers."""

from . import lr_scheduler
from .adam import Adam
from .adamw import AdamW
from .optimizer import Optimizer
from .sgd import SGD

__version__ = "0.1.0"

__all__ = ["SGD", "Adam", "AdamW", "Optimizer", "lr_scheduler"]
