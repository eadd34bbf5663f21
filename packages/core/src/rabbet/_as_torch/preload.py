"""What a new interpreter imports first: torch is rabbet from then on."""

from . import as_torch

as_torch()
