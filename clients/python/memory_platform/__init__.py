"""What applications import of the memory platform."""
