"""Data that accumulate in a year: settled and archived sessions, facts that ended, failures with a cause."""

from datetime import timedelta
from typing import Any

from django.db import connection
from django.utils import timezone

from moments_app.models import FailureGroup
from sessions_app.models import Message, Session
from sessions_app.retention.retain import retain

SETTLED = 500  # people whose sessions are cleared
RETAINED = 40  # of these people, the number whose turns are archived
PERSON = "substr(user_id, 7)::int BETWEEN 1 AND"  # 'other-' and a number

SETTLE = (
    f"""
UPDATE sessions_app_session SET status = 'cleared', live_from_sequence = message_count, live_tokens = 0,
       built_message_count = message_count, built_total_tokens = total_tokens, summarised_sequence = last_sequence
WHERE session_id LIKE 'chat-%%' AND user_id IN
    (SELECT id FROM sessions_app_userprofile WHERE user_id LIKE 'other-%%' AND {PERSON} %(settled)s)
""",
    """
INSERT INTO sessions_app_message
    (session_id, user_id, sequence, kind, role, tool_name, content, tokens, created_at, metadata, payload)
SELECT id, user_id, last_sequence, 'partition', 'system', '', %(text)s, 27, last_activity_at, '{}',
       jsonb_build_object('partition_type', 'clearing', 'summary', %(text)s, 'last_n_moment_keys', '[]'::jsonb)
FROM sessions_app_session WHERE session_id LIKE 'chat-%%' AND status = 'cleared'
""",
    f"""
UPDATE sessions_app_message SET arrived_at = now() - interval '200 days'
WHERE kind = 'turn' AND user_id IN
    (SELECT id FROM sessions_app_userprofile WHERE user_id LIKE 'other-%%' AND {PERSON} %(retained)s)
""",
    """
INSERT INTO moments_app_memorystream
    (stream_id, stream_type, agent_id, user_id, name, is_active, extraction_prompt, extracts_observations,
     extracts_facts, observation_min, observation_max, observation_max_words, fact_min, fact_max, fact_max_words,
     extraction_model, consolidation_prompt, consolidation_trigger, consolidated_max_words, fact_buffer_max,
     consolidation_model, pinned_content, consolidated_content, last_updated_at)
SELECT gen_random_uuid(), 'user', 'default', id, '', true, 'What they say of themselves.', true, true, 0, 5, 25, 0, 5,
       50, '', '', 5, 400, 100, '', '', '', now()
FROM sessions_app_userprofile WHERE user_id LIKE 'other-%%'
""",
    """
INSERT INTO moments_app_memoryatom
    (atom_id, stream_id, user_id, atom_type, content, content_hash, state, formed_at, created_at, source_session_id,
     source_message_ids, is_candidate, is_pinned, access_count, is_wrong, engine, subject, attribute, value,
     related_users, written_by, valid_from, valid_until, ended_at, ended_by)
SELECT gen_random_uuid(), stream.id, stream.user_id, 'fact', %(text)s || n, md5(%(text)s || n), 'active',
       session.last_activity_at, session.last_activity_at, session.id, '{}', false, false, 0, false, 'seed', '', '', '',
       '{}', '', session.last_activity_at, CASE n %% 2 WHEN 0 THEN session.last_activity_at END,
       CASE n %% 2 WHEN 0 THEN session.last_activity_at END, CASE n %% 2 WHEN 0 THEN 'said' ELSE '' END
FROM moments_app_memorystream stream
JOIN sessions_app_session session ON session.user_id = stream.user_id AND session.session_id = 'chat-1'
CROSS JOIN generate_series(1, 10) AS n
WHERE stream.stream_type = 'user'
""",
)


def age(numbers: dict[str, Any]) -> int:
    """Create these data.

    Args:
        numbers: The values for the seed's SQL.

    Returns:
        The number of archived turns.
    """
    with connection.cursor() as cursor:
        for statement in SETTLE:
            cursor.execute(statement, numbers | {"settled": SETTLED, "retained": RETAINED})
        cursor.execute("ANALYZE")
    now = timezone.now()
    group = FailureGroup.objects.create(
        process="build_moments", engine="seed", kind="timeout", error="the model gave no answer", count=2_500
    )
    group.hours.create(hour=now.replace(minute=0, second=0, microsecond=0) - timedelta(hours=3), count=2_500)
    with connection.cursor() as cursor:
        failed = "UPDATE moments_app_job SET failure_id = %s WHERE status = 'failed' AND failure_id IS NULL"
        cursor.execute(failed, [group.pk])
    return retain().archived_turns


def archived_session() -> Session:
    """Return a session whose turns are all archived."""
    first = Message.objects.archived().order_by("pk").select_related("session")[:1].get()
    return first.session
