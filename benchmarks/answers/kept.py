"""Results in files, so an interrupted run can resume."""

import json
import threading
from collections.abc import ItemsView
from pathlib import Path
from typing import Any

Key = tuple[str, ...]


class KeptResults:
    """Results by key, one JSON object per line of a file. Safe to use from several threads.

    Args:
        path: The file, which is created with the first result. An incomplete last line is dropped.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._by_key: dict[Key, dict[str, Any]] = {}
        written = path.read_bytes() if path.exists() else b""
        whole = written[: written.rfind(b"\n") + 1]
        if whole != written:
            path.write_bytes(whole)
        for line in whole.splitlines():
            result = json.loads(line)
            self._by_key[tuple(result["key"])] = result

    def __contains__(self, key: Key) -> bool:
        return key in self._by_key

    def __getitem__(self, key: Key) -> dict[str, Any]:
        return self._by_key[key]

    def items(self) -> ItemsView[Key, dict[str, Any]]:
        return self._by_key.items()

    def keep(self, key: Key, **result: Any) -> None:
        """Write a result."""
        with self._lock:
            self._by_key[key] = {"key": key, **result}
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(self._by_key[key], ensure_ascii=False) + "\n")
