"""The list of releases, and the pages of candidates, on which an operator rewords and releases an item."""

from collections.abc import Collection, Sequence
from functools import cached_property, partial
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.core.cache import cache
from django.db.models import Count, QuerySet
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import get_object_or_404
from django.template.defaultfilters import pluralize
from unfold.decorators import display

from moments_app.models import MemoryAtom, Release, ReleaseSource
from moments_app.operator.transcript import entries
from moments_app.streams.release import (
    MAX_PEOPLE,
    MAX_WORDING,
    CannotRelease,
    account_ages,
    agent_of,
    decline,
    extend,
    matching_candidates,
    release,
    revoke,
    reword,
    source_turns,
)
from sessions_app.admin.access_log import people_of
from sessions_app.admin.base import ReadOnlyAdmin
from sessions_app.admin.links import change_url, column, page_url
from sessions_app.admin.views import FormPage, OperatorPage, OperatorView, RowAction, first_of, may_see, without_field
from sessions_app.limited_operators import scope_key
from sessions_app.models import Message, Session, UserProfile
from sessions_app.models.event import named_actor

SEE_ITEMS = "moments_app.view_memoryatom"
PAGE = 20  # candidates per page
COUNTED = 1_000  # maximum number of people, and of candidates, to count
LISTED = 10  # maximum number of account ages to list
WAITING, CACHE_SECONDS = "candidates-waiting", 30  # cache key of the number of candidates, and seconds to cache it
STATES = {"active": "success", "revoked": "warning", "invalid signature": "danger"}  # colors of states


class WordingForm(forms.Form):
    wording = forms.CharField(max_length=MAX_WORDING, widget=forms.Textarea)
    note = forms.CharField(max_length=2_000, required=False)


def pending_count(request: HttpRequest) -> str:
    """Return the number of pending candidates for the sidebar. Blank if there are none."""

    def count() -> int:
        return MemoryAtom.objects.to_review()[: COUNTED + 1].count()

    number: int = cache.get_or_set(_waiting_key(), count, CACHE_SECONDS) or 0
    return f"{COUNTED:,}+" if number > COUNTED else str(number or "")


def pending_page(request: HttpRequest) -> str:
    """Return the URL of the pending decisions. Blank if there are none, or if the operator may not see them."""
    is_shown = request.user.has_perm(SEE_ITEMS) and bool(pending_count(request))
    return page_url(Release, Candidates.name) if is_shown else ""


def _waiting_key() -> str:
    return WAITING + scope_key()


def audience(agent_id: str, application: int) -> str:
    """Return a description of who sees a shard: the users of one agent, or of all agents of an application."""
    users: QuerySet[Any] = UserProfile.objects.filter(application=application)
    if agent_id:
        sessions = Session.objects.filter(user__application=application, agent_id=agent_id)
        users = sessions.order_by().values("user").distinct()
    number = users[: COUNTED + 1].count()
    people = f"more than {COUNTED:,} people" if number > COUNTED else "1 person" if number == 1 else f"{number} people"
    return f"agent {agent_id}: {people} so far" if agent_id else f"every agent: {people} so far"


def learned_from(ages: Sequence[int]) -> str:
    """Return a description of the people from whom an item was learned.

    Args:
        ages: the ages of their accounts in days, youngest first, as returned by `account_ages`.
    """
    number = len(ages)
    if number == 0:
        return "Learned from a test person only."
    if number == 1:
        return f"Learned from 1 person; their account is {_days(ages)} old."
    people = f"more than {MAX_PEOPLE}" if number > MAX_PEOPLE else str(number)
    listed = "their" if number <= LISTED else f"the {LISTED} youngest"
    return f"Learned from {people} people; {listed} accounts are {_days(ages[:LISTED])} old."


def _days(ages: Sequence[int]) -> str:
    """Return numbers of days as text, such as `2, 5 and 400 days`."""
    *others, last = map(str, ages)
    return f"{', '.join(others)} and {last} days" if others else f"{last} day{pluralize(last)}"


# --- candidates ---


class Candidates(OperatorPage):
    """Candidates without a decision, newest first."""

    route, name, title = "waiting/", "waiting", "Pending decisions"
    needs = (SEE_ITEMS,)
    template_name = "operator/releases/waiting.html"

    @cached_property
    def found(self) -> tuple[list[MemoryAtom], MemoryAtom | None]:
        """The candidates of a page, and the last of them if other candidates follow, otherwise None."""
        before = self.number("before")
        found = MemoryAtom.objects.to_review().select_related("stream", "user", "source_session").order_by("-pk")
        return first_of(found if before is None else found.filter(pk__lt=before), PAGE)

    def context(self) -> dict[str, Any]:
        items, more = self.found
        return {"items": [(item, agent_of(item)) for item in items], "more_before": more}

    def people(self) -> Collection[int]:
        return [person for atom in self.found[0] for person in people_of(atom)]


class CandidateView(OperatorView):
    needs = (SEE_ITEMS,)

    @cached_property
    def candidate(self) -> MemoryAtom:
        found = MemoryAtom.objects.active().candidates().select_related("stream", "user", "source_session")
        return get_object_or_404(found, pk=self.kwargs["candidate"])

    def people(self) -> Collection[int]:
        return people_of(self.candidate)

    @property
    def next_page(self) -> HttpResponse:
        """The redirect after a decision."""
        cache.delete(_waiting_key())
        return HttpResponseRedirect(page_url(Release, "waiting"))


class ReleaseCandidate(CandidateView, OperatorPage):
    """A candidate with its source turns, and the form to reword and release it."""

    route, name, title = "waiting/<int:candidate>/", "candidate", "Release to others"
    template_name = "operator/releases/candidate.html"

    def has_permission(self) -> bool:
        needed = "moments_app.add_release" if self.request.method == "POST" else "moments_app.view_release"
        return self.request.user.has_perm(needed)

    def context(self) -> dict[str, Any]:
        atom = self.candidate
        turns = source_turns(atom) if may_see(self.request, Message) else []
        return {
            "atom": atom,
            "wording": self.request.POST.get("wording", atom.content),
            "audience": audience(agent_of(atom), atom.stream.application_pk),
            "others": matching_candidates(atom).exclude(pk=atom.pk)[:PAGE],
            "learned_from": learned_from(account_ages(atom)),
            "entries": entries(self.request, turns),
            "last_turn": turns[-1] if turns else None,
            "missing": len(atom.source_message_ids) - len(turns),
            "may_release": self.request.user.has_perm("moments_app.add_release"),
        }

    def post(self, request: HttpRequest, **kwargs: Any) -> HttpResponse:
        form = WordingForm(request.POST)
        if not form.is_valid():
            return self.page(problem=f"Enter the text to share: 1 to {MAX_WORDING:,} characters.")
        try:
            new = release(self.candidate, **form.cleaned_data, actor=self.actor)
        except CannotRelease as error:
            return self.page(problem=without_field(error))
        users = audience(new.stream.agent_id, new.stream.application_pk)
        self.log(new, "Released.", f"Released to the users of {users}.")
        return self.next_page


class KeepPrivate(CandidateView):
    """Keep a candidate private."""

    route, name = "waiting/<int:candidate>/keep/", "keep"

    def has_permission(self) -> bool:
        return self.request.user.has_perm("moments_app.add_release")

    def post(self, request: HttpRequest, **kwargs: Any) -> HttpResponse:
        try:
            decline(self.candidate, actor=self.actor)
        except CannotRelease as error:
            raise Http404 from error
        messages.success(request, "Not released. Only the person from whom the item was learned can see it.")
        return self.next_page


# --- releases ---


class ReleaseForm(FormPage[Release]):
    """The page of a release: its audience and its sources."""

    before = "operator/releases/release.html"

    @cached_property
    def sources(self) -> list[ReleaseSource]:
        """The sources, for operators who may see items."""
        found = self.row.sources.select_related("user", "atom")
        return list(found) if self.request.user.has_perm(SEE_ITEMS) else []

    def people(self) -> Collection[int]:
        return [source.user_id for source in self.sources]

    def context(self) -> dict[str, Any]:
        row = self.row
        return {
            "release": row,
            "audience": audience(row.stream.agent_id, row.stream.application_pk),
            "sources": self.sources,
            "wider": row.wider.in_effect().select_related("stream"),
            "replaced_by": row.replaced_by.first(),
            "may_change": row.revoked_at is None and self.admin.has_steer_permission(self.request),
        }


class RevokeRelease(RowAction[Release]):
    """Revoke a release."""

    route, name, permission = "<int:pk>/revoke/", "revoke", "steer"

    def change(self, row: Release) -> str:
        message = "Revoked. Other people's contexts and searches no longer include it."
        self.attempt(row, partial(revoke, row, actor=self.actor), log="Revoked.", message=message)
        return change_url(row)


class ExtendRelease(RowAction[Release]):
    """Share a release of one agent with the users of every agent."""

    route, name, permission = "<int:pk>/extend/", "extend", "steer"

    def change(self, row: Release) -> str:
        message = "Released to the users of every agent."
        self.attempt(row, partial(extend, row, actor=self.actor), log="Extended.", message=message)
        return change_url(row)


class RewordRelease(RowAction[Release]):
    """Replace a release with another wording."""

    route, name, permission = "<int:pk>/reword/", "reword", "steer"

    def change(self, row: Release) -> str:
        form = WordingForm(self.request.POST)
        if not form.is_valid():
            messages.error(self.request, f"Enter the text to share: 1 to {MAX_WORDING:,} characters.")
            return change_url(row)
        message = "Released with the new wording. The previous release is revoked."
        do = partial(reword, row, **form.cleaned_data, actor=self.actor)
        self.attempt(row, do, log="Reworded.", message=message)
        return change_url(Release.objects.filter(replaces=row).first() or row)


@admin.register(Release)
class ReleaseAdmin(ReadOnlyAdmin):
    """Releases, newest first."""

    list_display = ("wording", "shard", "people", "by", "created_at", "state")
    by = column("actor", "Released by", named_actor, ordering="actor")
    revoked = column("revoked_by", "Revoked by", named_actor, ordering="revoked_by")
    shard = column("stream.title", "Shared memory")
    people = column("people", "Source people")
    list_filter = (("revoked_at", admin.EmptyFieldListFilter),)
    search_fields = search_prefixes = ("wording", "actor")
    search_help_text = "Start of the shared text, or of the operator (operator:…)"
    ordering = ("-id",)
    when_empty = "Nothing is shared with others yet. Items that could be shared wait under Pending decisions."
    list_before_template = "operator/releases/list.html"
    actions = ("revoke_selected",)
    form_page = ReleaseForm
    views = (Candidates, ReleaseCandidate, KeepPrivate, RevokeRelease, ExtendRelease, RewordRelease)
    fields = ("wording", "note", ("by", "created_at"), ("revoked_at", "revoked", "release_id"))
    revoke_selected = RevokeRelease.for_selected(
        "Revoke selected releases",
        button="Revoke these releases",
        warning="Other people's contexts and searches no longer include them. To share them again, create new "
        "releases.",
    )

    def get_queryset(self, request: HttpRequest) -> QuerySet[Release]:
        queryset: QuerySet[Release] = super().get_queryset(request)
        people = Count("sources__user", distinct=True)
        return queryset.select_related("stream", "atom").annotate(people=people)

    @display(description="State", label=STATES)  # type: ignore[untyped-decorator]
    def state(self, release: Release) -> str:
        if release.revoked_at:
            return "revoked"
        return "active" if release.is_signed else "invalid signature"
