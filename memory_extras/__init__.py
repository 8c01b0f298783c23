"""Extras: Django apps that extend the core through its registries. `memoryproject.extras` loads them."""
