"""Cut an engine's text to a number of words."""


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
