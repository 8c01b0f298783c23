"""Probes, trials of prompts, and pages to test memory: the playground and the recall console."""
