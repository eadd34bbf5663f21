"""The parts of `rabbet.utils.benchmark`, in modules named as in PyTorch."""
