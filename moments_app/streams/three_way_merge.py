"""Apply a person's changes to a text or a list to another version of it.

After a retraction, a text returns to its version from before the retracted turn. People's later changes to it are kept.
Texts are compared sentence by sentence, so that sentences they did not change are restored as well.
"""

import re
from collections.abc import Sequence


def merged(base: Sequence[str], before: Sequence[str], after: Sequence[str]) -> list[str]:
    """Return `base` without the parts removed between `before` and `after`, and with the parts added."""
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
