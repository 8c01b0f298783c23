import os
import subprocess
import sys

import pytest

from moments_app.jobs.whereabouts import is_gone, this_process

NAME = [sys.executable, "-c", "from moments_app.jobs.whereabouts import this_process; print(this_process())"]


@pytest.mark.slow
def test_a_process_that_runs_is_not_gone_and_one_that_ended_is() -> None:
    assert this_process() and not is_gone(this_process())
    ended = subprocess.run(NAME, capture_output=True, text=True, check=True).stdout.strip()
    assert ended != this_process() and is_gone(ended)


@pytest.mark.slow
def test_one_that_ended_is_gone_before_it_is_buried() -> None:
    child = subprocess.Popen(NAME, stdout=subprocess.PIPE, text=True)
    assert child.stdout
    name = child.stdout.readline().strip()
    child.stdout.read()  # until it ends
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert is_gone(name)
    child.wait()


def test_a_process_id_that_was_given_away_again_is_not_the_same_process() -> None:
    place_and_pid, _, started = this_process().rpartition(" ")
    assert is_gone(f"{place_and_pid} {int(started) - 1}")


def test_of_a_process_elsewhere_nothing_is_known() -> None:
    host, boot, namespace, pid, _started = this_process().split()
    for name in (
        "",
        f"other {boot} {namespace} {pid} 1",
        f"{host} {boot} 1 {pid} 1",
        f"{host} 0-0 {namespace} {pid} 1",
    ):
        assert not is_gone(name)
