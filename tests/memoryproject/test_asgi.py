"""The web process as it runs: what is served where, and what is not let through."""

import socket
import time
import urllib.error

import pytest

from tests.support.http import status_of
from tests.support.processes import environment, web

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.mark.slow
def test_it_serves_pages_static_files_and_streams_addresses_and_stops_though_connections_are_idle() -> None:
    with web(**environment()) as url:
        assert status_of(f"{url}/admin/login/") == 200
        assert status_of(f"{url}/static/admin/css/base.css") == 200
        assert status_of(f"{url}/api/v1/sessions") == 401
        assert status_of(f"{url}/v1/nothing") == 404
        idle = socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2])))
        idle.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert idle.recv(100).startswith(b"HTTP/1.1 200")
        began = time.monotonic()
    assert time.monotonic() - began < 20
    idle.close()


@pytest.mark.slow
def test_only_the_proxys_own_header_says_that_a_request_came_over_https() -> None:
    with web(**environment(HTTPS="true", BEHIND_PROXY="true")) as url:
        assert status_of(f"{url}/api/v1/sessions", **{"X-Forwarded-Proto": "https"}) == 401
        with pytest.raises(urllib.error.URLError):  # redirected to HTTPS, which nobody speaks here
            status_of(f"{url}/api/v1/sessions", X_Forwarded_Proto="https")
