"""Readers of other systems' conversations, one module per format."""
