"""The namespace of the memory platform's client."""
