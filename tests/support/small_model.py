"""Files of a sentence model with a few words. It looks up the vector of each word, like a real model's first layer."""

import json
from collections.abc import Sequence
from pathlib import Path

from onnx import TensorProto, helper
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
    """Return a model that looks up the row of each token."""
    table = helper.make_tensor("rows", TensorProto.FLOAT, (len(rows), WIDTH), [value for row in rows for value in row])
    tokens = helper.make_tensor_value_info("input_ids", TensorProto.INT64, [None, None])
    vectors = helper.make_tensor_value_info("vectors", TensorProto.FLOAT, [None, None, WIDTH])
    node = helper.make_node("Gather", ["rows", "input_ids"], ["vectors"])
    graph = helper.make_graph([node], "lookup", [tokens], [vectors], [table])
    model: bytes = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8
    ).SerializeToString()
    return model
