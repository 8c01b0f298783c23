"""Message content that is a list of parts, as in chat model APIs: its text, and the parts that are not text."""

from collections.abc import Mapping, Sequence
from typing import Any

from sessions_app.shorten import shorten_middle

DATA_MAX_CHARS = 200  # maximum characters stored of a picture or file that is embedded in a message
MAX_DEPTH = 100  # of the search for embedded data; anything nested deeper can't be stored

Fields = dict[str, Any]  # a message's fields in the format of the API


def text_and_parts(content: str | Sequence[Any] | None) -> tuple[str, list[Any]]:
    """Return the text of a message's content, and the parts that are not text: pictures, sound, files."""
    if content is None or isinstance(content, str):
        return content or "", []
    texts: list[str] = []
    others: list[Any] = []
    for part in content:
        text = part.get("text") if isinstance(part, dict) else part
        if isinstance(text, str):
            texts.append(text)
        else:
            others.append(without_data(part))
    return "\n".join(filter(None, texts)), others


def without_data(value: Any, *, is_data: bool = False, depth: int = 0) -> Any:
    """Return a copy with the data of pictures and files shortened and marked as such."""
    if depth == MAX_DEPTH:
        return value
    if isinstance(value, dict):
        return {
            key: without_data(part, is_data=key in ("data", "file_data"), depth=depth + 1)
            for key, part in value.items()
        }
    if isinstance(value, list):
        return [without_data(part, depth=depth + 1) for part in value]
    if isinstance(value, str) and (is_data or value.startswith("data:")):
        return shorten_middle(value, DATA_MAX_CHARS)
    return value


def filled(fields: Mapping[str, Any]) -> Fields:
    """Return the fields that are not empty."""
    return {name: value for name, value in fields.items() if value not in (None, "", [], {})}
