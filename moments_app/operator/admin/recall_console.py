"""The recall console: a query as an application would ask it, and how each result came to its place."""

from typing import Any

from django import forms
from django.conf import settings
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import URLPattern, path, reverse
from django.utils.decorators import method_decorator
from django.views.decorators.http import require_safe

from moments_app.interfaces.api.serializers import MATCH_COUNT_MAX, QUERY_MAX_CHARS
from moments_app.recall.inspection import Inspection, inspect
from moments_app.recall.search import KINDS, MODES, Question, Result
from sessions_app.admin.base import PageAdmin, prefix_search
from sessions_app.models import UserProfile

BAR = 1000  # width of the bar, in its own units
PEOPLE = 20  # offered at once
MODE_LABELS = {"hybrid": "words and meaning", "semantic": "meaning alone", "text": "words alone"}
STEP_LABELS = {
    "embedding": "embedding the query",
    "words": "looking up its words",
    "search by text": "search by words",
    "search by semantic": "search by meaning",
    "fusion": "fusion",
    "reading": "reading what was found",
}
PERMISSIONS = ("moments_app.view_memoryatom", "moments_app.view_moment", "sessions_app.view_session")


class RecallForm(forms.Form):
    """What is asked, and of whom."""

    user_id = forms.CharField(label="User", max_length=255)
    query = forms.CharField(label="Query", max_length=QUERY_MAX_CHARS)
    mode = forms.ChoiceField(label="Search by", choices=[(mode, MODE_LABELS[mode]) for mode in MODES], required=False)
    kinds = forms.MultipleChoiceField(label="Kinds", choices=[(kind, f"{kind}s") for kind in KINDS], required=False)
    since = forms.DateTimeField(label="Said since, UTC", required=False)
    agent_id = forms.CharField(label="Agent", max_length=255, required=False)
    most = forms.IntegerField(label="Results", min_value=1, max_value=MATCH_COUNT_MAX, required=False)

    def question(self) -> Question:
        """What recall is asked."""
        asked = self.cleaned_data
        return Question(asked["query"], asked["kinds"] or KINDS, asked["since"], asked["mode"] or "hybrid")


class RecallConsole(PageAdmin):
    """Adds the console to the pages of facts and observations."""

    def get_urls(self) -> list[URLPattern]:
        view = self.admin_site.admin_view
        return [
            path("recall/", view(self.recall), name="moments_app_memoryatom_recall"),
            path("recall/people/", view(self.people), name="moments_app_memoryatom_recall_people"),
            *super().get_urls(),
        ]

    @method_decorator(require_safe)
    def recall(self, request: HttpRequest) -> HttpResponse:
        """The form, and what was found. Looking is no use of what is found: nothing counts it."""
        _demand(request)
        asked = request.GET.keys() & RecallForm.base_fields.keys()
        form = RecallForm(request.GET if asked else None, initial={"kinds": KINDS, "mode": "hybrid"})
        shown = self.admin_site.each_context(request) | {
            "title": "Recall console",
            "form": form,
            "kinds": _chosen(form),
            "match_count": settings.RECALL.match_count,
        }
        return render(request, "operator/recall/console.html", shown | (_found(form) if form.is_valid() else {}))

    @method_decorator(require_safe)
    def people(self, request: HttpRequest) -> HttpResponse:
        """People whose user_id begins with what is typed."""
        _demand(request)
        return render(request, "operator/recall/people.html", {"people": _people(request.GET.get("user_id", ""))})


def _demand(request: HttpRequest) -> None:
    """The console shows what these pages show, so it takes their rights.

    Raises:
        PermissionDenied: one of them is missing.
    """
    if not request.user.has_perms(PERMISSIONS):
        raise PermissionDenied


def _chosen(form: RecallForm) -> list[tuple[str, str, bool]]:
    """The kinds with their labels, and whether each is searched."""
    chosen = form["kinds"].value() or KINDS
    return [(kind, f"{kind}s", kind in chosen) for kind in KINDS]


def _people(beginning: str) -> list[str]:
    found = prefix_search(UserProfile.objects.all(), beginning, "user_id")
    return list(found.order_by("user_id").values_list("user_id", flat=True)[:PEOPLE])


def _found(form: RecallForm) -> dict[str, Any]:
    """What the page shows of a valid question."""
    asked = form.cleaned_data
    user = UserProfile.objects.filter(user_id=asked["user_id"]).first()
    if user is None:
        return {"nobody": asked["user_id"], "people": _people(asked["user_id"])}
    seen = inspect(user, asked["agent_id"], form.question(), most=asked["most"])
    return {
        "profile": user,
        "seen": seen,
        "results": [(result, _page_of(result)) for result in seen.results],
        "steps": _steps(seen),
        "bar": BAR,
        "total": sum(seen.steps.values()),
        "mode": MODE_LABELS[seen.question.used_mode],
        "is_counted": seen.words is not None and any(number for number, _ in seen.words.sizes.values()),
        "embeds": settings.EMBEDDING.is_on,
    }


def _page_of(result: Result) -> str:
    """Where an operator sees the whole of it."""
    if result.kind == "turn":
        session = reverse("admin:sessions_app_session_change", args=[result.pk])
        return f"{session}?at={result.sequence}#turn-{result.sequence}"
    name = {"fact": "memoryatom", "moment": "moment"}[result.kind]
    return reverse(f"admin:moments_app_{name}_change", args=[result.pk])


def _steps(seen: Inspection) -> list[dict[str, Any]]:
    """The steps, each with its stretch of the bar."""
    total, start, shown = sum(seen.steps.values()) or 1, 0, []
    for number, (step, milliseconds) in enumerate(seen.steps.items(), start=1):
        width = round(BAR * milliseconds / total)
        shown.append(
            {"name": STEP_LABELS[step], "milliseconds": milliseconds, "start": start, "width": width, "number": number}
        )
        start += width
    return shown
