"""Benchmark of loading the live window from sessions of very different lengths."""

from collections.abc import Iterator, Sequence
from itertools import chain
from statistics import median

from django.conf import settings
from django.db import connection

from benchmarks.cases import Case, Times, measured
from benchmarks.clients import WORDS, Http
from benchmarks.figures import Figure
from benchmarks.raw import Raw
from benchmarks.seed import SEED_TURNS, settle
from benchmarks.site import Site
from sessions_app.models import Session, UserProfile
from sessions_app.transcript.load import LIVE_SQL, load_session_messages

TITLE = "Load the live window"
NOTE = (
    "One client reads all sessions in turn. Over HTTP: `GET …/messages?view=live&limit=50`; raw: its six statements by "
    "psycopg. Function: `load_session_messages`; raw: its one statement. Instead of a rate: the p50 relative to the "
    "shortest session."
)
LENGTHS = (50, 10_000, 200_000)
LIVE_TURNS = 40  # turns after the latest partition event
BUILD_TURNS = 175  # turns between two partition events
ROUNDS = 20
REPEATS = 5

SEED_EVENTS = """
INSERT INTO sessions_app_message
    (session_id, user_id, sequence, kind, role, tool_name, content, tokens, created_at, metadata)
SELECT session_id, user_id, sequence, 'partition', 'tool', 'session_partition', content, 27, created_at, '{}'
FROM sessions_app_message WHERE session_id = %s AND sequence %% %s = %s AND sequence <= %s
"""


def figures(site: Site) -> list[Figure]:
    cases = {events: [_case(site, length, events) for length in LENGTHS] for events in (False, True)}
    settle()
    times = measured([case for group in cases.values() for case in group], rounds=ROUNDS, repeats=REPEATS)
    return [
        figure for way in ("HTTP", "function") for group in cases.values() for figure in _compared(group, way, times)
    ]


def _compared(cases: Sequence[Case], way: str, times: Times) -> Iterator[Figure]:
    """Yield the figures of one method to read sessions, from the shortest session to the longest."""
    shortest = median(chain.from_iterable(times[cases[0].what, way]))
    for case in cases:
        ours = times[case.what, way]
        growth = median(chain.from_iterable(ours)) / shortest
        is_longest = case is cases[-1]
        yield Figure.of(
            f"{way}: {case.what}",
            ours,
            times[case.what, f"{way} raw"],
            rate="" if case is cases[0] else f"{growth:.2f} × shortest",
            wanted="≤ 1.5 × shortest" if is_longest else "",
        )


def _case(site: Site, length: int, events: bool) -> Case:
    what = f"{length:,} turns, {'with' if events else 'without'} partition events"
    session = seeded(f"load-{length}-{events}", length, events)
    limit = settings.MOMENT_BUILDER.load_max_messages
    http, raw = Http(site.port, site.key), Raw(site.conninfo, site.key)
    # The default limit is the number of turns that a build leaves live, which grows without end on a site without
    # builds.
    query = f"view=live&limit={limit}&user_id={session.user.user_id}"
    path = f"/api/v1/sessions/{session.session_id}/messages?{query}"
    return Case(
        what,
        {
            "HTTP": lambda: http.request("GET", path),
            "HTTP raw": lambda: raw.load(LIVE_SQL, session.user.user_id, session.session_id, limit),
            "function": lambda: load_session_messages(session, limit),
            "function raw": lambda: raw.live(LIVE_SQL, session.pk, session.user_id, limit),
        },
    )


def seeded(name: str, length: int, events: bool) -> Session:
    """Create a session of this length, optionally with a partition event after every `BUILD_TURNS` turns."""
    last_event = length - 1 - LIVE_TURNS
    user = UserProfile.objects.ensure(name)
    session = Session.objects.create(
        user=user,
        session_id=name,
        message_count=length,
        last_sequence=length - 1,
        total_tokens=27 * length,
        live_tokens=27 * length,
        live_from_sequence=last_event + 1 if events else 0,
    )
    with connection.cursor() as cursor:
        cursor.execute(SEED_TURNS, {"turns": length, "session": session.pk, "text": WORDS})
        if events:
            cursor.execute(SEED_EVENTS, [session.pk, BUILD_TURNS, last_event % BUILD_TURNS, last_event])
    return session
