"""Tasks that the schedules queue: sweeps that ask for jobs, and what is to be done once, such as removing files."""

import traceback

from django.utils import timezone
from django.utils.module_loading import import_string
from django_q.brokers import get_broker
from django_q.models import Schedule
from django_q.monitor import save_task
from django_q.signing import SignedPackage


def next_schedule(*, within: float) -> float:
    """Return the seconds until the next schedule is due, at most `within`."""
    due = Schedule.objects.exclude(repeats=0).order_by("next_run").values_list("next_run", flat=True)
    for next_run in due[:1]:
        return min(max((next_run - timezone.now()).total_seconds(), 0.0), within)
    return within


def run_scheduled() -> bool:
    """Run the tasks that wait, in this process; return False when none does.

    One that fails is kept among the queue's failures with its traceback, and comes again later.
    """
    broker = get_broker()
    taken = broker.dequeue() or []
    for entry, package in taken:
        task = SignedPackage.loads(package)
        try:
            task["result"], task["success"] = import_string(task["func"])(*task["args"], **task["kwargs"]), True
        except Exception as error:
            task["result"], task["success"] = f"{error} : {traceback.format_exc()}", False
        task["stopped"] = timezone.now()
        save_task(task, broker)
        if task["success"]:
            broker.acknowledge(entry)
    return bool(taken)
