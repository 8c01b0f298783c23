"""A separate app that adds a kind of memory, with one module for each of its parts, and a layer of contexts."""
