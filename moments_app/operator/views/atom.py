"""The page of a fact or observation with its sources; and evicting, restoring and moving it."""

from functools import partial
from typing import Any

from django import forms
from django.contrib import messages
from django.template.defaultfilters import pluralize

from moments_app.models import MemoryAtom, MemoryStream, Release, StatementChange
from moments_app.operator.rights import SEE_MEMORY, may_retract_directly
from moments_app.operator.transcript import entries
from moments_app.streams import edit
from moments_app.streams.texts import is_in_line
from sessions_app.admin.actors import name_of, with_key_names
from sessions_app.admin.links import change_url
from sessions_app.admin.views import FormPage, RowAction, may_see
from sessions_app.models import Message

TARGETS = 100  # maximum streams to choose from
SOURCES = 50  # maximum source turns
CHANGES = 50  # maximum number of changes in the history


class MoveForm(forms.Form):
    """The target of a move: another stream of the same person; for a shard's item, another shard."""

    stream = forms.ModelChoiceField(MemoryStream.objects.none())

    def __init__(self, atom: MemoryAtom, data: Any = None) -> None:
        super().__init__(data)
        streams = MemoryStream.objects.filter(user=atom.user_id).exclude(pk=atom.stream_id)
        self.fields["stream"].queryset = streams  # type: ignore[attr-defined]
        self._streams = streams.select_related("user", "session").order_by("-stream_type", "-last_updated_at", "-pk")

    def targets(self) -> list[MemoryStream]:
        """Return the streams to choose from: first the person's own, then those of sessions, latest first."""
        return list(self._streams[:TARGETS])


class AtomForm(FormPage[MemoryAtom]):
    """An item's sources, and the actions on it."""

    before, after = "operator/facts/fact.html", "operator/facts/source.html"

    def context(self) -> dict[str, Any]:
        atom, may_change = self.row, self.admin.has_change_permission(self.request)
        may_move = self.admin.has_change_permission(self.request, atom)
        turns, is_released = self._source_turns(), hasattr(atom, "release")
        return {
            "show_save_and_add_another": False,
            "atom": atom,
            "written_by": name_of(self.request, atom.written_by),
            "may_move": may_move,
            "eviction_warning": _eviction_warning(atom),
            "may_evict": may_move or (may_change and not is_released and _is_line_or_left_behind(atom)),
            "may_correct": _may_be_corrected(atom) and may_change and self.request.user.has_perms(SEE_MEMORY),
            "may_search": atom.user_id and not atom.is_candidate and self.request.user.has_perms(SEE_MEMORY),
            "may_retract": self._may_retract(),
            "may_restore": atom.state == MemoryAtom.State.EVICTED and may_change and not is_released,
            "targets": MoveForm(atom).targets() if may_move else [],
            "history": self._history(),
            "calls": self.seen(atom.job.engine_calls.all()) if atom.job else (),
            "sees_turns": may_see(self.request, Message),
            "entries": entries(self.request, turns[:SOURCES]),
            "last_turn": turns[-1] if turns else None,
            "missing": len(atom.source_message_ids) - len(turns),
        }

    def _may_retract(self) -> bool:
        """Return whether the operator may retract it: only directly written items can be retracted."""
        rests_on_others = self.row.engine or self.row.source_message_ids or hasattr(self.row, "release")
        return not rests_on_others and may_retract_directly(self.request)

    def _history(self) -> list[StatementChange]:
        changes = with_key_names(self.request, self.seen(self.row.history.newest_first()), "actor")
        return list(changes[:CHANGES])

    def _source_turns(self) -> list[Message]:
        turns = Message.objects.filter(pk__in=self.row.source_message_ids).select_related("session").in_order()
        return list(self.seen(turns))


class EvictAtom(RowAction[MemoryAtom]):
    """Take an item out of memory."""

    route, name = "<int:pk>/evict/", "evict"

    def change(self, atom: MemoryAtom) -> str:
        done = "Removed from memory."
        message = f"{done} Contexts and searches no longer include it."
        self.attempt(atom, partial(edit.evict, atom, requested_by=self.actor), log=done, message=message)
        return change_url(atom)


class RestoreAtom(RowAction[MemoryAtom]):
    """Restore an item to memory."""

    route, name = "<int:pk>/restore/", "restore"

    def change(self, atom: MemoryAtom) -> str:
        restore = partial(edit.restore, atom, requested_by=self.actor)
        self.attempt(atom, restore, log="Restored.", message="Restored. Contexts and searches include it again.")
        return change_url(atom)


class MoveAtom(RowAction[MemoryAtom]):
    """Move an item to another stream."""

    route, name = "<int:pk>/move/", "move"

    def change(self, atom: MemoryAtom) -> str:
        form = MoveForm(atom, self.request.POST)
        if form.is_valid():
            self._move(atom, form.cleaned_data["stream"])
        else:
            messages.error(self.request, "Choose another memory text of the same person.")
        return change_url(atom)

    def _move(self, atom: MemoryAtom, stream: MemoryStream) -> None:
        log = f"Moved from the {atom.stream.title} to the {stream.title}."
        move = partial(edit.move, atom, stream, requested_by=self.actor)
        self.attempt(atom, move, log=log, message=f"Moved to the {stream.title}.")


def _may_be_corrected(atom: MemoryAtom) -> bool:
    is_of_person = atom.user_id is not None and not atom.is_candidate
    return is_of_person and atom.state != MemoryAtom.State.EVICTED and not atom.is_wrong


def _eviction_warning(atom: MemoryAtom) -> str:
    """Return a warning that others still see releases of the item; blank if there are none."""
    shared = Release.objects.standing().with_sources([atom]).count()
    if not shared:
        return ""
    rest = f"{shared} released item{pluralize(shared)} {pluralize(shared, 'is,are')} based on it."
    return f"{rest} Other people still see the released text until you revoke the release."


def _is_line_or_left_behind(atom: MemoryAtom) -> bool:
    """Return whether the item is a line of a text, or was merged into a text that no longer contains it."""
    is_absorbed = atom.state == MemoryAtom.State.ABSORBED
    return atom.state == MemoryAtom.State.LINE or (is_absorbed and not is_in_line(atom))
