"""Sentences about what somebody said, and whether each is true."""
