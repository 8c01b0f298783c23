"""Sentences about a person's message, each true or false."""
