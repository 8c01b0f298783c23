"""Calls to engines: requests as data and as questions to a model, and their answers."""
