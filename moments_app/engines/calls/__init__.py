"""The calls to engines, one module per purpose: the request as data and as a message, and the answer."""
