"""`torch._custom_ops`, which packages import beside `torch.library`; what they look for in it is in `library`."""
