"""Shorten texts: in the middle with a notice, or to a number of words."""


def shorten_middle(text: str, max_chars: int, hint: str = "") -> str:
    """Shorten a long text to its beginning and end.

    Args:
        max_chars: The maximum number of characters to keep, not counting the notice in the middle.
        hint: Where the whole text can be read.

    Returns:
        The shortened text, or the text itself if it is short enough.
    """
    left_out = len(text) - max_chars
    if left_out <= 0:
        return text
    head = (max_chars + 1) // 2
    tail = max_chars - head
    notice = f" … [{left_out:,} characters left out{f'; the whole: {hint}' if hint else ''}] … "
    return text[:head] + notice + (text[-tail:] if tail else "")


def cut_words(text: str, most: int) -> str:
    """Return at most `most` words, cut at the end of a sentence if possible, otherwise at a word."""
    text = " ".join(text.split())
    parts = text.split(" ")
    if len(parts) <= most:
        return text
    kept = " ".join(parts[:most])
    end = max(kept.rfind(mark) for mark in (". ", "! ", "? ", "。"))
    return kept[: end + 1] if end > 0 else kept


def cut_lines(text: str, most: int) -> str:
    """Return at most `most` words, cut at a line or sentence. Line breaks stay."""
    kept: list[str] = []
    left = most
    for line in text.split("\n"):
        words = line.split()
        if len(words) > left:
            short = " ".join(words[:left])
            end = max(short.rfind(mark) for mark in (". ", "! ", "? "))
            if end > 0 or not kept:
                kept.append(short[: end + 1] if end > 0 else short)
            break
        kept.append(line)
        left -= len(words)
    return "\n".join(kept).strip()
