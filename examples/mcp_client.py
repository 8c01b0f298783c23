"""Read and search a person's memory over MCP: `python examples/mcp_client.py "Where did I leave the keys?"`.

Requires `pip install mcp`, and a user's API key in the environment variable MEMORY_KEY. MEMORY_URL defaults to
http://localhost:8000.
"""

import asyncio
import json
import os
import sys

import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

URL = os.environ.get("MEMORY_URL", "http://localhost:8000")


async def main(question: str) -> None:
    headers = {"Authorization": f"Bearer {os.environ['MEMORY_KEY']}"}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=60) as http,
        Client(streamable_http_client(f"{URL}/mcp", http_client=http)) as client,
    ):
        [newest] = (await client.read_resource("rem://moments")).contents
        print("The newest moments:", newest.text)  # type: ignore[union-attr]  # the platform serves text
        found = await client.call_tool("search_long_term_memory", {"query": question, "match_count": 5})
        print("Found:", json.dumps(found.structured_content, indent=2))


if __name__ == "__main__":
    if len(sys.argv) != 2 or "MEMORY_KEY" not in os.environ:
        sys.exit(__doc__)
    asyncio.run(main(sys.argv[1]))
