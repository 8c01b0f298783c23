"""Databases of earlier releases, which `tests/earlier/write.py` wrote."""

import gzip
from collections.abc import Iterable

from django.db import connection

from memoryproject.conf import BASE_DIR

FOLDER = BASE_DIR / "tests/earlier"
STATES = sorted(path.name.removesuffix(".sql.gz") for path in FOLDER.glob("*.sql.gz"))
LAST = STATES[-1]
# A probe with a result, and a trial.
PROBES = """
INSERT INTO moments_app_probe (id, probe_id, question, question_hash, expected, evidence_sequences, source_message_ids,
    created_by, created_at, updated_at, user_id)
VALUES (7, '11111111-1111-1111-1111-111111111111', 'When does the ferry leave?', 'hash', 'On Thursdays at seven',
    '{}', '{}', 'key:app', now(), now(), 1);
INSERT INTO moments_app_proberesult (run_id, is_met, words_found, words_count, missing_words, evidence_found,
    evidence_count, tokens, refs, setup, problem, requested_by, created_at, probe_id, user_id)
VALUES ('33333333-3333-3333-3333-333333333333', true, 2, 2, '{}', 0, 0, 90, '{}', '{}', '', 'test', now(), 7, 1);
INSERT INTO moments_app_prompttrial (size, tried, differing, requested_by, created_at, version_id)
SELECT 3, 3, 1, 'operator:eve', now(), min(id) FROM moments_app_promptversion;
"""


def sql_of(state: str) -> str:
    """Return the SQL that writes the state into an empty database."""
    return gzip.decompress((FOLDER / f"{state}.sql.gz").read_bytes()).decode()


def fill(state: str, *more: str) -> None:
    """Write the state, and the rows of more SQL, into an empty database."""
    with connection.cursor() as cursor:
        for sql in (sql_of(state), "SET search_path = public", *more):
            cursor.execute(sql)
    connection.close()  # discards the session settings of the SQL


def without_indexes_of_models(differing: Iterable[str]) -> set[str]:
    """Return the differing parts of a schema without the indexes that the first vectors of a model create."""
    return {part for part in differing if "embedding_nearest_" not in part}
