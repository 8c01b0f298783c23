"""Memory of a site's processes after many requests and jobs: `python -m benchmarks.lives`.

The site has default settings. Its people send messages from real conversations, ask for contexts, search and list.
Memory is read after each tenth of the requests. Linux only, because it reads /proc.
"""

import argparse
import os
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from itertools import chain
from pathlib import Path

from benchmarks.clients import Http
from benchmarks.conversations import read_folder
from benchmarks.figures import print_markdown
from benchmarks.lean import processes_of, running_site
from benchmarks.site import SETTINGS
from benchmarks.steady import CLIENTS, CONVERSATIONS

PARTS = 10
KINDS = 5  # of requests
PEOPLE = 300
TURNS = 20  # in a session
API = "/api/v1"
TITLE = "Memory over many requests"
NOTE = "Memory: the proportional set size (PSS) in MB of all processes of a purpose. Jobs: completed so far."


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.lives", description=__doc__)
    parser.add_argument("--requests", type=int, default=1_000_000, help="number of requests (1,000,000)")
    options = parser.parse_args(arguments)
    with running_site() as (folder, pid, port, key):
        os.environ.update(SETTINGS, DATA_DIR=str(folder))
        import django

        django.setup()
        rows = [_take_part(port, key, pid, folder, range(0))]
        for start in range(0, options.requests // KINDS, part := options.requests // KINDS // PARTS):
            figures = _take_part(port, key, pid, folder, range(start, start + part))
            rows.append(figures)
            print({name: round(number) for name, number in figures.items()}, file=sys.stderr)
    columns = list(dict.fromkeys(chain(*rows)))
    print_markdown(TITLE, columns, ([f"{row[name]:,.0f}" for name in columns] for row in rows), NOTE)
    return 0


def _take_part(port: int, key: str, pid: int, folder: Path, rounds: range) -> Counter[str]:
    """Make a request of each kind in each round. Return the rate, the completed jobs and the memory by purpose."""
    from django.db import connection

    from moments_app.models import Job

    started = time.monotonic()
    with ThreadPoolExecutor(CLIENTS) as pool:
        list(pool.map(lambda client: _call(port, key, rounds[client::CLIENTS]), range(CLIENTS)))
    figures = Counter({"requests": rounds.stop * KINDS})
    figures["per second"] = round(len(rounds) * KINDS / (time.monotonic() - started))
    figures["jobs"] = Job.objects.filter(status=Job.Status.COMPLETED).count()
    connection.close()
    for process in processes_of(pid, folder):
        figures[process.purpose] += round(process.pss)
    return figures


def _call(port: int, key: str, rounds: range) -> None:
    """Make a request of each kind for the next person in each round."""
    texts = [turn.text for one in read_folder(CONVERSATIONS) for _session, turn in one.turns]
    with closing(Http(port, key)) as http:
        for number in rounds:
            person, query = {"user_id": f"person-{number % PEOPLE}"}, texts[number % len(texts)][:1000]
            session = f"{person['user_id']}-{number // PEOPLE // TURNS}"
            messages = [{"role": "user", "content": query}]
            http.request("POST", f"{API}/sessions/{session}/messages", person | {"messages": messages})
            http.request("POST", f"{API}/memory/context", person | {"session_id": session})
            http.request("POST", f"{API}/memory/context", person | {"session_id": session, "query": query})
            http.request("POST", f"{API}/memory/search", person | {"query": query})
            http.request("GET", f"{API}/sessions/{session}/messages?user_id={person['user_id']}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
