"""The local embedder: texts become vectors in this process, by a sentence model from a folder.

Nothing is fetched and nothing leaves. The folder is laid out as such models are published: `model.onnx` (or
`onnx/model.onnx`), `tokenizer.json`, and `1_Pooling/config.json` where the vector of a text is not the mean of its
tokens'. One thread computes, so that a web process has others for requests, and a worker may fork.
"""

import json
import os
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Self

import numpy
from numpy.typing import NDArray

from moments_app.engines.embeddings import cut_of, problem_of
from moments_app.engines.interface import CallRecord, EngineError
from sessions_app.optional_packages import extra

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # or it begins threads, and workers fork

with extra("local"):
    from onnxruntime import InferenceSession, SessionOptions
    from tokenizers import Tokenizer

WHOLE = "sentence_embedding"  # an output that has the vectors of texts themselves
MOST_TOKENS = 512  # of a text, where the tokenizer doesn't say
AT_ONCE = 16  # texts, alike in length, so that memory stays small
_FATAL = 4  # ONNX runtime's level of what it prints by itself

Vectors = NDArray[numpy.float32]


class LocalEmbedder:
    """Embeds texts with a model of this process.

    Args:
        folder: of the model.
        folder_has: its name, by which its vectors are kept.
        model: name of the one that is asked for.
        dimensions: numbers of a vector.
    """

    calls_at_once = 1  # it computes; more would take the cores from others

    def __init__(self, *, folder: Path, folder_has: str, model: str, dimensions: int) -> None:
        self.name = f"local:{model}"
        self._folder, self._folder_has, self._model = folder, folder_has, model
        self._dimensions = dimensions

    def record(self, call: CallRecord) -> None:
        """Do nothing: no call leaves this process."""

    def recording(self, record: Callable[[CallRecord], None]) -> Self:
        """Return itself: no call leaves this process."""
        return self

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """Return the vectors of the texts, in their order; of a text the first 8,000 characters count.

        Raises:
            ValueError: there is no text, or one is blank.
            EngineError: the model can't be used, is another, or makes vectors of another width.
        """
        if self._model != self._folder_has:  # its vectors would say something else
            told = f"The local model is {self._folder_has}, not {self._model}: `manage.py embed --activate` changes it."
            raise EngineError("address", told)
        cut = cut_of(texts)
        try:
            vectors = loaded(self._folder).vectors(cut)
        except Exception as error:  # whatever the libraries raise; their words may quote the text
            raise EngineError("unavailable", f"{self.name} can't be used ({type(error).__name__}).") from None
        if problem := next(filter(None, (problem_of(vector, self._dimensions) for vector in vectors)), ""):
            raise EngineError("invalid_answer", f"{self.name} gave no valid answer: a vector {problem}.")
        return vectors


class SentenceModel:
    """A model that was loaded.

    Args:
        folder: of the model.
    """

    def __init__(self, folder: Path) -> None:
        options = SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = _FATAL
        path = next(filter(Path.exists, (folder / "model.onnx", folder / "onnx/model.onnx")), folder / "model.onnx")
        self._session = InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        self._inputs = {each.name for each in self._session.get_inputs()}
        outputs = [each.name for each in self._session.get_outputs()]
        self._output = WHOLE if WHOLE in outputs else outputs[0]
        self._takes_first = _pooling(folder).get("pooling_mode_cls_token", False)
        self._tokenizer = _tokenizer(folder)

    def vectors(self, texts: Sequence[str]) -> list[list[float]]:
        """Return the vectors of texts, each of length 1."""
        by_length = sorted(range(len(texts)), key=lambda index: len(texts[index]))
        made: dict[int, list[float]] = {}
        for start in range(0, len(texts), AT_ONCE):
            some = by_length[start : start + AT_ONCE]
            made |= zip(some, self._some([texts[index] for index in some]).tolist(), strict=True)
        return [made[index] for index in range(len(texts))]

    def _some(self, texts: list[str]) -> Vectors:
        tokens = self._tokenizer.encode_batch(texts)
        fed = {
            "input_ids": numpy.array([each.ids for each in tokens], dtype=numpy.int64),
            "attention_mask": numpy.array([each.attention_mask for each in tokens], dtype=numpy.int64),
            "token_type_ids": numpy.array([each.type_ids for each in tokens], dtype=numpy.int64),
        }
        [output] = self._session.run([self._output], {name: fed[name] for name in self._inputs})
        pooled = self._pooled(numpy.asarray(output, dtype=numpy.float32), fed["attention_mask"])
        lengths = numpy.linalg.norm(pooled, axis=1, keepdims=True)
        unit: Vectors = pooled / numpy.maximum(lengths, numpy.finfo(numpy.float32).tiny)
        return unit

    def _pooled(self, output: Vectors, mask: NDArray[numpy.int64]) -> Vectors:
        """Return one vector a text of the vectors of its tokens."""
        if output.ndim == 2:
            return output
        if self._takes_first:
            mask = (numpy.arange(mask.shape[1]) == 0) * mask
        weights = mask[:, :, None].astype(numpy.float32)
        mean: Vectors = (output * weights).sum(axis=1) / numpy.maximum(weights.sum(axis=1), 1)
        return mean


@cache
def loaded(folder: Path) -> SentenceModel:
    """Return the model of a folder, which is loaded once a process."""
    return SentenceModel(folder)


def _tokenizer(folder: Path) -> Tokenizer:
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    most = (tokenizer.truncation or {}).get("max_length", MOST_TOKENS)
    padding = tokenizer.padding or {}
    tokenizer.enable_truncation(most)
    # As long as the longest of some texts, whatever the file says: most are short.
    tokenizer.enable_padding(pad_id=padding.get("pad_id", 0), pad_token=padding.get("pad_token", "[PAD]"))
    return tokenizer


def _pooling(folder: Path) -> dict[str, Any]:
    path = folder / "1_Pooling/config.json"
    found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    return found
