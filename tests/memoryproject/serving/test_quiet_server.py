"""Uvicorn's server, which rarely wakes up."""

import asyncio
import time
from email.utils import parsedate_to_datetime

import pytest
from starlette.applications import Starlette
from uvicorn import Config

from memoryproject.serving.quiet_server import QuietServer


@pytest.mark.slow
def test_the_date_of_a_response_is_current_after_a_long_sleep_of_the_server() -> None:
    config = Config(Starlette())
    config.load()
    server = QuietServer(config)
    asyncio.run(server.on_tick(0))
    time.sleep(1.1)
    headers = dict(server.server_state.default_headers)
    assert abs(parsedate_to_datetime(headers[b"date"].decode()).timestamp() - time.time()) <= 1
    assert headers[b"server"] == b"uvicorn"
