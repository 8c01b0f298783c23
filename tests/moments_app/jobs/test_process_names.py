import os
import subprocess
import sys

import pytest

from moments_app.jobs.worker import is_gone, this_process

NAMED = "import django; django.setup(); from moments_app.jobs.worker import this_process; print(this_process())"


@pytest.mark.slow
def test_a_running_process_is_alive_and_a_zombie_and_an_ended_process_are_gone() -> None:
    assert this_process() and not is_gone(this_process())
    child = subprocess.Popen([sys.executable, "-c", NAMED], stdout=subprocess.PIPE, text=True)
    assert child.stdout
    name = child.stdout.readline().strip()
    child.stdout.read()  # until the child exits
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert name != this_process() and is_gone(name)
    child.wait()
    assert is_gone(name)


def test_a_process_with_a_reused_id_is_another_process() -> None:
    place_and_pid, _, started = this_process().rpartition(" ")
    assert is_gone(f"{place_and_pid} {int(started) - 1}")


def test_the_state_of_a_process_on_another_host_is_unknown() -> None:
    host, boot, namespace, pid, _started = this_process().split()
    for name in (
        "",
        f"other {boot} {namespace} {pid} 1",
        f"{host} {boot} 1 {pid} 1",
        f"{host} 0-0 {namespace} {pid} 1",
    ):
        assert not is_gone(name)
