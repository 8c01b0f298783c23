"""Revoke every standing release that a rule made: only a release that an operator made by hand may reach others.

A release that an operator reworded, or extended to every agent, is a release of its own, and stays. A revoked wording
leaves contexts and searches at once. A shard's text that a consolidation made of one keeps only the lines that somebody
wrote by hand; what else it had absorbed waits for the next consolidation. The candidates stay with their people, and
wait for a decision if only the rule decided on them.
"""

import hashlib
import json
import re
from collections.abc import Iterator

from django.db import migrations
from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.migrations.state import StateApps

RULED = """
CREATE TEMPORARY TABLE ruled ON COMMIT DROP AS
SELECT release.id, release.release_id, release.atom_id, release.stream_id, stream.stream_id AS stream_uuid,
    stream.application_id, (
        SELECT count(DISTINCT user_id) FROM moments_app_releasesource source WHERE source.release_id = release.id
    ) AS people
FROM moments_app_release release JOIN moments_app_memorystream stream ON stream.id = release.stream_id
WHERE release.rule <> 'operator' AND release.revoked_at IS NULL
"""
TEXTS = """
SELECT DISTINCT stream_id FROM moments_app_memoryatom
WHERE id IN (SELECT atom_id FROM ruled) AND (absorbed_in_id IS NOT NULL OR shown_in_id IS NOT NULL)
ORDER BY stream_id
"""
LAST_VERSION = """
SELECT stream.consolidated_content, last.content_after, last.lines
FROM moments_app_memorystream stream LEFT JOIN LATERAL (
    SELECT content_after, lines::text FROM moments_app_streamversion
    WHERE stream_id = stream.id AND undone_at IS NULL ORDER BY id DESC LIMIT 1
) last ON true WHERE stream.id = %s
"""
TEXT = "UPDATE moments_app_memorystream SET consolidated_content = %s WHERE id = %s"
UNDONE = "UPDATE moments_app_streamversion SET undone_at = now() WHERE stream_id = %s AND undone_at IS NULL"
# Where the same was written again since it was absorbed, the later one waits.
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
WHERE stream_id = %s AND user_id IS NULL
"""
REVOKE = (
    """
    UPDATE moments_app_memoryatom SET state = 'evicted', absorbed_in_id = NULL, shown_in_id = NULL
    WHERE id IN (SELECT atom_id FROM ruled)
    """,
    "DELETE FROM moments_app_factembedding WHERE source_id IN (SELECT atom_id FROM ruled)",
    # The rule decided on these; no operator did.
    """
    UPDATE moments_app_memoryatom SET reviewed_at = NULL WHERE is_candidate AND id IN (
        SELECT source.atom_id FROM moments_app_releasesource source JOIN ruled ON ruled.id = source.release_id
        WHERE NOT EXISTS (
            SELECT FROM moments_app_releasesource other
            JOIN moments_app_release decided ON decided.id = other.release_id
            WHERE other.atom_id = source.atom_id AND decided.rule = 'operator'
        )
    )
    """,
    "UPDATE moments_app_release SET revoked_at = now(), revoked_by = 'migrate' WHERE id IN (SELECT id FROM ruled)",
    "UPDATE moments_app_memorystream SET last_updated_at = now() WHERE id IN (SELECT stream_id FROM ruled)",
    """
    INSERT INTO sessions_app_event (type, actor, application_id, payload, created_at)
    SELECT 'memory_release_revoked', 'migrate', application_id,
        jsonb_build_object('release_id', release_id, 'stream_id', stream_uuid, 'people', people), now()
    FROM ruled ORDER BY id
    """,
)
# What undoing a retraction would put back: the same releases, with their items and what texts say of them.
IN_RETRACTIONS = (
    """
    CREATE TEMPORARY TABLE kept_ruled ON COMMIT DROP AS
    SELECT id, retraction_id, (data->>'atom')::bigint AS atom, data->>'stream' AS stream
    FROM moments_app_retracteditem
    WHERE model = 'moments_app.release' AND data->>'rule' <> 'operator' AND data->>'revoked_at' IS NULL
    """,
    """
    UPDATE moments_app_retracteditem SET data = data || jsonb_build_object('revoked_at', now(), 'revoked_by', 'migrate')
    WHERE id IN (SELECT id FROM kept_ruled)
    """,
    """
    DELETE FROM moments_app_retracteditem item USING kept_ruled kept
    WHERE item.retraction_id = kept.retraction_id AND item.model = 'moments_app.streamversion'
        AND item.data->>'stream' = kept.stream
    """,
    """
    UPDATE moments_app_retracteditem item SET data = item.data || '{"consolidated_content": ""}' FROM kept_ruled kept
    WHERE item.retraction_id = kept.retraction_id AND item.model = 'moments_app.memorystream'
        AND item.object_pk::text = kept.stream
    """,
    """
    UPDATE moments_app_retracteditem item SET data = item.data || jsonb_build_object(
        'absorbed_in', NULL, 'shown_in', NULL, 'state', CASE
            WHEN item.object_pk IN (SELECT atom FROM kept_ruled) THEN 'evicted'
            WHEN item.data->>'state' = 'absorbed' THEN 'active'
            ELSE item.data->>'state'
        END
    )
    FROM kept_ruled kept
    WHERE item.retraction_id = kept.retraction_id AND item.model = 'moments_app.memoryatom'
        AND item.data->>'stream' = kept.stream
    """,
)
OPEN_JOBS = """
UPDATE moments_app_job SET status = 'skipped', finished_at = now(), circuit_id = NULL,
    result = '{"reason": "This release has no such process."}'
WHERE process IN ('share_alike', 'group_candidates') AND status IN ('queued', 'processing')
"""
CHANGED = """
SELECT stream.id, stream.consolidation_prompt <> '' AND EXISTS (
    SELECT FROM moments_app_memoryatom WHERE stream_id = stream.id AND state = 'active' AND atom_type = 'observation'
    AND NOT is_pinned AND NOT is_candidate
)
FROM moments_app_memorystream stream WHERE id IN (SELECT stream_id FROM ruled) ORDER BY id
"""


def revoke(apps: StateApps, editor: BaseDatabaseSchemaEditor) -> None:
    """Revoke the releases, take them out of texts and retractions, and ask for what follows."""
    with editor.connection.cursor() as cursor:
        cursor.execute(RULED)
        cursor.execute(TEXTS)
        for (stream,) in cursor.fetchall():
            cursor.execute(LAST_VERSION, [stream])
            cursor.execute(TEXT, ["\n".join(_by_hand(*cursor.fetchone())), stream])
            cursor.execute(UNDONE, [stream])
            cursor.execute(WAIT_AGAIN, [stream])
        for statement in (*REVOKE, *IN_RETRACTIONS, OPEN_JOBS):
            cursor.execute(statement)
        cursor.execute(CHANGED)
        changed = cursor.fetchall()
        cursor.execute("DROP TABLE ruled, kept_ruled")
    job = apps.get_model("moments_app", "Job")
    asked = [job(process="count_words", stream_id=pk, requested_by="migrate", force=True) for pk, _ in changed]
    asked += [
        job(process="consolidate", stream_id=pk, requested_by="migrate", force=True) for pk, due in changed if due
    ]
    job.objects.bulk_create(asked, ignore_conflicts=True)


def _by_hand(text: str, last: str | None, recorded: str | None) -> Iterator[str]:
    """Yield the lines of a text that no consolidation wrote."""
    lines = _lines(last or "")
    carried = json.loads(recorded) if recorded else None
    made = {_hash(line) for line, pks in zip(lines, carried or [[]] * len(lines), strict=True) if pks is not None}
    yield from (line for line in _lines(text) if _hash(line) not in made)


def _lines(text: str) -> list[str]:
    return [line for line in re.split(r"\r?\n", text) if line.strip()]


def _hash(text: str) -> str:
    return hashlib.sha256(" ".join(re.findall(r"\w+", text.casefold())).encode()).hexdigest()


class Migration(migrations.Migration):
    dependencies = [("moments_app", "0082_fixed_search_path")]

    operations = [migrations.RunPython(revoke, migrations.RunPython.noop, elidable=True)]
