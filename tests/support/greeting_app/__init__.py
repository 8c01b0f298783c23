"""A separate app that adds a process."""
