"""What changed from one text to another, word by word, for pages to mark."""

import re
from dataclasses import dataclass
from difflib import SequenceMatcher


@dataclass(frozen=True)
class Part:
    """A stretch of either text.

    Args:
        change: `same`, `removed` or `added`.
        text: with the spaces and line breaks it has.
    """

    change: str
    text: str

    @property
    def words(self) -> int:
        """How many it has."""
        return len(self.text.split())


def word_diff(before: str, after: str) -> list[Part]:
    """The stretches in order; without those added it is the text before, without those removed the text after."""
    old, new = (re.findall(r"\s*\S+|\s+", text) for text in (before, after))
    parts: list[Part] = []
    for tag, i, j, k, m in SequenceMatcher(None, old, new).get_opcodes():
        if tag == "equal":
            parts.append(Part("same", "".join(old[i:j])))
            continue
        changed = Part("removed", "".join(old[i:j])), Part("added", "".join(new[k:m]))
        parts += [part for part in changed if part.text]
    return parts
