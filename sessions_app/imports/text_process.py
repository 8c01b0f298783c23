"""A process that processes the texts of an import while the import stores and reads messages.

It loads the language models, but not Django. For a small import, the command itself processes the texts.
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

# The size of the list that starts the process. Smaller lists are processed before the process would have started. The
# size of a list is its number of characters, plus `TEXT_SIZE` per text.
START_SIZE = 1_000_000
TEXT_SIZE = 1_000


class ProcessKilled(Refusal):
    """The process was killed, for example by the kernel because memory ran out."""

    status = 503

    def __init__(self) -> None:
        super().__init__(
            "A process of the import was killed, for example because memory ran out. Run the import again: it skips "
            "the messages that are already stored."
        )


class ProcessFailed(Exception):
    """An error has ended the process, which has printed the traceback."""


class Text(NamedTuple):
    name: str
    content: str
    payload: Any


class Processed(NamedTuple):
    tokens: int
    vector: str  # the words


class TextProcess:
    """Processes one list of texts at a time. The first large list starts the process."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._processed: list[Processed] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process:
            self._connection.close()
            self._process.kill()
            self._process.wait()

    def begin(self, texts: list[Text]) -> None:
        """Begin to process texts. Call `finish` before the next `begin`.

        Raises:
            ProcessKilled, ProcessFailed: The process has ended.
        """
        if self._process is None and sum(TEXT_SIZE + len(text.content) for text in texts) < START_SIZE:
            self._processed = _processed(texts)
            return
        if self._process is None:
            self._process = self._start()
        try:
            self._connection.send(texts)
        except ConnectionError:
            raise self._reason(self._process) from None

    def finish(self) -> list[Processed]:
        """Return the results of the last `begin`, in its order. May raise the same errors."""
        if self._process is None:
            return self._processed
        try:
            found: list[Processed] = self._connection.recv()
        except (EOFError, ConnectionError):
            raise self._reason(self._process) from None
        return found

    def _reason(self, ended: "subprocess.Popen[bytes]") -> Exception:
        return ProcessKilled() if ended.wait() < 0 else ProcessFailed("The text process has failed.")

    def _start(self) -> "subprocess.Popen[bytes]":
        # `multiprocessing.Process` would import the main module again, which may be a script.
        self._connection, child = Pipe()
        with child:
            code = f"from {__name__} import serve; serve({child.fileno()})"
            return subprocess.Popen(  # noqa: S603 (our own code)
                [sys.executable, "-c", code],
                pass_fds=[child.fileno()],
                env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
                start_new_session=True,  # Ctrl-C ends only the import, which ends this process
            )


def serve(descriptor: int) -> None:
    """Process the lists of texts that the parent sends. Return when the parent ends."""
    with Connection(descriptor) as connection, suppress(EOFError, ConnectionError):
        while True:
            connection.send(_processed(connection.recv()))


def _processed(texts: list[Text]) -> list[Processed]:
    # one list after the other, because tokens and words compete for CPU caches
    tokens = [estimate_tokens(text.content, text.payload) for text in texts]
    vectors = [lexemes.vector(f"{text.name}\n{text.content}") for text in texts]
    return list(map(Processed, tokens, vectors))
