"""The queue's entry point: a task only names a job, whose row decides. Sweeps are run by `memoryproject.schedules`."""

from moments_app.jobs import runner


def run_job(job_id: str) -> None:
    """Run a job if it is due and nobody else works on it."""
    runner.run_job(job_id)
