"""Packages that are installed on demand, by an extra of ours: the settings that need them say so."""

from collections.abc import Iterator
from contextlib import contextmanager

from django.core.exceptions import ImproperlyConfigured


@contextmanager
def extra(name: str) -> Iterator[None]:
    """Have an import that fails name what to install.

    Args:
        name: of the extra.

    Raises:
        ImproperlyConfigured: a package is missing.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        told = f"{error.name} isn't installed: `pip install 'memory-platform[{name}]'`, or unset what needs it."
        raise ImproperlyConfigured(told) from error
