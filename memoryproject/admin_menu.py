"""The admin's sidebar, and the names of what it leads to: a heading says what the sidebar says."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from django.apps import apps
from django.http import HttpRequest
from django.urls import reverse_lazy
from django.utils.module_loading import import_string
from django.utils.text import capfirst
from unfold.dataclasses import SearchResult


class Entry(NamedTuple):
    """A model with a list.

    Attributes:
        one, many: what a row and the list are called.
        icon: stands beside it in the sidebar.
    """

    one: str
    many: str
    icon: str


ENTRIES = {
    "sessions_app.session": Entry("session", "sessions", "forum"),
    "moments_app.moment": Entry("moment", "moments", "bookmark"),
    "moments_app.summary": Entry("summary", "summaries", "summarize"),
    "moments_app.memorystream": Entry("stream", "streams", "water"),
    "moments_app.release": Entry("release", "releases", "campaign"),
    "moments_app.memoryatom": Entry("fact or observation", "facts and observations", "grain"),
    "sessions_app.userprofile": Entry("profile", "profiles", "person"),
    "moments_app.retraction": Entry("retraction", "retractions", "undo"),
    "moments_app.correction": Entry("correction", "corrections", "spellcheck"),
    "moments_app.contradiction": Entry("contradiction", "contradictions", "rule"),
    "moments_app.entity": Entry("task or goal", "tasks and goals", "task_alt"),
    "moments_app.contextreceipt": Entry("context receipt", "context receipts", "receipt_long"),
    "moments_app.promptresource": Entry("prompt resource", "prompt resources", "edit_note"),
    "moments_app.failuregroup": Entry("failure", "failures", "report"),
    "moments_app.job": Entry("job", "jobs", "manufacturing"),
    "moments_app.enginecall": Entry("engine call", "engine calls", "bolt"),
    "moments_app.circuit": Entry("circuit", "circuits", "power"),
    "moments_app.embeddingmodel": Entry("embedding model", "embedding models", "data_array"),
    "sessions_app.archive": Entry("archive", "archives", "inventory_2"),
    "sessions_app.event": Entry("event", "events", "history"),
    "django_q.ormq": Entry("queue entry", "queue", "stacks"),
    "django_q.failure": Entry("task error", "task errors", "error"),
    "django_q.schedule": Entry("schedule", "schedules", "schedule"),
    "sessions_app.application": Entry("application", "applications", "apartment"),
    "sessions_app.apikey": Entry("API key", "API keys", "key"),
    "sessions_app.dailylimit": Entry("limit", "limits", "speed"),
    "moments_app.webhookendpoint": Entry("webhook", "webhooks", "webhook"),
    "moments_app.webhookdelivery": Entry("webhook delivery", "webhook deliveries", "outbox"),
    "auth.user": Entry("login", "people who work here", "badge"),
    "auth.group": Entry("group", "groups", "group"),
}
# What else entries have: what needs somebody, and whether they are shown, as functions of a request.
_MORE: dict[str, dict[str, object]] = {
    "moments_app.job": {"badge": "moments_app.operator.admin.job.failed_jobs"},
    "moments_app.release": {"badge": "moments_app.operator.views.release.waiting"},
    "moments_app.contradiction": {"badge": "moments_app.operator.admin.correction.waiting"},
    "sessions_app.application": {"permission": "sessions_app.admin.applications.are_shown"},
}

_FIND: dict[str, object] = {
    "title": "Find",
    "icon": "search",
    "link": reverse_lazy("admin:sessions_app_userprofile_find"),
    "permission": lambda request: request.user.has_perm("sessions_app.view_userprofile"),
    "active": lambda request: request.path == str(_FIND["link"]),
}
_DASHBOARD: dict[str, object] = {
    "title": "Dashboard",
    "icon": "home",
    "link": reverse_lazy("admin:index"),
    "permission": lambda request: True,
}
_COST: dict[str, object] = {
    "title": "Cost",
    "icon": "payments",
    "link": reverse_lazy("admin:moments_app_enginecall_cost"),
    "permission": lambda request: request.user.has_perms(["moments_app.view_enginecall", "moments_app.view_job"]),
}
BESIDE_LISTS = [_FIND]  # pages below the address of a list, with entries of their own


def add_page(section: str, title: str, icon: str, view: str, permission: Callable[[HttpRequest], bool]) -> None:
    """Add a page of an extra, which stands beside a list, to the end of a section of the sidebar."""
    link = reverse_lazy(view)
    page: dict[str, object] = {
        "title": title,
        "icon": icon,
        "link": link,
        "permission": permission,
        "active": lambda request: request.path.startswith(str(link)),
    }
    BESIDE_LISTS.append(page)
    items: Any = next(each["items"] for each in NAVIGATION if each["title"] == section)
    items.append(page)


def pages_named(request: HttpRequest, words: str) -> list[SearchResult]:
    """Return the pages that are no lists and whose name has the words; lists are found by unfold's own search."""
    pages = (_DASHBOARD, *BESIDE_LISTS, _COST)
    named = [page for page in pages if words in str(page["title"]).lower() and _is_shown(page, request)]
    return [SearchResult(str(page["title"]), "page", str(page["link"]), str(page["icon"])) for page in named]


def _is_shown(page: dict[str, object], request: HttpRequest) -> bool:
    permission: Any = page["permission"]
    return bool((import_string(permission) if isinstance(permission, str) else permission)(request))


def name_models() -> None:
    """Have the admin call each model what the sidebar calls it, those of other packages too.

    The models' own names stay in what migrations know: a heading is no reason for one.
    """
    for label, entry in ENTRIES.items():
        options = apps.get_model(label)._meta
        options.verbose_name, options.verbose_name_plural = entry.one, entry.many


def _is_page(request: HttpRequest) -> bool:
    """Tell whether this is a page whose address begins with that of a list, and that has an entry of its own."""
    return any(request.path.startswith(str(page["link"])) for page in BESIDE_LISTS)


def _section(title: str, *models: str, first: Sequence[dict[str, object]] = ()) -> dict[str, object]:
    """Make a part of the sidebar; each entry is shown to those who may see its page."""
    return {"title": title, "separator": True, "items": [*first, *map(_entry, models)]}


def _entry(model: str) -> dict[str, object]:
    app, name = model.split(".")
    link = reverse_lazy(f"admin:{app}_{name}_changelist")
    return {
        "title": capfirst(ENTRIES[model].many),
        "icon": ENTRIES[model].icon,
        "link": link,
        "active": lambda request: request.path.startswith(str(link)) and not _is_page(request),
        "permission": lambda request: request.user.has_perm(f"{app}.view_{name}"),
    } | _MORE.get(model, {})


# What a login may do about itself.
ACCOUNT = [
    {"title": "Change password", "link": reverse_lazy("admin:password_change")},
    {"title": "Second factor", "link": reverse_lazy("admin:auth_user_second_factor")},
]

NAVIGATION = [
    _section(
        "Memory",
        "sessions_app.session",
        "moments_app.moment",
        "moments_app.summary",
        "sessions_app.userprofile",
        "moments_app.memorystream",
        "moments_app.release",
        "moments_app.memoryatom",
        "moments_app.entity",
        "moments_app.retraction",
        "moments_app.correction",
        "moments_app.contradiction",
        first=[_FIND],
    )
    | {"separator": False},
    _section("Prompts", "moments_app.promptresource"),
    _section(
        "Operation",
        "moments_app.failuregroup",
        "moments_app.job",
        "moments_app.enginecall",
        "moments_app.circuit",
        "sessions_app.event",
    ),
    # What one seldom needs, folded away so that the rest is in sight.
    _section(
        "Machinery",
        "moments_app.embeddingmodel",
        "moments_app.contextreceipt",
        "moments_app.webhookdelivery",
        "sessions_app.archive",
        "django_q.ormq",
        "django_q.failure",
        "django_q.schedule",
    )
    | {"collapsible": True},
    _section(
        "Access",
        "sessions_app.application",
        "sessions_app.apikey",
        "sessions_app.dailylimit",
        "moments_app.webhookendpoint",
        "auth.user",
    ),
]


def add_entry(model: str, entry: Entry, *, after: str) -> None:
    """Add a model of an extra to the sidebar, behind another model."""
    neighbor = capfirst(ENTRIES[after].many)
    ENTRIES[model] = entry
    for section in NAVIGATION:
        items: Any = section["items"]
        titles = [item["title"] for item in items]
        if neighbor in titles:
            items.insert(titles.index(neighbor) + 1, _entry(model))
