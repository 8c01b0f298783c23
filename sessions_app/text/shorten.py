"""Shortening of a long text in the middle, with a notice."""


def shorten_middle(text: str, max_chars: int, hint: str = "") -> str:
    """Shorten a long text to its beginning and end.

    Args:
        text: Any text.
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
