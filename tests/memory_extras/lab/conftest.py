"""Who looks, and at what: as on the other pages of operators."""

from tests.moments_app.operator.conftest import built, root

__all__ = ["built", "root"]
