"""Search a person's memory, and rank the results."""
