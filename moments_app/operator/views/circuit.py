"""The page of a circuit, with actions to send a probe and to close it."""

from functools import partial
from typing import Any

from moments_app.models import Circuit, Job
from sessions_app.admin.links import change_url
from sessions_app.admin.views.base import FormPage, RowAction

HELD_SHOWN = 20


class CircuitForm(FormPage[Circuit]):
    """The page of a circuit: whether the engine is called, why not, and what waits for it."""

    before = "operator/circuits/circuit.html"

    def context(self) -> dict[str, Any]:
        held = Job.objects.held().filter(circuit=self.row)
        count = held.count()
        shown = self.seen(held.select_related("user", "session__user", "stream"))
        return {
            "circuit": self.row,
            "may_change": self.admin.has_steer_permission(self.request),
            "held": shown.order_by("id")[:HELD_SHOWN],
            "held_count": count,
            "close_warning": f"The engine is called as usual again. Held jobs that become due: {count:,}.",
        }


class TryCircuit(RowAction[Circuit]):
    """Send the next probe of a circuit now."""

    route, name, permission = "<path:pk>/try/", "try", "steer"

    def change(self, circuit: Circuit) -> str:
        do = partial(circuit.try_now, self.actor)
        message = f"The next free worker or query tests {circuit}."
        self.attempt(circuit, do, log="Tried.", message=message, about=str(circuit))
        return change_url(circuit)


class CloseCircuit(RowAction[Circuit]):
    """Close a circuit. All held jobs become due."""

    route, name, permission = "<path:pk>/close/", "close", "steer"

    def change(self, circuit: Circuit) -> str:
        do = partial(circuit.close_by_hand, self.actor)
        self.attempt(circuit, do, log="Closed.", message=f"{circuit} is closed.", about=str(circuit))
        return change_url(circuit)
