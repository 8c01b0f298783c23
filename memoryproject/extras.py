"""Loads extras, which the core doesn't import.

An extra is a Django app, the package `memory_extras.<name>`. The setting `EXTRAS` installs it. Its module `conf` may
have a class `Settings` with additional settings, and a function `extend(settings)`, which changes Django's settings.
Its module `urls`, if it has one, is included at the root. Everything else is registered by the extra's
`AppConfig.ready`, with the registries and signals of the core.

Extras in the sense of pip are something else: they install packages that only some settings need. `packages_of` names
the pip extra if such a package is missing.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from pkgutil import iter_modules
from types import ModuleType

from django.core.exceptions import ImproperlyConfigured

PACKAGE = "memory_extras"


def available() -> list[str]:
    """Return the names of all extras, installed or not. The list is empty if the package is missing."""
    if not find_spec(PACKAGE):
        return []
    return [module.name for module in iter_modules(import_module(PACKAGE).__path__) if module.ispkg]


def modules(extras: Iterable[str], name: str) -> Iterator[ModuleType]:
    """Import and yield the module `name` of each extra. Skip extras without this module."""
    for extra in extras:
        path = f"{PACKAGE}.{extra}.{name}"
        if find_spec(path):
            yield import_module(path)


@contextmanager
def packages_of(name: str) -> Iterator[None]:
    """If an import in the block fails, raise `ImproperlyConfigured` and name the extra to install."""
    try:
        yield
    except ModuleNotFoundError as error:
        message = (
            f"The package {error.name} isn't installed. Run `pip install '.[{name}]'` in the repository, or unset the "
            "settings that need it."
        )
        raise ImproperlyConfigured(message) from error
