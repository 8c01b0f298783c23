"""What shards had from one person becomes theirs alone, as if it had been learned today.

What a text had taken in of it goes out of the text: that keeps the lines that somebody wrote by hand, and what it had
absorbed waits again, each item with whose it is. The versions stay, as undone. What an engine wrote of nobody knows
whose conversation is evicted. Where people wrote all that a shard has, it stays as it is.
"""

import hashlib
import json
import re
from collections.abc import Iterator
from typing import Any

from django.db import migrations

LEARNED = """
CREATE TEMPORARY TABLE learned ON COMMIT DROP AS
SELECT id, stream_id, is_in_text, person, CASE
    WHEN state = 'evicted' OR person IS NULL OR said > 1 THEN 'evicted' ELSE 'active'
END AS state
FROM (
    SELECT found.*, row_number() OVER (
        PARTITION BY stream_id, person, content_hash, state = 'evicted' ORDER BY state, id DESC
    ) AS said
    FROM (
        SELECT atom.id, atom.stream_id, atom.content_hash, atom.state,
            atom.absorbed_in_id IS NOT NULL OR atom.shown_in_id IS NOT NULL OR atom.state = 'absorbed' AS is_in_text,
            COALESCE(atom.source_user_id, session.user_id, job.user_id) AS person
        FROM moments_app_memoryatom atom
        LEFT JOIN sessions_app_session session ON session.id = atom.source_session_id
        LEFT JOIN moments_app_job job ON job.id = atom.job_id
        WHERE atom.user_id IS NULL AND (
            COALESCE(atom.source_user_id, session.user_id, job.user_id) IS NOT NULL OR atom.engine <> ''
        )
    ) found
) numbered
"""
TEXTS = "SELECT DISTINCT stream_id FROM learned WHERE is_in_text ORDER BY stream_id"
LAST_VERSION = """
SELECT stream.consolidated_content, last.content_after, last.lines
FROM moments_app_memorystream stream LEFT JOIN LATERAL (
    SELECT content_after, lines::text FROM moments_app_streamversion
    WHERE stream_id = stream.id AND undone_at IS NULL ORDER BY id DESC LIMIT 1
) last ON true WHERE stream.id = %s
"""
UNDONE = "UPDATE moments_app_streamversion SET undone_at = now() WHERE stream_id = %s AND undone_at IS NULL"
TEXT = "UPDATE moments_app_memorystream SET consolidated_content = %s WHERE id = %s"
# What people wrote and the text had absorbed; where the same was written again since, that one waits.
WAIT_AGAIN = """
UPDATE moments_app_memoryatom atom SET absorbed_in_id = NULL, shown_in_id = NULL, state = CASE
    WHEN state <> 'absorbed' THEN state
    WHEN EXISTS (
        SELECT FROM moments_app_memoryatom same WHERE same.stream_id = atom.stream_id AND same.user_id IS NULL
        AND same.content_hash = atom.content_hash AND same.id <> atom.id
        AND (same.state = 'active' OR same.state = 'absorbed' AND same.id > atom.id)
    ) THEN 'evicted'
    ELSE 'active'
END
WHERE stream_id = %s AND user_id IS NULL AND id NOT IN (SELECT id FROM learned)
"""
AFTERWARD = (
    """
    UPDATE moments_app_memoryatom atom SET user_id = learned.person, is_candidate = learned.person IS NOT NULL,
        source_user_id = COALESCE(source_user_id, learned.person), state = learned.state,
        absorbed_in_id = NULL, shown_in_id = NULL
    FROM learned WHERE learned.id = atom.id
    """,
    """
    DELETE FROM moments_app_factembedding USING moments_app_memoryatom atom
    WHERE atom.id = source_id AND atom.state = 'evicted' AND atom.id IN (SELECT id FROM learned)
    """,
    """
    UPDATE moments_app_factembedding embedding SET user_id = learned.person
    FROM learned WHERE learned.id = embedding.source_id
    """,
    # Words that only one person said would be found in everybody's vocabulary.
    """
    DELETE FROM moments_app_word WHERE vocabulary_id IN (
        SELECT id FROM moments_app_vocabulary WHERE stream_id IN (SELECT stream_id FROM learned)
    )
    """,
    "DELETE FROM moments_app_vocabulary WHERE stream_id IN (SELECT stream_id FROM learned)",
    "UPDATE moments_app_memorystream SET last_updated_at = now() WHERE id IN (SELECT stream_id FROM learned)",
    # What undoing a retraction would put back.
    """
    DELETE FROM moments_app_retracteditem
    WHERE data->>'user' IS NULL AND (
        model = 'moments_app.streamversion' OR model = 'moments_app.memoryatom' AND is_rewritten
    )
    """,
    """
    UPDATE moments_app_retracteditem SET data = data || jsonb_build_object(
        'user', user_id, 'source_user', user_id, 'is_candidate', true, 'absorbed_in', NULL, 'shown_in', NULL,
        'state', CASE WHEN data->>'state' = 'absorbed' THEN 'active' ELSE data->>'state' END
    )
    WHERE model = 'moments_app.memoryatom' AND data->>'user' IS NULL
    """,
    """
    UPDATE moments_app_retracteditem SET data = data || '{"consolidated_content": ""}'
    WHERE model = 'moments_app.memorystream' AND data->>'stream_type' = 'agent'
    """,
)


def make_candidates(apps: Any, schema_editor: Any) -> None:
    """Give each item that was learned from a person to that person."""
    with schema_editor.connection.cursor() as cursor:
        cursor.execute("DROP TABLE IF EXISTS learned")
        cursor.execute(LEARNED)
        cursor.execute(TEXTS)
        for (stream,) in cursor.fetchall():
            cursor.execute(LAST_VERSION, [stream])
            cursor.execute(TEXT, ["\n".join(_by_hand(*cursor.fetchone())), stream])
            cursor.execute(UNDONE, [stream])
            cursor.execute(WAIT_AGAIN, [stream])
        for statement in AFTERWARD:
            cursor.execute(statement)
        cursor.execute("SELECT DISTINCT person, NULL::bigint FROM learned WHERE person IS NOT NULL")
        whose = cursor.fetchall()
        cursor.execute("SELECT DISTINCT NULL::bigint, stream_id FROM learned")
        _have_counted(apps.get_model("moments_app", "Job"), [*whose, *cursor.fetchall()])


def _by_hand(text: str, last: str | None, recorded: str | None) -> Iterator[str]:
    """Yield the lines of a text that no consolidation left in it."""
    lines = _lines(last or "")
    carried = json.loads(recorded) if recorded else None
    made = {_hash(line) for line, pks in zip(lines, carried or [[]] * len(lines), strict=True) if pks is not None}
    yield from (line for line in _lines(text) if _hash(line) not in made)


def _lines(text: str) -> list[str]:
    return [line for line in re.split(r"\r?\n", text) if line.strip()]


def _hash(text: str) -> str:
    return hashlib.sha256(" ".join(re.findall(r"\w+", text.casefold())).encode()).hexdigest()


def _have_counted(job: Any, whose: list[tuple[int | None, int | None]]) -> None:
    """Ask for the words of people and shards to be counted, unless that is asked for."""
    asked = {"process": "count_words", "requested_by": "migrate", "force": True}
    jobs = [job(user_id=user, stream_id=stream, **asked) for user, stream in whose]
    job.objects.bulk_create(jobs, batch_size=500, ignore_conflicts=True)


class Migration(migrations.Migration):
    dependencies = [("moments_app", "0039_shared_memory")]

    operations = [migrations.RunPython(make_candidates, migrations.RunPython.noop)]
