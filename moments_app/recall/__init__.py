"""Getting memory back: what is read for a context, how it is fitted into a budget, and how it is written down."""
