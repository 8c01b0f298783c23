"""What somebody changed in a text or a list, applied to another state of it.

A text goes back to how it was before something was made of a retracted turn; what people wrote into it since is theirs
and stays. It is compared sentence by sentence, so that what they left alone goes back with the rest.
"""

import re
from collections.abc import Sequence


def merged(base: Sequence[str], before: Sequence[str], after: Sequence[str]) -> list[str]:
    """Return `base` without what was taken out between `before` and `after`, and with what was put in."""
    remaining = [item for item in base if item in after or item not in before]
    return remaining + [item for item in after if item not in before and item not in remaining]


def merged_text(base: str, before: str, after: str) -> str:
    """Return the same for a text, by its sentences and lines."""
    if before == after:
        return base
    parts = merged(_sentences(base), _sentences(before), _sentences(after))
    return "\n".join(parts) if "\n" in base + after else " ".join(parts)


def _sentences(text: str) -> list[str]:
    return [part for part in re.split(r"(?<=[.!?。])\s+|\n+", text) if part.strip()]
