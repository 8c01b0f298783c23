"""The applications of the keys that this process has seen lately, for what must not ask the database.

Only keys of further applications are noted: whoever is not known is taken for one of the first.
"""

MOST = 10_000

_applications: dict[str, int] = {}


def note(prefix: str, application: int) -> None:
    """Note whose a valid key is."""
    if len(_applications) >= MOST:
        _applications.clear()
    _applications[prefix] = application


def application_of(prefix: str) -> int | None:
    """Return the primary key of a key's application; None for the first one, and where it isn't known."""
    return _applications.get(prefix)
