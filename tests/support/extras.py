"""Skips tests of the core that use an extra if it isn't installed."""

import pytest

from memoryproject.settings import CONF


def needs(extra: str) -> pytest.MarkDecorator:
    """Return the mark of a test that needs an extra."""
    return pytest.mark.skipif(extra not in CONF.extras, reason=f"It takes the extra {extra}.")
