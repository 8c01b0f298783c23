"""Estimate the tokens of texts, and shorten texts.

Tokens are estimated, because real tokenizers need large tables. The estimate is a weighted count of the units that
tokenizers split a text into: words, long words, digits, punctuation, and characters of other scripts. The weights were
fitted to the larger count of two real tokenizers (OpenAI's `cl100k_base` and `o200k_base`) for code, JSON, and prose in
several languages. `python -m benchmarks.tokens` measures the accuracy (docs/benchmarks.md). The estimate of a text is
at most the sum of the estimates of its lines.
"""

import json
import re
from typing import Any

# Weights are integers, in hundredths of a token, so sums are exact.
_WORD = 102  # a run of letters
_LONG_WORD = 310  # per nine letters of a run, because tokenizers split long words
_CAMEL_CASE = 140  # an uppercase letter after a lowercase one, which is common in base64
_CAPITALS = 75  # per three uppercase letters of a run
_DIGITS = 150  # per three digits of a run, rounded up
_MARK = 50
_LINE_BREAK = 140  # a run of line breaks
_TAB = 80  # a tab, or a carriage return
_INDENT = 100  # sixteen spaces
_CONTROL = 100

_SCRIPTS: list[tuple[int, re.Pattern[str]]] = [
    (170, re.compile("[\u00c0-\u024f]+")),  # accented Latin letters, which also count as letters of a word
    (85, re.compile("[\u0250-\u08ff]+")),  # Greek, Cyrillic, Hebrew, Arabic
    (125, re.compile("[\u0900-\u1fff\u2e80-\ud7af\uf900-\ufaff\uff00-\uffef]+")),  # India to Korea
    (200, re.compile("[\u0080-\u00bf\u2000-\u2e7f\ud7b0-\uf8ff\ufb00-\ufeff\U00010000-\U0010ffff]+")),  # signs, emoji
]
_NOT_ASCII = re.compile("[^\x00-\x7f]+")
_BEYOND_LATIN_1 = re.compile("[\u0100-\u024f]")  # Latin letters that Latin-1 lacks
_GROUP_OF_DIGITS = re.compile(r"\d{1,3}")
_LINE_BREAKS = re.compile(b"\n+")


# Weights of tokens that count toward the next formation, by role. The weight for other roles is 0.5.
_WEIGHTS = {"user": 1.0, "assistant": 0.2}


def weigh_tokens(role: str, tokens: int) -> float:
    """Return the weighted tokens of a turn. They count toward `MEMORY_FORMATION__TOKEN_INTERVAL`."""
    return tokens * _WEIGHTS.get(role, 0.5)


def _kind(byte: int) -> str:
    """Return a character that represents the kind of the byte."""
    character = chr(byte)
    if byte >= 0x80:
        return "x" if byte >= 0xC0 else "-"  # an accented letter, treated as caseless, or a sign
    if character.isalpha():
        return "a" if character.islower() else "A"
    if character.isdigit() or character in "\n ":
        return character
    return "\t" if character in "\t\r" else "." if character.isprintable() else "\0"


_KINDS = "".join(map(_kind, range(256))).encode()
_LETTERS = bytes(ord("a") if kind in b"aAx" else ord(" ") for kind in _KINDS)
_NUMBERS = bytes(kind if kind in b"0123456789" else ord(" ") for kind in _KINDS)


def estimate_tokens(text: str, payload: Any = None) -> int:
    """Return the estimated tokens of a text and its payload, rounded up. 0 for an empty text."""
    if payload is not None:
        text += "\n" + json.dumps(payload, ensure_ascii=False)
    hundredths = _estimate_latin(text.encode()) if text.isascii() else _estimate_any(text)
    return -(-hundredths // 100)


def _estimate_latin(text: bytes) -> int:
    """Estimate the tokens of a Latin-1 text, in hundredths. `_estimate_any` adds the accented letters and signs.

    Searches for fixed strings, which is much faster than regular expressions.
    """
    kinds, letters = text.translate(_KINDS), text.translate(_LETTERS) + b" "
    line_breaks = kinds.count(b"\n")
    if line_breaks > 1:
        line_breaks = len(_LINE_BREAKS.findall(kinds))
    return (
        _WORD * letters.count(b"a ")
        + _LONG_WORD * letters.count(b"aaaaaaaaa")
        + _CAMEL_CASE * kinds.count(b"aA")
        + _CAPITALS * kinds.count(b"AAA")
        + _DIGITS * sum((len(number) + 2) // 3 for number in text.translate(_NUMBERS).split())
        + _MARK * kinds.count(b".")
        + _LINE_BREAK * line_breaks
        + _TAB * kinds.count(b"\t")
        + _INDENT * kinds.count(b"                ")
        + _CONTROL * kinds.count(b"\0")
    )


def _estimate_any(text: str) -> int:
    """Estimate the tokens of a text in any script, in hundredths."""
    other = "".join(_NOT_ASCII.findall(text))
    latin = _BEYOND_LATIN_1.sub("\u00c0", text).encode("latin-1", "replace")
    # Don't count the question marks that replaced characters outside of Latin-1.
    replaced = latin.count(b"?") - text.count("?")
    scripts = sum(weight * sum(map(len, script.findall(other))) for weight, script in _SCRIPTS)
    return _estimate_latin(latin) - _MARK * replaced + scripts + _DIGITS * _digits_of_scripts(text, latin, other)


def _digits_of_scripts(text: str, latin: bytes, other: str) -> int:
    """Return the number of groups of non-ASCII digits."""
    if not any(map(str.isdecimal, other)):
        return 0
    return len(_GROUP_OF_DIGITS.findall(text)) - len(_GROUP_OF_DIGITS.findall(latin.decode("latin-1")))


def shorten_middle(text: str, max_chars: int, hint: str = "") -> str:
    """Return a text without its middle, or the whole text if it is short enough.

    Keeps at most `max_chars`, not counting the notice in the middle. `hint` says where the whole text is.
    """
    left_out = len(text) - max_chars
    if left_out <= 0:
        return text
    head = (max_chars + 1) // 2
    tail = max_chars - head
    notice = f" … [{left_out:,} characters left out{f'; the whole: {hint}' if hint else ''}] … "
    return text[:head] + notice + (text[-tail:] if tail else "")


def cut_words(text: str, max_words: int) -> str:
    """Return at most `max_words` words, cut at the end of a sentence if possible, otherwise between words."""
    text = " ".join(text.split())
    parts = text.split(" ")
    if len(parts) <= max_words:
        return text
    kept = " ".join(parts[:max_words])
    end = max(kept.rfind(mark) for mark in (". ", "! ", "? ", "。"))
    return kept[: end + 1] if end > 0 else kept


def cut_lines(text: str, max_words: int) -> str:
    """Return at most `max_words` words, cut at a line or sentence. Line breaks stay."""
    kept: list[str] = []
    left = max_words
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
