"""A process that computes the words of an import's texts while the import stores and reads messages.

It loads the language models, but not Django, so neither process needs much memory.
"""

import os
import subprocess
import sys
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Self

from sessions_app import lexemes

MANY_CHARS = 500_000  # starting the process takes as long as computing the words of this many characters


class WordsProcess:
    """Computes the words of one list of texts at a time. The process starts with the first list of long texts."""

    def __enter__(self) -> Self:
        self._process: subprocess.Popen[bytes] | None = None
        self._vectors: list[str] = []
        return self

    def __exit__(self, *_: object) -> None:
        if self._process:
            self._connection.close()
            self._process.kill()
            self._process.wait()

    def begin(self, texts: list[str]) -> None:
        """Begin to compute the words of texts. Call `finish` before the next `begin`."""
        if self._process is None and sum(map(len, texts)) < MANY_CHARS:
            self._vectors = [lexemes.vector(text) for text in texts]
            return
        if self._process is None:
            self._start()
        self._connection.send(texts)

    def finish(self) -> list[str]:
        """Return the words of each text, in the syntax of a `tsvector`."""
        return self._connection.recv() if self._process else self._vectors

    def _start(self) -> None:
        # Not `multiprocessing.Process`, because it would run the main module again, which may be a script.
        self._connection, child = Pipe()
        with child:
            code = f"from {__name__} import compute; compute({child.fileno()})"
            self._process = subprocess.Popen(
                [sys.executable, "-c", code],
                pass_fds=[child.fileno()],
                env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
                start_new_session=True,  # Ctrl-C ends only the import, which ends this process
            )


def compute(handle: int) -> None:
    """Answer until the parent ends."""
    with Connection(handle) as connection:
        while True:
            try:
                texts = connection.recv()
            except EOFError:
                return
            connection.send([lexemes.vector(text) for text in texts])
