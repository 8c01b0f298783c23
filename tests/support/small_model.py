"""Files of a sentence model with a few words. It looks up the vector of each word, like a real model's first layer.

The file is written by hand in ONNX's format (protobuf messages with field numbers): a `Gather` of rows.
"""

import json
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path

from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.normalizers import Lowercase
from tokenizers.pre_tokenizers import Whitespace

WIDTH = 3  # vehicles, music, anything else
MEANINGS = {
    "car": (1.0, 0.0, 0.1),
    "automobile": (1.0, 0.0, 0.1),
    "harpsichord": (0.0, 1.0, 0.1),
    "piano": (0.0, 1.0, 0.1),
}
OTHER = (0.0, 0.0, 0.3)
_FLOAT, _INT64 = 1, 7


def write_model(folder: Path, *, takes_first: bool = False) -> Path:
    """Write a model into a new folder, and return the folder.

    Args:
        folder: The folder to create.
        takes_first: Whether a text's vector is that of its first token.
    """
    folder.mkdir(parents=True)
    rows = {"[PAD]": OTHER, "[UNK]": OTHER} | MEANINGS
    tokenizer = Tokenizer(WordLevel({word: number for number, word in enumerate(rows)}, unk_token="[UNK]"))
    tokenizer.normalizer, tokenizer.pre_tokenizer = Lowercase(), Whitespace()
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "model.onnx").write_bytes(_lookup(list(rows.values())))
    if takes_first:
        (folder / "1_Pooling").mkdir()
        (folder / "1_Pooling/config.json").write_text(json.dumps({"pooling_mode_cls_token": True}))
    return folder


def _lookup(rows: Sequence[Sequence[float]]) -> bytes:
    table = _message(
        {1: [len(rows), WIDTH], 2: _FLOAT, 8: "rows", 9: b"".join(struct.pack("<3f", *row) for row in rows)}
    )
    node = _message({1: ["rows", "input_ids"], 2: "tokens", 4: "Gather"})
    graph = {1: node, 2: "lookup", 5: table, 11: _value("input_ids", _INT64, 2), 12: _value("tokens", _FLOAT, 3)}
    return _message({1: 8, 7: _message(graph), 8: _message({2: 13})})


def _value(name: str, kind: int, axes: int) -> bytes:
    shape = _message({1: [_message({2: f"axis{axis}"}) for axis in range(axes)]})
    return _message({1: name, 2: _message({1: _message({1: kind, 2: shape})})})


def _message(fields: Mapping[int, object]) -> bytes:
    """Return a protobuf message. Its fields are numbers, texts or bytes, or lists of these, by field number."""
    written = b""
    for number, value in fields.items():
        for one in value if isinstance(value, list) else [value]:
            if isinstance(one, int):
                written += _number(number << 3) + _number(one)
            else:
                body = one.encode() if isinstance(one, str) else one
                assert isinstance(body, bytes)
                written += _number(number << 3 | 2) + _number(len(body)) + body
    return written


def _number(value: int) -> bytes:
    return bytes([value]) if value < 128 else bytes([value & 127 | 128]) + _number(value >> 7)
