"""A process that processes the texts of an import while the import stores and reads messages.

It loads the language models, but not Django, so neither process needs much memory.
"""

import os
import subprocess
import sys
from contextlib import suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any, NamedTuple, Self

from sessions_app import lexemes
from sessions_app.refusals import Refusal
from sessions_app.text.length import estimate_tokens

# The process starts if a list has this many characters, with `TEXT_SIZE` added for each text. Processing them takes as
# long as starting it.
MANY = 1_000_000
TEXT_SIZE = 1_000


class ProcessKilled(Refusal):
    def __init__(self) -> None:
        super().__init__(
            "A process of the import was killed, for example because memory ran out. Run the import again: it skips "
            "the messages that are already stored."
        )


class Text(NamedTuple):
    name: str
    content: str
    payload: Any


class Processed(NamedTuple):
    tokens: int
    vector: str  # the words


class TextProcess:
    """Processes one list of texts at a time. The process starts with the first list of many or long texts."""

    def __enter__(self) -> Self:
        self._process: subprocess.Popen[bytes] | None = None
        self._processed: list[Processed] = []
        return self

    def __exit__(self, *_: object) -> None:
        if self._process:
            self._connection.close()
            self._process.kill()
            self._process.wait()

    def begin(self, texts: list[Text]) -> None:
        """Begin to process texts. Call `finish` before the next `begin`.

        Raises:
            ProcessKilled: `finish` also raises this error.
        """
        if self._process is None and sum(TEXT_SIZE + len(text.content) for text in texts) < MANY:
            self._processed = _processed(texts)
            return
        if self._process is None:
            self._start()
        try:
            self._connection.send(texts)
        except ConnectionError:
            raise ProcessKilled from None

    def finish(self) -> list[Processed]:
        if self._process is None:
            return self._processed
        try:
            found: list[Processed] = self._connection.recv()
        except (EOFError, ConnectionError):
            raise ProcessKilled from None
        return found

    def _start(self) -> None:
        # Not `multiprocessing.Process`, because it would run the main module again, which may be a script.
        self._connection, child = Pipe()
        with child:
            code = f"from {__name__} import answer; answer({child.fileno()})"
            self._process = subprocess.Popen(  # noqa: S603 (our own code)
                [sys.executable, "-c", code],
                pass_fds=[child.fileno()],
                env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
                start_new_session=True,  # Ctrl-C ends only the import, which ends this process
            )


def answer(handle: int) -> None:
    """Process the texts that the parent sends until it ends."""
    with Connection(handle) as connection, suppress(EOFError, ConnectionError):
        while True:
            connection.send(_processed(connection.recv()))


def _processed(texts: list[Text]) -> list[Processed]:
    # one list after the other, because tokens and words compete for CPU caches
    tokens = [estimate_tokens(text.content, text.payload) for text in texts]
    vectors = [lexemes.vector(f"{text.name}\n{text.content}") for text in texts]
    return list(map(Processed, tokens, vectors))
