"""Benchmark of answers: a language model answers questions from contexts alone, and a judge decides."""
