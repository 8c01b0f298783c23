"""The modules of this extra that define processes."""

from memory_extras.lab.probes import run

__all__ = ["run"]
