"""The fixtures of the other operator pages."""

from tests.moments_app.operator.conftest import built, prompt, root

__all__ = ["built", "prompt", "root"]
