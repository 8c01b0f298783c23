"""Benchmark of appending messages over HTTP."""

from collections.abc import Sequence
from itertools import chain
from statistics import median, quantiles

from benchmarks.chat import IDLE, waiting_streams
from benchmarks.clients import Clients, HttpAppend
from benchmarks.figures import Figure
from benchmarks.raw import RawAppend
from benchmarks.site import Site
from sessions_app.models import Session, UserProfile

TITLE = "Append over HTTP"
NOTE = (
    "Each client has a persistent connection and its own session, and sends one request after another. Raw: the eight "
    "statements of an append, sent by psycopg, with the same number of clients. Idle streams: open answers of the "
    "chat endpoint that wait for their model."
)
ROUNDS = 5
WARM_UP, HTTP_SECONDS, RAW_SECONDS = 0.5, 1.5, 0.8
BATCH, CLIENTS = 100, 8


def figures(site: Site) -> list[Figure]:
    return [
        _measured(site, "one message, 1 client", clients=1),
        _measured(site, f"one message, {CLIENTS} clients", clients=CLIENTS, wanted="≥ 400 requests/s, ≤ 15 × raw"),
        _measured(site, f"{BATCH} messages in a request, 1 client", clients=1, batch=BATCH),
        _measured(site, f"{BATCH} messages in a request, {CLIENTS} clients", clients=CLIENTS, batch=BATCH),
        _beside_idle_streams(site),
    ]


def _beside_idle_streams(site: Site) -> Figure:
    what = f"one message, {CLIENTS} clients, and {IDLE} idle streams"
    with waiting_streams(site.model) as open_one:
        for _ in range(IDLE):
            open_one(site.port, site.key)
        return _measured(site, what, clients=CLIENTS)


def _measured(site: Site, what: str, *, clients: int, batch: int = 1, wanted: str = "") -> Figure:
    _make_sessions(clients, batch)
    http = Clients(HttpAppend(site.port, site.key, batch), clients)
    raw = Clients(RawAppend(site.conninfo, site.key, batch), clients)
    with http, raw:
        http.run(WARM_UP)
        raw.run(WARM_UP)
        pairs = [(http.run(HTTP_SECONDS), raw.run(RAW_SECONDS)) for _ in range(ROUNDS)]
    ours, theirs = [times for times, _ in pairs], [times for _, times in pairs]
    return Figure.of(what, ours, theirs, rate=_rate(ours, clients, batch), wanted=wanted)


def _rate(rounds: Sequence[Sequence[float]], clients: int, batch: int) -> str:
    """Return the median round's rate, and the 99th percentile of all requests.

    All clients are always busy, so the rate is `clients` requests per mean time.
    """
    rate = median(len(times) * clients / sum(times) for times in rounds) * batch
    p99 = quantiles(chain.from_iterable(rounds), n=100)[-1]
    return f"{rate:,.0f} {'requests' if batch == 1 else 'messages'}/s, p99 {p99 * 1000:.0f} ms"


def _make_sessions(clients: int, batch: int) -> None:
    for client in range(clients):
        user = UserProfile.objects.ensure(f"raw-{client}")
        Session.objects.get_or_create(user=user, session_id=f"raw-{client}-of-{batch}")
