"""Errors of requests have their own classes, which each interface handles in one place."""

import ast
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.urls import URLPattern, get_resolver
from django.urls.resolvers import URLResolver
from drf_spectacular.views import SpectacularSwaggerSplitView
from rest_framework.exceptions import ValidationError

from memoryproject.serving.schema_view import schema
from sessions_app.api.errors import api_exception
from sessions_app.api.viewsets import ApiViewSet
from sessions_app.management.base import RefusingCommand
from sessions_app.refusals import Conflict, Refusal

ROOT = Path(__file__).parents[2]
# These errors are not about requests, but about the misuse of a function.
NO_REFUSALS = {"moments_app/engines/embeddings.py", "moments_app/models/prompt.py"}


def _raises_bare(path: Path) -> bool:
    raised = [node.exc for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Raise)]
    names = {exc.func.id for exc in raised if isinstance(exc, ast.Call) and isinstance(exc.func, ast.Name)}
    return bool(names & {"ValueError", "LookupError", "KeyError", "Exception"})


@pytest.mark.slow
def test_no_request_is_refused_with_a_bare_exception() -> None:
    modules = [path for app in ("moments_app", "sessions_app") for path in (ROOT / app).rglob("*.py")]
    assert {str(path.relative_to(ROOT)) for path in modules if _raises_bare(path)} == NO_REFUSALS


def _views(patterns: list[URLPattern | URLResolver], prefix: str = "") -> dict[str, Any]:
    views: dict[str, Any] = {}
    for pattern in patterns:
        address = f"{prefix}{pattern.pattern}"
        if isinstance(pattern, URLResolver):
            views |= _views(pattern.url_patterns, address)
        elif address.startswith("api/v1/"):
            views[address] = getattr(pattern.callback, "cls", pattern.callback)
    return views


def test_every_call_of_the_api_is_an_action_of_a_viewset() -> None:
    views = _views(get_resolver().url_patterns)
    assert len(views) > 25
    others = {view for view in views.values() if not (isinstance(view, type) and issubclass(view, ApiViewSet))}
    assert others == {schema, SpectacularSwaggerSplitView}


def test_a_refusal_keeps_its_text_code_and_status_over_rest() -> None:
    conflict = api_exception(Conflict("It is held."))
    assert (conflict.status_code, conflict.get_codes(), str(conflict.detail)) == (409, "conflict", "It is held.")
    invalid = api_exception(Refusal("There is none."))
    assert isinstance(invalid, ValidationError)
    assert (invalid.get_codes(), invalid.detail) == (["invalid"], ["There is none."])


class HeldCommand(RefusingCommand):
    unchanged = "Nothing was changed."

    def handle(self, *args: Any, **options: Any) -> None:
        raise Conflict("It is held.")


def test_a_command_fails_with_the_text_of_a_refusal() -> None:
    with pytest.raises(CommandError, match=r"^It is held\. Nothing was changed\.$"):
        call_command(HeldCommand())
