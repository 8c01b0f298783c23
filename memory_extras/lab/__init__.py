"""Pages to test memory: the playground and the recall console."""
