"""Benchmark of erasing one person among many."""

from django.db import connection

from benchmarks.build import SEED_MOMENTS
from benchmarks.clients import WORDS, timed
from benchmarks.figures import Figure
from benchmarks.raw import Raw
from benchmarks.seed import SEED_TURNS, settle
from benchmarks.site import Site
from moments_app.models.stream import USER_DEFAULTS, MemoryStream
from sessions_app.models import Session, UserProfile
from sessions_app.models.application import DEFAULT
from sessions_app.people.erase import count_erasable_rows, erase_user

AMONG = 2_000_000  # turns of other people
TURNS, MOMENTS, FACTS, SESSIONS = 80_000, 10_000, 10_000, 40
ROUNDS = 3
TITLE = "Erase a person"
NOTE = (
    f"A person with {SESSIONS} sessions, {TURNS:,} turns, {MOMENTS:,} moments and {FACTS:,} facts is erased in one "
    f"transaction. It also edits the logs, and searches all tables for remaining rows. Other people have {AMONG:,} "
    "turns. Raw: one DELETE per table, sent by psycopg."
)
# The text is short, because only the number of rows matters, and filling the table should take only minutes.
SEED_OTHERS = """
INSERT INTO sessions_app_message
    (session_id, user_id, sequence, kind, role, tool_name, content, tokens, created_at, metadata)
SELECT session.id, session.user_id, n, 'turn', 'user', '', 'kiln ' || n, 2, now(), '{}'
FROM generate_series(1000, 1000 + %(each)s) AS n, sessions_app_session session
JOIN sessions_app_userprofile person ON person.id = session.user_id WHERE person.user_id LIKE 'person-%%'
"""
SEED_FACTS = """
INSERT INTO moments_app_memoryatom
    (stream_id, atom_id, user_id, atom_type, content, content_hash, state, formed_at, created_at, is_pinned,
     access_count, source_message_ids, engine)
SELECT %(stream)s, gen_random_uuid(), %(user)s, 'fact', 'Fact ' || n, 'hash-' || n, 'active', now(), now(), false, 0,
    '{}', ''
FROM generate_series(1, %(facts)s) AS n
"""


def figures(site: Site) -> list[Figure]:
    people = Session.objects.count()
    with connection.cursor() as cursor:
        cursor.execute(SEED_OTHERS, {"each": AMONG // people})
    raw = Raw(site.conninfo, site.key)
    ours, theirs = [], []
    rows = 0
    for number in range(ROUNDS):
        mine, other = _person(f"erased-{number}"), _person(f"raw-erased-{number}")
        settle()
        rows = count_erasable_rows(mine).total()
        ours.append([timed(lambda name=mine.user_id: erase_user(name, application=DEFAULT, actor="benchmark"))])  # type: ignore[misc]
        theirs.append([timed(lambda pk=other.pk: raw.erase(pk))])  # type: ignore[misc]
    figure = Figure.of(f"{rows:,} rows", ours, theirs)
    return [Figure.of(figure.what, ours, theirs, rate=f"{rows / figure.p50_ms * 1000:,.0f} rows/s")]


def _person(name: str) -> UserProfile:
    user = UserProfile.objects.ensure(name)
    each = TURNS // SESSIONS
    stream = MemoryStream.objects.create(stream_type="user", user=user, **vars(USER_DEFAULTS))
    with connection.cursor() as cursor:
        for number in range(SESSIONS):
            session = Session.objects.create(
                user=user, session_id=f"s{number}", last_sequence=each - 1, message_count=each
            )
            cursor.execute(SEED_TURNS, {"turns": each, "session": session.pk, "text": WORDS})
        cursor.execute(SEED_MOMENTS, [user.pk, WORDS, MOMENTS])
        cursor.execute(SEED_FACTS, {"stream": stream.pk, "user": user.pk, "facts": FACTS})
    return user
