"""Benchmark of building moments with an instant engine, so that only the platform's own time is measured."""

from unittest.mock import patch

from django.db import connection, transaction

from benchmarks.clients import WORDS, timed
from benchmarks.figures import Figure
from benchmarks.raw import Raw
from benchmarks.seed import settle
from benchmarks.site import Site
from moments_app import engines
from moments_app.engines.calls.moments import DraftMoment, MomentAnswer, MomentRequest
from moments_app.jobs import runner as run
from moments_app.models import Job
from moments_app.moments.build import BuildMoments
from sessions_app.models import Session, UserProfile
from sessions_app.transcript.append import NewMessage, append

TURNS = 1_000
TURNS_EACH = 20
MOMENTS = 5_000  # existing moments of a person
ROUNDS = 6
TITLE = f"Build moments of {TURNS:,} turns"
NOTE = (
    f"One moment per {TURNS_EACH} turns. The engine answers instantly, so the durations are those of claim, commit "
    "and the work in between. Raw: the same rows, written by psycopg with one `executemany` for moments and one for "
    "their turns."
)

SEED_MOMENTS = """
INSERT INTO moments_app_moment
    (user_id, key, name, category, summary, detail, topic_tags, emotion_tags, present_persons, starts_at, ends_at,
     first_sequence, last_sequence, previous_moment_keys, engine, created_at, updated_at)
SELECT %s, 'seed-' || n, 'seed-' || n, 'session-compression', %s, '', '{a,b}', '{a,b}', '{}', now(), now(),
       0, 19, '{}', 'seed', now(), now()
FROM generate_series(1, %s) AS n
"""


class InstantEngine:
    """An engine that returns a moment for every `TURNS_EACH` turns without reading them."""

    name = "benchmark"

    def build_moments(self, request: MomentRequest) -> MomentAnswer:
        """Return moments with identical texts."""
        count = len(request.turns)
        moments = [
            DraftMoment(
                name=f"episode-{start}",
                summary=WORDS * 3,
                detail=WORDS * 3,
                topic_tags=["a", "b"],
                emotion_tags=["a", "b"],
                starts_at_message_idx=start,
                ends_at_message_idx=min(start + TURNS_EACH, count) - 1,
            )
            for start in range(0, count, TURNS_EACH)
        ]
        return MomentAnswer(moments=moments)


def figures(site: Site) -> list[Figure]:
    return [
        _measured(site, "of a person without moments", moments=0),
        _measured(site, f"of a person with {MOMENTS:,} moments", moments=MOMENTS),
    ]


def _measured(site: Site, what: str, *, moments: int) -> Figure:
    raw = Raw(site.conninfo, site.key)
    ours: list[list[float]] = []
    theirs: list[list[float]] = []
    for number in range(ROUNDS):
        job, other = (_job(f"{who}-{moments}-{number}", moments) for who in ("build", "raw-build"))
        with patch.object(engines, "engine_for", return_value=InstantEngine()):
            ours.append([timed(lambda job=job: run.run_job(job.job_id))])  # type: ignore[misc]
        theirs.append([timed(lambda job=other: _build_raw(raw, job))])  # type: ignore[misc]
        _check(job)
    figure = Figure.of(what, ours[1:], theirs[1:])  # the first round is a warm-up
    return Figure.of(what, ours[1:], theirs[1:], rate=f"{TURNS / figure.p50_ms * 1000:,.0f} turns/s")


def _job(name: str, moments: int) -> Job:
    """Create a due build for a new person with this many moments."""
    user = UserProfile.objects.ensure(name)
    with connection.cursor() as cursor:
        cursor.execute(SEED_MOMENTS, [user.pk, WORDS, moments])
    turns = [NewMessage(role="assistant" if number % 2 else "user", content=WORDS) for number in range(TURNS)]
    session = append(user, name, turns).session
    settle()
    with transaction.atomic():
        return Job.objects.request(BuildMoments.name, session, requested_by="benchmark", force=True, params={"lag": 0})


def _build_raw(raw: Raw, job: Job) -> None:
    assert job.session_id is not None
    assert job.user_id is not None
    raw.build(job=job.pk, user=job.user_id, session=job.session_id, turns=TURNS, turns_each=TURNS_EACH)


def _check(job: Job) -> None:
    """Raise an error if the build failed, because an early failure would look fast."""
    job.refresh_from_db()
    if job.status != Job.Status.COMPLETED or Session.objects.get(jobs=job).live_from_sequence != TURNS:
        raise RuntimeError(f"The build failed: {job.status} {job.result} {job.error}")
