"""A process that serves a request like a web process, and runs its jobs like a worker.

python -m tests.support.one_trace PATH BODY HEADERS
"""

import asyncio
import json
import sys

import httpx2

from memoryproject.asgi import application
from moments_app.jobs.process import Lane
from moments_app.jobs.worker import Worker


async def post(path: str, body: str, headers: dict[str, str]) -> str:
    """Send the request. Return its id."""
    transport = httpx2.ASGITransport(app=application)
    async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
        answer = await client.post(path, content=body, headers=headers)
    assert answer.is_success, answer.status_code
    return str(answer.headers["X-Request-Id"])


if __name__ == "__main__":
    path, body, headers = sys.argv[1:]
    sys.stdout.write(asyncio.run(post(path, body, json.loads(headers))))
    worker = Worker(sorted(Lane, reverse=True), exits_when_idle=True)  # wakes no other workers, because there are none
    while worker._run_one():
        pass
