"""How durations grow with turns per person, and with people: `python -m benchmarks.growth`.

A site with default settings stores one real conversation. People with more turns get copies of its sessions,
with the turns' words and vectors. One client sends each kind of request for all of them alternately. Then the benchmark
adds people whose turns have no vectors, and sends the requests for one person again.
"""

import argparse
import os
import sys
from collections import defaultdict
from collections.abc import Sequence
from contextlib import closing
from functools import partial
from itertools import accumulate, cycle, islice
from statistics import median
from typing import Any

from benchmarks.clients import Http, timed
from benchmarks.conversations import Conversation, read_folder
from benchmarks.figures import print_markdown
from benchmarks.lean import running_site
from benchmarks.request import CONTEXT, KINDS, SEARCH, Person, seconds_of_loop
from benchmarks.site import SETTINGS
from benchmarks.steady import CONVERSATIONS
from benchmarks.stored import let_a_minute_pass, let_an_hour_pass, store, wait_for_jobs

CONVERSATION = "english"
TURNS = [200, 2_000, 20_000, 200_000]
PEOPLE = [10, 1_000, 100_000]
ROUNDS = 40
MANY_ROWS = 10_000  # smaller tables may be read whole
TITLE = "Durations by the number of {}"
NOTE = (
    "p50 in milliseconds, divided by the seconds that ten million loops of `x += i` take. Growth: the last number, "
    "divided by the first. Large tables with full scans: {}."
)
# The SQL that copies the rows of some sessions (`read`) for people. The first copy keeps its session's id. Vectors get
# a little noise, because an index of nearest neighbors works badly with many equal vectors.
_COPIES = {
    "sessions_app.Session": """
        INSERT INTO sessions_app_session ({columns}, user_id, session_id)
        SELECT {read}, person, concat_ws('-', read.session_id, nullif(copy, 1))
        FROM sessions_app_session read, unnest(%(people)s) person, generate_series(1, %(copies)s) copy
        WHERE read.id = ANY(%(sessions)s)
    """,
    "sessions_app.Message": """
        INSERT INTO sessions_app_message ({columns}, user_id, session_id)
        SELECT {read}, copied.user_id, copied.id FROM sessions_app_message read
        JOIN sessions_app_session session ON session.id = read.session_id
        JOIN sessions_app_session copied
            ON copied.user_id = ANY(%(people)s)
            AND substring(copied.session_id FROM '^session-[0-9]+') = session.session_id
        WHERE session.id = ANY(%(sessions)s)
    """,
    "moments_app.TurnEmbedding": """
        INSERT INTO moments_app_turnembedding ({columns}, user_id, source_id, vector)
        SELECT {read}, copied.user_id, copied.id, read.vector + (
            SELECT array_agg((random() - 0.5) * 0.02)::halfvec FROM generate_series(1, vector_dims(read.vector))
        )
        FROM moments_app_turnembedding read
        JOIN sessions_app_message message ON message.id = read.source_id
        JOIN sessions_app_session session ON session.id = message.session_id
        JOIN sessions_app_session other
            ON other.user_id = ANY(%(people)s)
            AND substring(other.session_id FROM '^session-[0-9]+') = session.session_id
        JOIN sessions_app_message copied
            ON copied.session_id = other.id AND copied.sequence = message.sequence AND copied.kind = 'turn'
        WHERE session.id = ANY(%(sessions)s)
    """,
}
_NOT_COPIED = {"id", "user_id", "session_id", "source_id", "moment_id", "vector"}

Times = dict[str, list[float]]  # by kind of request, in milliseconds divided by `seconds_of_loop()`


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.growth", description=__doc__)
    parser.add_argument("--turns", type=int, nargs="+", default=TURNS, help="numbers of turns of a person")
    parser.add_argument("--people", type=int, nargs="+", default=PEOPLE, help="numbers of people")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"requests of each kind per person ({ROUNDS})")
    options = parser.parse_args(arguments)
    [conversation] = [one for one in read_folder(CONVERSATIONS) if one.id == CONVERSATION]
    with running_site() as (folder, _pid, port, key):
        os.environ.update(SETTINGS, DATA_DIR=str(folder))
        import django

        django.setup()
        with closing(Http(port, key)) as http:
            store(http, conversation)
        let_an_hour_pass(wait_for_jobs)
        people = [_with_turns(conversation, turns) for turns in options.turns]
        let_a_minute_pass(wait_for_jobs)  # counts the words
        _settle()
        before = _rows_scanned()
        _print("a person's turns", options.turns, _measured(port, key, people, options.rounds), before)
        times = []
        for number in options.people:
            _add_people(conversation, number)
            _settle()
            before = _rows_scanned()
            times += _measured(port, key, people[:1], options.rounds)
        _print("people", options.people, times, before)
    return 0


def _with_turns(conversation: Conversation, turns: int) -> Person:
    """Create a person with about this number of turns."""
    from sessions_app.models import Session, UserProfile

    person = UserProfile.objects.ensure(f"{conversation.id}-{turns}")
    sizes = _sizes(conversation)
    sessions = [pk for pk, newer in zip(sizes, accumulate(sizes.values(), initial=0), strict=False) if newer < turns]
    _copy([person.pk], sessions, copies=max(1, round(turns / sum(sizes.values()))))
    Session.objects.filter(user=person).update(counted_message_count=0)
    return Person(conversation.model_copy(update={"id": person.user_id}))


def _sizes(conversation: Conversation) -> dict[int, int]:
    """Return the number of messages of each session, newest first."""
    from sessions_app.models import Session

    sessions = Session.objects.filter(user__user_id=conversation.id).order_by("-pk")
    return dict(sessions.values_list("pk", "message_count"))


def _add_people(conversation: Conversation, number: int) -> None:
    """Create people with one session each, until there are this many people."""
    from sessions_app.models import UserProfile

    missing = range(UserProfile.objects.count(), number)
    people = UserProfile.objects.bulk_create([UserProfile(user_id=f"person-{n}") for n in missing], batch_size=10_000)
    _copy([person.pk for person in people], [*_sizes(conversation)][:1], copies=1, tables=2)


def _copy(people: Sequence[int], sessions: Sequence[int], *, copies: int, tables: int = len(_COPIES)) -> None:
    from django.apps import apps
    from django.db import connection, transaction

    values: dict[str, Any] = {"people": [*people], "sessions": [*sessions], "copies": copies}
    with transaction.atomic(), connection.cursor() as cursor:  # sweeps see whole copies only
        for label, sql in [*_COPIES.items()][:tables]:
            fields = [field.column for field in apps.get_model(label)._meta.concrete_fields]
            columns = [column for column in fields if column not in _NOT_COPIED]
            read = ", ".join(f"read.{column}" for column in columns)
            cursor.execute(sql.format(columns=", ".join(columns), read=read), values)


def _settle() -> None:
    from benchmarks.seed import settle

    wait_for_jobs()
    settle()


def _measured(port: int, key: str, people: Sequence[Person], rounds: int) -> list[Times]:
    """Send each kind of request for each person in turn. Return the durations by person."""
    turns = [turn.text for _session, turn in people[0].conversation.turns]
    questions = [question.q for question in people[0].conversation.questions]
    times: list[Times] = [defaultdict(list) for _person in people]
    with closing(Http(port, key)) as http:
        for what, request in KINDS.items():
            texts = questions if what in (CONTEXT, SEARCH) else turns
            for number, text in enumerate(texts[:rounds]):
                loop = seconds_of_loop()
                for person, of_person in islice(cycle(zip(people, times, strict=True)), number, number + len(people)):
                    seconds = timed(partial(http.request, *request(person, text, text)))
                    of_person[what].append(seconds * 1000 / loop)
    return times


def _print(of: str, numbers: Sequence[int], times: Sequence[Times], before: dict[str, int]) -> None:
    after = _rows_scanned()
    whole = [table for table, rows in _large_tables().items() if after[table] - before.get(table, 0) >= rows]
    rows = []
    for what in KINDS:
        p50s = [median(each[what]) for each in times]
        rows.append([what, *(f"{p50:.1f}" for p50 in p50s), f"{p50s[-1] / p50s[0]:.2f} ×"])
    columns = ["what", *(f"{number:,}" for number in numbers), "growth"]
    print_markdown(TITLE.format(of), columns, rows, NOTE.format(", ".join(whole) or "none"))


def _rows_scanned() -> dict[str, int]:
    """Return the number of rows of each table that sequential scans have read so far."""
    return _statistics("seq_tup_read")


def _large_tables() -> dict[str, int]:
    """Return the number of rows of each large table."""
    return {table: rows for table, rows in _statistics("n_live_tup").items() if rows > MANY_ROWS}


def _statistics(column: str) -> dict[str, int]:
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute(f"SELECT relname, {column} FROM pg_stat_user_tables")
        return dict(cursor.fetchall())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
