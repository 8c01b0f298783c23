"""The embeddings server's process and HTTP API: `POST /v1/embeddings` and `GET /v1/models`, compatible with OpenAI.

The process loads the model before it listens.

The field `input_type` specifies whether the texts are queries or documents, with the values of Cohere, Voyage or E5.
The default is documents.
"""

import asyncio
import base64
import json
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import uvicorn
from pydantic import BaseModel, Field, ValidationError
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from memoryproject.embeddings import remove_address, served, write_address
from memoryproject.embeddings.queue import Queue, QueueFull
from memoryproject.embeddings.served import Embedding, FloatArray, Model
from memoryproject.serving.quiet_server import QuietServer

MAX_CONNECTIONS = 128
MAX_BODY_BYTES = 8_000_000
QUERY_TYPES = ("query", "search_query")
CLIENT_GONE = 499


def serve(host: str, port: int, model_folder: Path | None, data_dir: Path | None) -> None:
    """Load the model, then serve until asked to end.

    Args:
        host, port: The address to listen on. Port 0 is any free port.
        model_folder: The folder of an ONNX model, or None for the packaged one.
        data_dir: The folder for the address file, if any.
    """
    try:
        app = application(served.load(model_folder))
    except Exception as error:
        sys.exit(f"The embeddings model can't be loaded: {error}")
    config = uvicorn.Config(
        app, log_level="warning", access_log=False, limit_concurrency=MAX_CONNECTIONS, timeout_graceful_shutdown=1
    )
    with _listening(host, port) as listening:
        host, port = listening.getsockname()[:2]
        server = QuietServer(config)
        for name in (signal.SIGINT, signal.SIGTERM):
            # Until Uvicorn sets its own handlers, use one that raises no exception, because library code could ignore
            # it.
            signal.signal(name, server.handle_exit)
        if data_dir:
            write_address(data_dir, f"http://{host}:{port}/v1")
        try:
            server.run([listening])
        finally:
            if data_dir:
                remove_address(data_dir)


def _listening(host: str, port: int) -> socket.socket:
    try:
        return socket.create_server((host, port), backlog=MAX_CONNECTIONS)
    except (OSError, OverflowError) as error:
        sys.exit(f"The embeddings server can't listen on {host}, port {port}: {error}")


class EmbeddingsRequest(BaseModel):
    model: str = ""
    input: str | list[str] = Field(min_length=1)
    input_type: Literal["query", "search_query", "document", "search_document", "passage"] = "document"
    dimensions: int | None = None
    encoding_format: Literal["float", "base64"] = "float"

    @property
    def texts(self) -> list[str]:
        return [self.input] if isinstance(self.input, str) else self.input


class Refused(Exception):
    def __init__(self, status: int, message: str, **headers: str) -> None:
        super().__init__(message)
        self.status, self.headers = status, headers


def application(model: Model) -> Starlette:

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        app.state.model, app.state.queue = model, Queue(model)
        yield

    routes = [
        Route("/v1/embeddings", embeddings, methods=["POST"]),
        Route("/v1/models", models),
        Route("/healthz", health),
    ]
    return Starlette(routes=routes, lifespan=lifespan, exception_handlers={Refused: _refused})


async def health(request: Request) -> Response:
    return Response()


async def models(request: Request) -> Response:
    entry = {"id": request.app.state.model.name, "object": "model", "owned_by": "memory-platform"}
    return JSONResponse({"object": "list", "data": [entry]})


async def embeddings(request: Request) -> Response:
    asked = await _parse_body(request)
    _check_model(asked, request.app.state.model)
    try:
        done = request.app.state.queue.add(asked.texts, is_query=asked.input_type in QUERY_TYPES)
    except QueueFull as error:
        raise Refused(429, str(error), **{"Retry-After": str(error.seconds)}) from None
    gone = asyncio.create_task(_wait_for_disconnect(request))
    try:
        await asyncio.wait({done, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not done.done():
            return Response(status_code=CLIENT_GONE)
        return JSONResponse(_answer(asked, done.result(), request.app.state.model.name))
    except asyncio.CancelledError:
        raise Refused(503, "The server is stopping. Try again later.") from None
    finally:
        done.cancel()
        gone.cancel()


async def _parse_body(request: Request) -> EmbeddingsRequest:
    """Parse the body. Raise `Refused` if it is too large or not valid."""
    body = bytearray()
    try:
        async for chunk in request.stream():
            body += chunk
            if len(body) > MAX_BODY_BYTES:
                raise Refused(413, f"The request body is longer than the limit of {MAX_BODY_BYTES:,} bytes.")
        return EmbeddingsRequest.model_validate(json.loads(body))
    except ClientDisconnect:
        raise Refused(CLIENT_GONE, "The client disconnected.") from None
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise Refused(400, f"{first['loc'][0] if first['loc'] else 'body'}: {first['msg']}.") from None
    except (ValueError, RecursionError):
        raise Refused(400, "The request body is not valid JSON.") from None


def _check_model(asked: EmbeddingsRequest, model: Model) -> None:
    if asked.model not in ("", model.name):
        raise Refused(404, f"model: this server only serves {model.name}.")
    if asked.dimensions not in (None, model.dimensions):
        raise Refused(400, f"dimensions: {model.name} only has vectors with {model.dimensions} dimensions.")


async def _wait_for_disconnect(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _answer(asked: EmbeddingsRequest, made: list[Embedding], name: str) -> dict[str, Any]:
    encode = _base64 if asked.encoding_format == "base64" else _floats
    tokens = sum(each.tokens for each in made)
    return {
        "object": "list",
        "data": [
            {"object": "embedding", "index": index, "embedding": encode(each.vector)} for index, each in enumerate(made)
        ],
        "model": name,
        "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
    }


def _floats(vector: FloatArray) -> list[float]:
    found: list[float] = vector.tolist()
    return found


def _base64(vector: FloatArray) -> str:
    return base64.b64encode(vector.astype("<f4").tobytes()).decode()


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, Refused)
    body = {"error": {"message": str(error), "type": "invalid_request_error"}}
    return JSONResponse(body, error.status, headers=error.headers)
