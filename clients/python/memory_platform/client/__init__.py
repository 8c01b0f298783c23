"""Client of the REST interface: `Memory` is one person's memory, `AsyncMemory` the same with `await`.

    from memory_platform.client import Memory

    memory = Memory("nora", url="http://localhost:8000", key="mem_…")
    memory.add("I restore kilns in Turin.")
    print(memory.context("Where do I restore kilns?")["context"])

Failed calls are retried if that is safe. For this purpose, the client gives messages external ids. `Client` and
`AsyncClient` manage connections, and their `call` calls any operation of the API.
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
