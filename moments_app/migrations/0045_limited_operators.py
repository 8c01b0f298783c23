"""What operators who are limited to applications see of memory, and of the queue."""

from django.db import migrations

from sessions_app.limited_operators import APPLICATIONS, LET_OPERATORS_SEARCH, let_operators, of_person, seen
from sessions_app.row_security import ROLE

PERSONAL = (
    "contextreceipt",
    "entity",
    "entitylink",
    "moment",
    "momentembedding",
    "owntext",
    "releasesource",
    "retracteditem",
    "retraction",
    "servedline",
    "summary",
    "turnembedding",
)
STREAMS, ATOMS, JOBS = "moments_app_memorystream", "moments_app_memoryatom", "moments_app_job"
PROMPTS, VERSIONS = "moments_app_promptresource", "moments_app_promptversion"
OWN = f"application_id = ANY({APPLICATIONS})"
OWN_PROMPT = f"EXISTS (SELECT FROM {PROMPTS} own WHERE own.id = {VERSIONS}.resource_id AND own.{OWN})"


def personal(table: str, of_nobody: str) -> migrations.RunSQL:
    """Return an operation for a table of which some rows are nobody's."""
    return let_operators(table, f"CASE WHEN user_id IS NULL THEN {of_nobody} ELSE {of_person(table)} END")


def of_stream(table: str) -> migrations.RunSQL:
    """Return an operation for a table whose rows of nobody are of a stream."""
    return personal(table, seen(table, STREAMS, "stream_id"))


class Migration(migrations.Migration):
    dependencies = [
        ("moments_app", "0044_row_security_of_applications"),
        ("sessions_app", "0020_limited_operators"),
        ("django_q", "__first__"),
    ]

    operations = [
        *(let_operators(f"moments_app_{table}", of_person(f"moments_app_{table}")) for table in PERSONAL),
        personal(STREAMS, OWN),
        *map(of_stream, (ATOMS, JOBS, "moments_app_streamversion", "moments_app_vocabulary")),
        personal("moments_app_factembedding", seen("moments_app_factembedding", ATOMS, "source_id")),
        personal("moments_app_word", seen("moments_app_word", "moments_app_vocabulary", "vocabulary_id")),
        let_operators("moments_app_release", seen("moments_app_release", STREAMS, "stream_id")),
        let_operators("moments_app_enginecall", seen("moments_app_enginecall", JOBS, "job_id"), requests=ROLE),
        let_operators(PROMPTS, OWN, read="application_id IS NULL"),
        let_operators(VERSIONS, OWN_PROMPT, read=seen(VERSIONS, PROMPTS, "resource_id")),
        let_operators("django_q_ormq", "false", requests=ROLE),
        let_operators("django_q_task", "false"),
        LET_OPERATORS_SEARCH,
    ]
