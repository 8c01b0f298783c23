"""Tasks that the schedules queue: sweeps that ask for jobs, and what is to be done once, such as removing files."""

import traceback

from django.utils import timezone
from django.utils.module_loading import import_string
from django_q.brokers import get_broker
from django_q.monitor import save_task
from django_q.signing import SignedPackage


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
