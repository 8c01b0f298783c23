"""Extras: Django apps that add to the core by its registries. `memoryproject.extras` says how they are loaded."""
