"""CUDA devices: core reads `rabbet_plugin.toml` and loads the library beside it; nothing here is imported."""
