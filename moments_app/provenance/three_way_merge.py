"""What somebody changed in a text or a list, done once more to another state of it.

A text goes back to how it was before something was made of a retracted turn; what people wrote into it since is theirs
and stays. It is compared sentence by sentence, so that what they left alone goes back with the rest.
"""

import re
from collections.abc import Sequence


def redone(base: Sequence[str], before: Sequence[str], after: Sequence[str]) -> list[str]:
    """`base` without what was taken out between `before` and `after`, and with what was put in."""
    kept = [item for item in base if item in after or item not in before]
    return kept + [item for item in after if item not in before and item not in kept]


def redone_text(base: str, before: str, after: str) -> str:
    """The same for the sentences and lines of a text."""
    if before == after:
        return base
    parts = redone(_sentences(base), _sentences(before), _sentences(after))
    return "\n".join(parts) if "\n" in base + after else " ".join(parts)


def _sentences(text: str) -> list[str]:
    return [part for part in re.split(r"(?<=[.!?。])\s+|\n+", text) if part.strip()]
