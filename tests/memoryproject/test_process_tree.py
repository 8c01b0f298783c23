"""One process tree per data directory, under kills, second starts and repeated Ctrl-C."""

import errno
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

import psutil
import pytest

from memoryproject import process_tree
from memoryproject.database import embedded
from memoryproject.process_tree import (
    MARK_FILE,
    STOP_SECONDS,
    WAKE,
    CannotStart,
    DirectoryLocked,
    Fork,
    Tree,
    lock_directory,
    treat_sigterm_as_ctrl_c,
)
from tests.clients.test_embedded import MEMORY, TOLD, printed_by
from tests.support.folders import data_folder, migrated_folder
from tests.support.processes import manage
from tests.support.running import Run, of_folder
from tests.support.waiting import TIMEOUT, wait_until

pytestmark = pytest.mark.slow(seconds=30)


@pytest.fixture
def folder() -> Iterator[Path]:
    with data_folder() as folder:
        yield folder


class Sites:
    """The running site of this module: that of the last test, because a start takes long.

    Args:
        folder: Its data directory.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._last: Run | None = None

    @property
    def is_running(self) -> bool:
        return self._last is not None and self._last.process.poll() is None

    def serve(self, *, port: int | None = None) -> Run:
        """Return the running site. Start one if the last one has ended."""
        if self._last is None or not self.is_running:
            self._last = Run(self._folder, "--no-demo", port=port)
        return self._last.serve()

    def stop(self) -> None:
        if self._last is not None and self.is_running:
            self._last.stop()


@pytest.fixture(scope="module")
def sites() -> Iterator[Sites]:
    with migrated_folder() as folder:
        sites = Sites(folder)
        yield sites
        sites.stop()


def test_row_26_all_processes_end_with_a_killed_root_and_the_next_start_serves(sites: Sites) -> None:
    run = sites.serve()
    assert len(run.members()) >= 5
    run.process.kill()
    wait_until(lambda: not of_folder(run.folder))
    assert embedded.running_socket(run.folder / "postgres") is None
    again = sites.serve(port=run.port)
    assert f"All processes stopped when process {run.process.pid} since" in again.printed
    assert again.answers()


def test_row_26_a_second_start_names_the_process_that_holds_the_directory_and_changes_nothing(
    sites: Sites,
) -> None:
    run = sites.serve()
    there = {process.pid for process in run.members()}
    second = Run(run.folder, "--no-demo", port=run.port)
    printed = second.ended()
    assert second.process.returncode == 1
    assert f"is in use by process {run.process.pid} since" in printed
    assert "stop it with Ctrl-C" in printed and "make run PORT=8001" in printed
    assert run.answers()
    assert there <= {process.pid for process in run.members()}


def test_an_embedded_client_names_the_process_that_holds_the_directory(sites: Sites) -> None:
    run = sites.serve()
    told = printed_by(MEMORY + TOLD, run.folder)
    assert f"{run.folder} is in use by process {run.process.pid} since" in told


def test_row_26_a_port_in_use_is_named_before_anything_starts(folder: Path) -> None:
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        run = Run(folder, "--no-demo", port=taken.getsockname()[1])
        printed = run.ended()
    assert run.process.returncode == 1
    assert f"Can't listen on 127.0.0.1, port {run.port} (" in printed
    assert not (folder / "postgres").exists()


def _prepares(run: Run) -> bool:
    return "Preparing" in run.printed


def _has_started_the_database(run: Run) -> bool:
    return embedded.running_socket(run.folder / "postgres") is not None


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
@pytest.mark.parametrize("comes", [_prepares, _has_started_the_database])
def test_row_26_a_stopped_first_start_leaves_no_process_and_can_be_repeated(
    folder: Path, comes: Callable[[Run], bool], number: int
) -> None:
    run = Run(folder, "--no-demo")
    wait_until(lambda: comes(run))
    run.process.send_signal(number)
    assert "Traceback" not in run.ended()
    wait_until(lambda: not of_folder(folder))
    if number == signal.SIGTERM:
        assert (run.process.returncode, run.printed.splitlines()[-1]) == (0, "Stopped.")
    assert embedded.ensure_running(folder / "postgres")


def test_row_25_every_killed_process_is_restarted(sites: Sites) -> None:
    run = sites.serve()
    for process in run.members():
        with suppress(psutil.Error):
            process.kill()
            wait_until(run.answers)
    assert run.process.poll() is None
    assert "is being restarted" in run.printed
    wait_until(lambda: not [child for child in run.members() if child.status() == psutil.STATUS_ZOMBIE])
    run.process.send_signal(signal.SIGINT)
    assert "Stopping." in run.ended()
    assert run.process.returncode == 0
    assert of_folder(run.folder) == []
    assert not (run.folder / MARK_FILE).exists()  # it ended regularly


def test_row_26_a_second_ctrl_c_kills_all_processes(sites: Sites) -> None:
    run = sites.serve()
    for member in run.members():  # a member that would not end on its own
        if member.name() == "The web server":
            member.suspend()
    began = time.monotonic()
    run.process.send_signal(signal.SIGINT)
    wait_until(lambda: any(member.status() == psutil.STATUS_ZOMBIE for member in run.members()))
    run.process.send_signal(signal.SIGINT)
    run.ended()
    assert time.monotonic() - began < STOP_SECONDS  # the grace period of the suspended member
    wait_until(lambda: not of_folder(run.folder))


def test_commands_do_not_create_a_database(folder: Path) -> None:
    own = {"DATA_DIR": str(folder), "DATABASE_URL": "", "MEMORY_NEW_DATABASE": ""}
    tried = manage("create_api_key", "mine", **own)
    assert tried.returncode == 1
    assert f"there is no database in {folder / 'postgres'}" in tried.stderr
    assert not (folder / "postgres").exists()


def test_a_directory_can_be_held_only_once(tmp_path: Path) -> None:
    with (
        lock_directory(tmp_path),
        pytest.raises(DirectoryLocked, match=f"process {os.getpid()} since"),
        lock_directory(tmp_path),
    ):
        pass
    with lock_directory(tmp_path):
        pass


def test_only_errors_of_the_directory_are_reported_as_such(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    below = tmp_path / "file" / "data"
    with pytest.raises(CannotStart, match=f"DATA_DIR: {below} can't be used: Not a directory"), lock_directory(below):
        pass
    with pytest.raises(OSError, match="Network is down"), lock_directory(tmp_path):
        raise OSError(errno.ENETDOWN, os.strerror(errno.ENETDOWN))


def test_a_child_that_dies_at_once_is_restarted_with_growing_delays() -> None:
    told: list[tuple[str, float]] = []
    tree = Tree([Fork("The brief one", lambda: os._exit(3))], lambda text: told.append((text, time.monotonic())))
    tree.start()

    def has_died_again() -> bool:
        tree.supervise()
        return len(told) == 4

    wait_until(has_died_again)
    tree.stop()
    assert {text for text, _ in told} == {"The brief one exited with status 3 and is being restarted."}
    assert all(later - earlier >= seconds for seconds, ((_, earlier), (_, later)) in enumerate(pairwise(told)))


def test_a_child_that_ran_for_a_while_is_restarted_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_tree, "STEADY_SECONDS", 0)
    child = Fork("The steady one", lambda: os._exit(3))
    is_due: list[bool] = []
    tree = Tree([child], lambda _: is_due.append(child.due_at <= time.monotonic()))
    tree.start()

    def has_died_again() -> bool:
        tree.supervise()
        return len(is_due) == 4

    wait_until(has_died_again)
    tree.stop()
    assert all(is_due)


def test_a_resting_child_is_restarted_only_for_work() -> None:
    told: list[str] = []
    child = Fork("The tired one", lambda: None, exits_when_idle=True)
    tree = Tree([child], told.append)
    tree.start()
    first = child.pid
    wait_until(lambda: child.exited_when_idle)
    tree.check_started()
    tree.supervise()
    assert child.pid == first
    tree.wake()
    tree.supervise()
    second = child.pid
    assert second != first
    wait_until(lambda: child.exited_when_idle)
    tree.supervise()
    assert child.pid == second
    tree.stop()
    assert told == []


@pytest.mark.slow
def test_a_child_that_is_woken_before_it_rests_is_restarted() -> None:
    child = Fork("The slow one", lambda: time.sleep(1), exits_when_idle=True)
    tree = Tree([child], lambda _: None)
    tree.start()
    first = child.pid
    tree.wake()
    wait_until(lambda: child.exited_when_idle)
    tree.supervise()
    assert child.pid != first
    tree.stop()


def test_a_signal_wakes_resting_children(tmp_path: Path) -> None:
    root = Fork("The root", lambda: _rest_and_note_starts(tmp_path))
    root.start()
    try:
        wait_until(lambda: len(list(tmp_path.iterdir())) == 1)
        time.sleep(0.3)
        assert len(list(tmp_path.iterdir())) == 1
        root.signal(WAKE)
        wait_until(lambda: len(list(tmp_path.iterdir())) > 1)
    finally:
        root.signal(signal.SIGKILL)
        root.wait(TIMEOUT)


def _rest_and_note_starts(folder: Path) -> None:
    tree = Tree([Fork("A child", lambda: (folder / str(os.getpid())).touch(), exits_when_idle=True)], lambda _: None)
    tree.start()
    tree.run_until_interrupted()


def test_a_fork_has_its_own_process_name() -> None:
    fork = Fork("The quiet one", lambda: time.sleep(60))
    fork.start()
    try:
        wait_until(lambda: psutil.Process(fork.pid).name() == "The quiet one")
    finally:
        fork.signal(signal.SIGKILL)
        fork.wait(TIMEOUT)


def test_ctrl_c_during_a_fork_is_not_lost(tmp_path: Path) -> None:
    interrupted = tmp_path / "interrupted"
    root = Fork("The root", lambda: _press_ctrl_c_during_a_fork(interrupted))
    root.start()
    root.wait(TIMEOUT)
    assert interrupted.exists()


def _press_ctrl_c_during_a_fork(interrupted: Path) -> None:
    treat_sigterm_as_ctrl_c()
    os.register_at_fork(after_in_parent=lambda: os.kill(os.getpid(), signal.SIGINT))
    child = Fork("A child", lambda: time.sleep(TIMEOUT))
    try:
        child.start()
    except KeyboardInterrupt:
        assert child.is_alive
        interrupted.touch()
        child.signal(signal.SIGTERM)
