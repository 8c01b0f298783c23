"""A plugin for LangGraph's own tests of its in-memory store. They get the platform's store instead."""

from typing import Any
from uuid import uuid4

import langgraph.store.memory

from memory_platform.client import Memory
from memory_platform.client.langgraph import MemoryStore


class NewStore(MemoryStore):
    """The store of a new user."""

    def __init__(self, **_: Any) -> None:
        super().__init__(Memory(f"tests {uuid4()}"))


langgraph.store.memory.InMemoryStore = NewStore
