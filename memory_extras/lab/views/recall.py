"""The recall console: a query as an application would send it, and how each result was ranked."""

from collections.abc import Collection
from typing import Any

from django import forms
from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from memory_extras.lab.inspection import Inspection, inspect
from memoryproject.admin_menu import add_page
from moments_app.interfaces.api.memory import MATCH_COUNT_MAX
from moments_app.models import MemoryAtom
from moments_app.operator.addresses import Pages
from moments_app.operator.person_pages import READ_PERSON, SEE_MEMORY
from moments_app.recall.request import KINDS, MODES, RecallRequest
from moments_app.recall.search import MATCH_COUNT
from sessions_app import lexemes
from sessions_app.admin.access_log import people_of
from sessions_app.admin.applications import are_several
from sessions_app.admin.base import add_views, prefix_search
from sessions_app.admin.links import highlighted
from sessions_app.admin.views import OperatorPage, OperatorView
from sessions_app.lexemes import QUERY_MAX_CHARS
from sessions_app.models import Application, UserProfile
from sessions_app.models.application import DEFAULT

BAR = 1000  # width of the bar in its own units
PEOPLE = 20  # maximum number of people in the list
MODE_LABELS = {"hybrid": "words and meaning", "semantic": "meaning only", "text": "words only"}
STEP_LABELS = {
    "embedding": "embed query",
    "words": "look up words",
    "search by text": "search by words",
    "search by semantic": "search by meaning",
    "fusion": "fusion",
    "reading": "read results",
}


class RecallForm(forms.Form):
    """A query, and the person whose memory is searched."""

    application = forms.ModelChoiceField(Application.objects.all(), required=False, empty_label=None)
    user_id = forms.CharField(label="User", max_length=255)
    query = forms.CharField(label="Query", max_length=QUERY_MAX_CHARS)
    mode = forms.ChoiceField(label="Search by", choices=[(mode, MODE_LABELS[mode]) for mode in MODES], required=False)
    kinds = forms.MultipleChoiceField(label="Kinds", choices=[(kind, f"{kind}s") for kind in KINDS], required=False)
    since = forms.DateTimeField(label="Said since (UTC)", required=False)
    agent_id = forms.CharField(label="Agent", max_length=255, required=False)
    most = forms.IntegerField(label="Results", min_value=1, max_value=MATCH_COUNT_MAX, required=False)

    def question(self) -> RecallRequest:
        data = self.cleaned_data
        return RecallRequest(data["query"], data["kinds"] or KINDS, data["since"], data["mode"] or "hybrid")


class ConsoleView(OperatorView):
    """A view of the console. It shows data of several lists, and requires the permissions of all of them."""

    needs = (READ_PERSON, *SEE_MEMORY)


def may_recall(request: HttpRequest) -> bool:
    return request.user.has_perms(ConsoleView.needs)


class Recall(ConsoleView, OperatorPage):
    """The form with the results. They don't count as used."""

    route, name = "recall/", "recall"
    template_name = "operator/recall/console.html"
    title = "Search console"
    asked: UserProfile | None = None

    def context(self) -> dict[str, Any]:
        has_query = self.request.GET.keys() & RecallForm.base_fields.keys()
        form = RecallForm(self.request.GET if has_query else None, initial={"kinds": KINDS, "mode": "hybrid"})
        shown = {"form": form, "kinds": _chosen(form), "match_count": MATCH_COUNT}
        shown |= {"several_applications": are_several()}
        return shown | (self._found(form) if form.is_valid() else {})

    def people(self) -> Collection[int]:
        return people_of(self.asked) if self.asked else ()

    def _found(self, form: RecallForm) -> dict[str, Any]:
        user_id, application = form.cleaned_data["user_id"], form.cleaned_data["application"]
        self.asked = UserProfile.objects.named(user_id, application.pk if application else DEFAULT)
        return _found(form, self.asked) if self.asked else {"nobody": user_id, "people": _people(user_id)}


class RecallPeople(ConsoleView):
    """Lists people whose user_id starts with the typed text."""

    route, name = "recall/people/", "recall_people"

    def get(self, request: HttpRequest, **kwargs: Any) -> HttpResponse:
        return render(request, "operator/recall/people.html", {"people": _people(request.GET.get("user_id", ""))})


def _chosen(form: RecallForm) -> list[tuple[str, str, bool]]:
    """Return the kinds with their labels, and whether each is searched."""
    chosen = form["kinds"].value() or KINDS
    return [(kind, f"{kind}s", kind in chosen) for kind in KINDS]


def _people(beginning: str) -> list[str]:
    found = prefix_search(UserProfile.objects.all(), beginning, "user_id")
    return list(found.order_by("user_id").values_list("user_id", flat=True)[:PEOPLE])


def _found(form: RecallForm, user: UserProfile) -> dict[str, Any]:
    data = form.cleaned_data
    seen = inspect(user, data["agent_id"], form.question(), limit=data["most"])
    words = lexemes.whole_words(data["query"])
    pages = Pages(user, [result.ref for result in seen.results])
    return {
        "profile": user,
        "seen": seen,
        "results": [(result, pages.source(result.ref), highlighted(result.content, words)) for result in seen.results],
        "steps": _steps(seen),
        "bar": BAR,
        "total": sum(seen.steps.values()),
        "mode": MODE_LABELS[seen.request.used_mode],
        "is_counted": seen.words is not None and any(number for number, _ in seen.words.sizes.values()),
        "embeds": settings.EMBEDDING.is_on,
    }


def _steps(seen: Inspection) -> list[dict[str, Any]]:
    total, start, shown = sum(seen.steps.values()) or 1, 0, []
    for number, (step, milliseconds) in enumerate(seen.steps.items(), start=1):
        width = round(BAR * milliseconds / total)
        shown.append(
            {"name": STEP_LABELS[step], "milliseconds": milliseconds, "start": start, "width": width, "number": number}
        )
        start += width
    return shown


add_views(MemoryAtom, Recall, RecallPeople)
add_page("Tuning", "Search console", "manage_search", "admin:moments_app_memoryatom_recall", may_recall)
