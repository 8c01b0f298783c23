"""Shortening a long text in the middle, saying so."""


def shorten_middle(text: str, max_chars: int, hint: str = "") -> str:
    """Keeps the beginning and the end of a long text.

    Args:
        text: any text.
        max_chars: most characters kept of it; the notice in the middle comes on top.
        hint: where the whole can be read.

    Returns:
        The text itself when it is short enough.
    """
    left_out = len(text) - max_chars
    if left_out <= 0:
        return text
    head = (max_chars + 1) // 2
    tail = max_chars - head
    notice = f" … [{left_out:,} characters left out{f'; the whole: {hint}' if hint else ''}] … "
    return text[:head] + notice + (text[-tail:] if tail else "")
