"""The page of a moment next to its source turns, and the chain of a person's moments."""

from collections.abc import Collection
from datetime import datetime
from functools import cached_property
from typing import Any

from django.contrib.admin.models import LogEntry
from django.contrib.contenttypes.models import ContentType
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, render

from moments_app.models import EngineCall, Moment
from moments_app.models.moment import MomentQuerySet
from moments_app.operator import moment_chain
from moments_app.operator.as_of import AsOf
from moments_app.operator.pager import first_of
from moments_app.operator.transcript import entries
from sessions_app.admin.reading import people_of
from sessions_app.admin.views.base import FormPage, OperatorPage, OperatorView, RowView, may_see
from sessions_app.models import Message, UserProfile

SOURCE_TURNS = 200
CALLS_SHOWN = 5
CORRECTIONS_SHOWN = 10
SECTIONS = {"at": moment_chain.around, "before": moment_chain.earlier_than, "after": moment_chain.later_than}


class MomentForm(FormPage[Moment]):
    """The moments before and after a moment, its turns, and the job that created it."""

    before, after = "operator/moments/neighbors.html", "operator/moments/source.html"

    def context(self) -> dict[str, Any]:
        moment = self.row
        calls = EngineCall.objects.filter(job=moment.job_id or 0).order_by("-id")
        corrections = LogEntry.objects.filter(
            content_type=ContentType.objects.get_for_model(Moment), object_id=str(moment.pk)
        )
        return read(self, moment) | {
            "is_fullwidth": "1",
            "next_moment": Moment.objects.later_than(moment).first(),
            "calls": self.seen(calls)[:CALLS_SHOWN],
            "corrections": corrections.select_related("user")[:CORRECTIONS_SHOWN],
        }


class MomentReading(RowView[Moment]):
    """A moment next to its source turns, to open within the timeline."""

    route, name = "<int:pk>/reading/", "reading"

    def get(self, request: HttpRequest, **kwargs: Any) -> HttpResponse:
        return render(request, "operator/moments/reading.html", read(self, self.row))


class Chain(OperatorPage):
    """A person's moments as a timeline, around the requested moment or the newest."""

    route, name = "chain/<int:user_pk>/", "chain"
    template_name = "operator/moments/chain.html"

    @cached_property
    def person(self) -> UserProfile:
        """The person of the URL."""
        return get_object_or_404(UserProfile, pk=self.kwargs["user_pk"])

    def get_title(self) -> str:
        return f"Moments of {self.person}"

    def context(self) -> dict[str, Any]:
        as_of = AsOf.of(self.request)
        moments = self.admin.get_queryset(self.request).for_user(self.person).newest_first()
        if as_of.time:
            moments = moments.filter(ends_at__lte=as_of.time)
        newest, oldest = moments.first(), moments.last()
        section = self._section_asked_for(moments, as_of.time) or (
            moment_chain.around(newest, as_of.time) if newest else None
        )
        shown = {"person": self.person, "newest": newest, "oldest": oldest, "section": section, "as_of": as_of}
        return shown | (read(self, section.opened) if section and section.opened else {})

    def people(self) -> Collection[int]:
        """Return the person of the chain."""
        return people_of(self.person)

    def _section_asked_for(self, moments: MomentQuerySet, until: datetime | None) -> moment_chain.ChainSection | None:
        """Read the section around the moment that the URL names, if it is one of the person's moments."""
        for name, section in SECTIONS.items():
            pk = self.number(name)
            if pk is not None and (moment := moments.filter(pk=pk).first()):
                return section(moment, until)
        return None


def read(view: OperatorView, moment: Moment) -> dict[str, Any]:
    """Read a moment with the moments it names, and with its turns if the operator of the view may see turns."""
    own = Moment.objects.filter(user_id=moment.user_id, key__in=moment.previous_moment_keys)
    named = {previous.key: previous for previous in own}
    turns = view.seen(Message.objects.filter(user_id=moment.user_id, moment=moment).in_order())
    shown, more = first_of(turns, SOURCE_TURNS)
    return {
        "moment": moment,
        "previous_moments": [named[key] for key in moment.previous_moment_keys if key in named],
        "entries": entries(view.request, shown),
        "sees_turns": may_see(view.request, Message),
        "has_more_turns": more is not None,
    }
