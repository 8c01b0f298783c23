"""The calls to engines: their requests as data and as a question to a model, and their answers."""
