"""Benchmark of reading a moment over MCP."""

import json
from http.client import HTTPConnection

import psycopg
from django.db import connection

from benchmarks.build import SEED_MOMENTS
from benchmarks.cases import Case, measured
from benchmarks.clients import WORDS, Http
from benchmarks.figures import Figure
from benchmarks.seed import settle
from benchmarks.site import Site
from moments_app.models import Moment
from sessions_app.models import UserProfile

TITLE = "Read a moment over MCP"
NOTE = (
    "One client with a persistent connection reads `rem://moments/key/{key}`, and the same moment over REST. Each MCP "
    "read is independent, because the server keeps no sessions. Raw: the row of the moment, read by psycopg."
)
MOMENTS = 1_000
ROUNDS = 15
REPEATS = 4
WAYS = ("MCP", "REST")


def figures(site: Site) -> list[Figure]:
    user = UserProfile.objects.ensure("mcp")
    with connection.cursor() as cursor:
        cursor.execute(SEED_MOMENTS, [user.pk, WORDS, MOMENTS])
    settle()
    key = Moment.objects.filter(user=user).values_list("key", flat=True)[MOMENTS // 2]
    mcp, http = McpReader(site, key), Http(site.port, site.key)
    raw = psycopg.connect(site.conninfo, autocommit=True)
    row = "SELECT * FROM moments_app_moment WHERE user_id = %s AND key = %s"
    case = Case(
        "a moment",
        {
            "MCP": mcp.read,
            "REST": lambda: http.request("GET", f"/api/v1/moments/{key}?user_id=mcp"),
            "raw": lambda: raw.execute(row, [user.pk, key]).fetchall(),
        },
    )
    times = measured([case], rounds=ROUNDS, repeats=REPEATS)
    return [Figure.of(way, times[case.what, way], times[case.what, "raw"]) for way in WAYS]


class McpReader:
    """A client that reads one moment repeatedly. Responses are event streams, so they have no length."""

    def __init__(self, site: Site, key: str) -> None:
        self._http = HTTPConnection("127.0.0.1", site.port)
        self._headers = {
            "Authorization": f"Bearer {site.key}",
            "X-User-Id": "mcp",
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
        }
        params = {"uri": f"rem://moments/key/{key}"}
        self._body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "resources/read", "params": params})

    def read(self) -> None:
        """Read the moment once.

        Raises:
            RuntimeError: The request failed.
        """
        self._http.request("POST", "/mcp", self._body, self._headers)
        answer = self._http.getresponse().read()
        if b'"result"' not in answer:
            raise RuntimeError(answer[:500].decode())
