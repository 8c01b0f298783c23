"""Pages to try memory out: the playground and the recall console."""
