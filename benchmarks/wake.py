"""How long a due job waits for an idle worker: `python -m benchmarks.wake`. The site has default settings."""

import os
import random
import sys
import time
from contextlib import closing
from statistics import median, quantiles

import psycopg

from benchmarks.clients import Http
from benchmarks.figures import print_markdown
from benchmarks.lean import running_site
from benchmarks.site import SETTINGS, database_conninfo

JOBS = 200
PAUSE = 1.0  # seconds between two jobs, on average
TITLE = "Time until a due job starts"
NOTE = "The time from when a job is queued until a worker claims it. The jobs are builds on an idle site."

WAITS = """
SELECT extract(epoch FROM started_at - queued_at) * 1000 FROM moments_app_job
WHERE process = 'build_moments' AND started_at IS NOT NULL
"""


def main() -> int:
    chance = random.Random(1)
    with running_site() as (folder, _pid, port, key):
        os.environ.update(SETTINGS, DATA_DIR=str(folder))
        import django

        django.setup()
        said = {"messages": [{"role": "user", "content": "We moved the studio to Turin in March."}]}
        with closing(Http(port, key)) as http:
            for number in range(JOBS):
                session = {"user_id": "wake", "session_id": f"wake-{number}"}
                http.request("POST", f"/api/v1/sessions/wake-{number}/messages", {"user_id": "wake"} | said)
                http.request("POST", "/api/v1/moments/build", session | {"force": True})
                time.sleep(PAUSE * chance.uniform(0.5, 1.5))
        with psycopg.connect(database_conninfo()) as connection:
            waits = [float(wait) for (wait,) in connection.execute(WAITS)]
    cells = [f"{len(waits)}", f"{median(waits):.0f}", f"{quantiles(waits, n=100)[98]:.0f}", f"{max(waits):.0f}"]
    print_markdown(TITLE, ["jobs", "median ms", "p99 ms", "maximum ms"], [cells], NOTE)
    return 0


if __name__ == "__main__":
    sys.exit(main())
