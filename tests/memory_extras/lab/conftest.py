"""Who looks, and at what: as on the other pages of operators."""

from tests.moments_app.operator.conftest import built, prompt, root

__all__ = ["built", "prompt", "root"]
