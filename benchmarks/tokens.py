"""Comparison of `estimate_tokens` with real tokenizers: `python -m benchmarks.tokens`.

It requires `pip install tiktoken`, which the product itself never needs. That package downloads its tables on first
use, or reads them from the folder in TIKTOKEN_CACHE_DIR.
"""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from sessions_app.text.length import estimate_tokens

ROOT = Path(__file__).resolve().parent.parent
SAMPLES = ROOT / "benchmarks" / "samples"
ENCODINGS = ("cl100k_base", "o200k_base")
COUNTS = SAMPLES / "counts.json"  # the tokenizers' counts, for tests without tokenizers
PART = 600  # characters, because a short text is harder to estimate than a long one


def texts() -> dict[str, str]:
    """Return the texts to measure. They don't change with the product."""
    lines = (ROOT / "memoryproject/demo/conversation.jsonl").read_text(encoding="utf-8").splitlines()
    return {
        "English": "\n".join(json.loads(line)["content"] for line in lines),
        "German": (SAMPLES / "german.txt").read_text(encoding="utf-8"),
        "Chinese": (SAMPLES / "chinese.txt").read_text(encoding="utf-8"),
        "Code": (SAMPLES / "code.txt").read_text(encoding="utf-8"),
        "JSON": "\n".join(lines[:100]),
    }


def parts(text: str) -> Iterable[str]:
    """Split a text into pieces of `PART` characters. A shorter rest is dropped unless it is the only piece."""
    return (text[start : start + PART] for start in range(0, max(1, len(text) - PART + 1), PART))


def row(name: str, text: str, encodings: list[Any]) -> str:
    """Return a line of the table: the estimate's ratio to each tokenizer's count, and the lowest ratio of a part."""

    def share(piece: str, encoding: Any) -> float:
        return estimate_tokens(piece) / len(encoding.encode(piece, disallowed_special=()))

    shares = [f"{share(text, encoding):.2f}" for encoding in encodings]
    least = min(share(piece, encoding) for piece in parts(text) for encoding in encodings)
    return f"| {name} | {len(text):,} | {' | '.join(shares)} | {least:.2f} |"


def main() -> None:
    import tiktoken  # type: ignore[import-not-found]

    encodings = [tiktoken.get_encoding(name) for name in ENCODINGS]
    print(f"| text | characters | {' | '.join(f'÷ {name}' for name in ENCODINGS)} | minimum, {PART} characters |")
    print("| --- | ---: | ---: | ---: | ---: |")
    for name, text in texts().items():
        print(row(name, text, encodings))
    counts = {name: [len(e.encode(text, disallowed_special=())) for e in encodings] for name, text in texts().items()}
    COUNTS.write_text(json.dumps(counts, indent=2) + "\n")


if __name__ == "__main__":
    main()
