"""Turns on several machines: the shards that frequent queries use, and the nodes' CPU time for appends and searches.

    DATABASE_URL=… python -m benchmarks.cluster [--people 10000] [--seconds 20]

The database must be distributed by `manage.py distribute`. The exit status is an error if a query for one person uses
more than one shard.
"""

import argparse
import os
import random
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import django
from django.db import connection

SCRIPT = Path(__file__).with_name("cluster.sh")
NODES = ("coordinator", "worker 1", "worker 2")
CLIENTS = 4
QUERY = "kiln"
_SHARDS = "SELECT shardid::text, shardminvalue FROM pg_dist_shard WHERE logicalrelid::text = ANY (%s)"
_SEED_PEOPLE = """
INSERT INTO sessions_app_userprofile (user_id, application_id, summary, interests, preferred_topics, timezone, metadata,
    created_at, updated_at)
SELECT 'person-' || n, 1, '', '{}', '{}', 'UTC', '{}', now(), now() FROM generate_series(1, %s) n ON CONFLICT DO NOTHING
"""


def asked(statement: Callable[[], Any]) -> set[str]:
    """Return the shards that a query used, each by the start of its range of people."""
    from memory_extras.scale.distribution import TABLES

    texts: list[str] = []
    connection.ensure_connection()
    session: Any = connection.connection
    with connection.cursor() as cursor:
        cursor.execute(_SHARDS, [list(TABLES)])
        ranges = dict(cursor.fetchall())
        cursor.execute("SET citus.log_remote_commands = on")
    note = lambda notice: texts.append(notice.message_primary)  # noqa: E731
    session.add_notice_handler(note)
    try:
        statement()
    finally:
        session.remove_notice_handler(note)
        connection.cursor().execute("SET citus.log_remote_commands = off")
    return {low for shard, low in ranges.items() if any(f"_{shard}" in text for text in texts)}


def hot_statements(user: Any) -> dict[str, Callable[[], Any]]:
    """Return the frequent queries about a person's turns, by name."""
    from moments_app.context.input import read_input
    from moments_app.models import Summary
    from moments_app.recall.request import KINDS, RecallRequest
    from moments_app.recall.search import recall
    from sessions_app.models import Message, Session
    from sessions_app.transcript.append import NewMessage, append
    from sessions_app.transcript.load import load_session_messages, page_of_messages

    session = Session.objects.get(user=user, session_id="chat")
    words = "SELECT * FROM recall_sessions_app_message(%s, %s, %s, %s, %s, %s, '{1}', 9, NULL, 20)"
    scope = [f"u{user.pk}"]
    vectors = "SELECT * FROM nearest_moments_app_turnembedding(%s, '{}', 1, 3, '[1,2,3]', NULL, 20)"
    return {
        "append": lambda: append(user, "chat", [NewMessage("user", "The kiln is hot.", external_id="new")]),
        "append of known messages": lambda: append(
            user, "chat", [NewMessage("user", "The kiln is hot.", external_id="new")]
        ),
        "start of a summary": lambda: Summary.objects.begin(session, session.last_sequence + 20),
        "live view": lambda: load_session_messages(session),
        "page of the transcript": lambda: page_of_messages(session, 20),
        "opening of a context": lambda: read_input(user, "chat", "", 1_000, None),
        "search": lambda: recall(user, "", RecallRequest(QUERY, KINDS, None)),
        "search by rare words": lambda: _all(words, [user.pk, scope, [QUERY], [], False, [QUERY]]),
        "search by common words": lambda: _all(words, [user.pk, scope, [], [], True, [QUERY]]),
        "search by words together": lambda: _all(words, [user.pk, scope, [], [QUERY], True, [QUERY]]),
        "search by meaning": lambda: _all(vectors, [user.pk]),
        "turns of a moment": lambda: list(Message.objects.for_user(user).turns().filter(session=session)[:20]),
    }


def _all(sql: str, parameters: Sequence[Any]) -> list[Any]:
    with connection.cursor() as cursor:
        cursor.execute(sql, parameters)
        return list(cursor.fetchall())


def seed(people: int) -> list[Any]:
    """Return people, each with a session of two turns. The first call creates them."""
    from sessions_app.models import Session, UserProfile
    from sessions_app.models.session import NamedSession
    from sessions_app.transcript.append import Batch, NewMessage, append_many

    with connection.cursor() as cursor:
        cursor.execute(_SEED_PEOPLE, [people])
    users = list(UserProfile.objects.filter(user_id__startswith="person-").order_by("pk")[:people])
    there = set(Session.objects.filter(user__in=users).values_list("user_id", flat=True))
    said = [NewMessage("user", "When is the kiln cold enough?"), NewMessage("assistant", "Tomorrow at noon.")]
    missing = [Batch(NamedSession(user, "chat"), said) for user in users if user.pk not in there]
    for first in range(0, len(missing), 500):
        append_many(missing[first : first + 500])
    return users


def rate(work: Callable[[Any], Any], users: Sequence[Any], seconds: float) -> float:
    """Return the rate per second at which several clients do the work for one person after the other."""
    until, done = time.monotonic() + seconds, [0] * CLIENTS

    def client(number: int) -> None:
        order = random.Random(number)
        while time.monotonic() < until:
            work(order.choice(users))
            done[number] += 1
        connection.close()

    threads = [threading.Thread(target=client, args=(number,)) for number in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(done) / seconds


def cpu() -> list[float]:
    """Return the CPU seconds of each server so far, the coordinator first."""
    return [float(line) for line in subprocess.check_output([SCRIPT, "cpu"], text=True).split()]


def main() -> None:
    """Print the number of shards for each query, and the rates with the CPU time of each node."""
    from sessions_app.transcript.append import NewMessage, append

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--people", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=20)
    options = parser.parse_args()
    users = seed(options.people)
    spread = {name: len(asked(statement)) for name, statement in hot_statements(users[0]).items()}
    for name, shards in spread.items():
        print(f"{name:<26}{shards} shard{'s' * (shards != 1)}")
    said = [NewMessage("user", "The kiln was cold this morning."), NewMessage("assistant", "Then open it.")]
    words = "SELECT * FROM recall_sessions_app_message(%s, %s, %s, '{}', false, %s, '{1}', 9, NULL, 20)"
    works: dict[str, Callable[[Any], Any]] = {
        "appends": lambda user: append(user, "chat", said),
        "searches": lambda user: _all(words, [user.pk, [f"u{user.pk}"], [QUERY], [QUERY]]),
    }
    for name, work in works.items():
        before = cpu()
        each = rate(work, users, options.seconds)
        taken = [(after - was) / (each * options.seconds) * 1_000 for was, after in zip(before, cpu(), strict=True)]
        nodes = ", ".join(f"{node} {ms:.2f}" for node, ms in zip(NODES, taken, strict=True))
        print(f"{name}: {each:.0f} a second; ms of CPU each: {nodes}")
    if wide := [name for name, shards in spread.items() if shards > 1]:
        raise SystemExit(f"More than one shard: {', '.join(wide)}.")


if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "memoryproject.settings")
    django.setup()
    main()
