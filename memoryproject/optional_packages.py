"""Imports of packages that only some settings need, and that an extra of our package installs."""

from collections.abc import Iterator
from contextlib import contextmanager

from django.core.exceptions import ImproperlyConfigured


@contextmanager
def extra(name: str) -> Iterator[None]:
    """If an import in the block fails, raise an error that names the extra to install.

    Args:
        name: The name of the extra.

    Raises:
        ImproperlyConfigured: A package is missing.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        told = f"{error.name} isn't installed: `pip install 'memory-platform[{name}]'`, or unset what needs it."
        raise ImproperlyConfigured(told) from error
