"""The fixtures of the other operator pages."""

from tests.moments_app.operator.conftest import built, prompt

__all__ = ["built", "prompt"]
