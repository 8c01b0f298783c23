"""What an older release had queued: jobs are found by their rows now."""

from moments_app.jobs import runner


def run_job(job_id: str) -> None:
    """Run a job if it is due and nobody else works on it."""
    runner.run_job(job_id)
