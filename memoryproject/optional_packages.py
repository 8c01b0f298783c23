"""Imports of packages that only some settings need, and that an extra of our package installs."""

from collections.abc import Iterator
from contextlib import contextmanager

from django.core.exceptions import ImproperlyConfigured


@contextmanager
def extra(name: str) -> Iterator[None]:
    """If an import in the block fails, raise an error that names the extra to install.

    Raises:
        ImproperlyConfigured: A package is missing.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        told = (
            f"The package {error.name} isn't installed. Run `pip install 'memory-platform[{name}]'`, or unset the "
            "settings that need it."
        )
        raise ImproperlyConfigured(told) from error
