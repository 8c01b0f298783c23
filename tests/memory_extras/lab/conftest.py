"""The fixtures of the other operator pages."""

from tests.moments_app.operator.conftest import prompt

__all__ = ["prompt"]
