"""What engines are called for, a module a purpose: the request as data and as a model reads it, and the answer."""
