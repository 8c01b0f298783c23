"""Client of the REST interface: `Memory` is one person's memory, `AsyncMemory` the same with `await`.

    from memory_platform.client import Memory

    memory = Memory("nora", url="http://localhost:8000", key="mem_…")
    memory.add("I restore kilns in Turin.")
    print(memory.context("Where do I restore kilns?")["context"])

Calls that came to nothing are repeated where that can't do anything twice; messages get external ids of the client's
for that. `Client` and `AsyncClient` hold the connections, and `call` any operation of the interface.
"""

from memory_platform.client.asynchronous import AsyncClient, AsyncMemory
from memory_platform.client.blocking import Client, Memory
from memory_platform.client.errors import CannotStart, MemoryPlatformError, Refused, Unreachable

__all__ = [
    "AsyncClient",
    "AsyncMemory",
    "CannotStart",
    "Client",
    "Memory",
    "MemoryPlatformError",
    "Refused",
    "Unreachable",
]
