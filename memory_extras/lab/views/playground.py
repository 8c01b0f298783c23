"""The playground: a chat with a test person through the chat endpoint, next to the context from memory."""

from collections.abc import Collection
from functools import cached_property
from typing import Any
from uuid import uuid4

from django import forms
from django.conf import settings
from django.contrib import messages
from django.db import connection, transaction
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect

from memory_extras.lab.playground import RealPerson, call_chat, get_or_create_test_person, highlighted_layers
from memory_extras.lab.trials.try_prompt import CannotTry, trial_slot
from memoryproject.admin_menu import add_page
from moments_app.context import receipts
from moments_app.context.receipts import StoredContext
from moments_app.interfaces.chat.errors import ChatError
from moments_app.interfaces.chat.request import ChatSession
from moments_app.models import Job
from moments_app.moments.build import BuildMoments
from moments_app.operator.person_pages import PREVIEW_CONTEXT, READ_PERSON, SEE_MEMORY
from moments_app.operator.views.trace import Round, can_ask_again, receipt_of, round_of
from moments_app.streams.form import FormMemories
from sessions_app.admin.applications import are_several
from sessions_app.admin.base import add_views
from sessions_app.admin.links import page_url
from sessions_app.admin.views import OperatorPage, RowAction, RowPage
from sessions_app.limited_operators import unlimited
from sessions_app.models import Application, Message, Session, UserProfile
from sessions_app.models.application import DEFAULT
from sessions_app.people.erase import OnHold, erase_user

PEOPLE, SESSIONS, TURNS = 20, 10, 40  # maximum numbers on a page
MAX_CHARS = 4_000


class PersonForm(forms.Form):
    name = forms.RegexField(r"^[^/]+$", max_length=100)
    application = forms.ModelChoiceField(Application.objects.all(), required=False)


class SayForm(forms.Form):
    """A message of the test person, in a session or a new one."""

    text = forms.CharField(max_length=MAX_CHARS)
    model = forms.CharField(max_length=255)
    session = forms.RegexField(r"^[^/]*$", max_length=255, required=False)


def may_play(request: HttpRequest) -> bool:
    return request.user.has_perms(Playground.needs)


class Playground(OperatorPage):
    """The list of test people, and a form to create one."""

    route, name, title = "playground/", "playground", "Playground"
    permission = "change"
    needs = (READ_PERSON, PREVIEW_CONTEXT, *SEE_MEMORY)
    template_name = "operator/playground/people.html"

    def context(self) -> dict[str, Any]:
        people = self.admin.get_queryset(self.request).filter(is_test=True).order_by("-pk")[:PEOPLE]
        return {
            "people": people,
            "has_upstream": can_ask_again(),
            "applications": Application.objects.all() if are_several() else [],
            "name": f"test-{self.request.user.get_username()}"[:100],
        }

    def post(self, request: HttpRequest, **kwargs: Any) -> HttpResponse:
        form = PersonForm(request.POST)
        if not form.is_valid():
            return self.page(status=400, problem="Enter a name of 1 to 100 characters without a slash.")
        chosen = form.cleaned_data["application"]
        try:
            person = get_or_create_test_person(form.cleaned_data["name"], chosen.pk if chosen else DEFAULT)
        except RealPerson as error:
            return self.page(status=409, problem=str(error))
        return HttpResponseRedirect(page_url(UserProfile, Chat.name, person.pk))


class TestPersonView(RowPage[UserProfile]):
    """A view of a test person. Real people get 404."""

    permission, needs = Playground.permission, Playground.needs

    def setup(self, request: HttpRequest, *args: Any, **kwargs: Any) -> None:
        super().setup(request, *args, pk=kwargs["test_person"], **kwargs)

    def rows(self) -> QuerySet[UserProfile]:
        return super().rows().filter(is_test=True)


class Chat(TestPersonView):
    """The conversation of a test person, with the context of the latest answer."""

    route, name = "playground/<int:test_person>/", "chat"
    template_name = "operator/playground/chat.html"

    @cached_property
    def session(self) -> Session | None:
        """The session in the URL, or else the latest one. None for a new one."""
        asked = self.request.GET.get("session")
        sessions = Session.objects.for_user(self.row).order_by("-last_activity_at", "-id")
        return sessions.filter(session_id=asked).first() if asked is not None else sessions.first()

    def get_title(self) -> str:
        return f"Playground: {self.row}"

    def post(self, request: HttpRequest, **kwargs: Any) -> HttpResponse:
        """Send a message through the endpoint, and show the answer."""
        form = SayForm(request.POST)
        if not form.is_valid():
            return self.page(status=400, problem="Enter a message and the name of a model.")
        given = form.cleaned_data
        session_id = given["session"] or f"playground-{uuid4().hex[:8]}"
        problem = self._said(session_id, given["text"], given["model"])
        if problem:
            messages.error(request, problem)
        return HttpResponseRedirect(page_url(UserProfile, self.name, self.row.pk, session=session_id) + "#say")

    def _said(self, session_id: str, text: str, model: str) -> str:
        person = self.row
        session = ChatSession(person.user_id, session_id, application=person.application_id)
        body = {"model": model, "messages": [{"role": "user", "content": text}]}
        try:
            with trial_slot():
                connection.close()  # hold no connection while the model runs
                passed = call_chat(session, body)
        except (ChatError, CannotTry) as error:
            return str(error)
        receipts.waiting.flush()  # store the receipt now, because the page reads the context from it
        return passed.error

    def context(self) -> dict[str, Any]:
        session = self.session
        round_ = round_of(session, None) if session else Round(None, None)
        receipt = receipt_of(session, round_) if session else None
        kept = StoredContext.from_sealed(receipt.sealed, receipt.context_id) if receipt else None
        return {
            "person": self.row,
            "session": session,
            "sessions": Session.objects.for_user(self.row).order_by("-last_activity_at", "-id")[:SESSIONS],
            "turns": self._turns(session) if session else [],
            "layers": highlighted_layers(kept, session) if kept and session else [],
            "kept": kept,
            "round": round_,
            "model": round_.model or settings.ENGINE.model,
            "has_upstream": can_ask_again(),
            "max_chars": MAX_CHARS,
        }

    def _turns(self, session: Session) -> list[Message]:
        newest = session.messages.turns().filter(user_id=self.row.pk).order_by("-sequence")[:TURNS]
        return list(newest)[::-1]


class Remember(TestPersonView, RowAction[UserProfile]):
    """Queues memory jobs for the person's latest sessions, even if they are below the thresholds."""

    route, name = "playground/<int:test_person>/remember/", "remember"
    http_method_names = ["post"]

    def change(self, person: UserProfile) -> str:
        with transaction.atomic():
            sessions = Session.objects.for_user(person).order_by("-last_activity_at", "-id")[:SESSIONS]
            for session in sessions:
                for process in (BuildMoments.name, FormMemories.name):
                    Job.objects.request(process, session, requested_by=self.actor, force=True)
        self.log(person, "Queued a memory update.", "A worker will build moments and facts from the messages.")
        return page_url(UserProfile, Chat.name, person.pk)


class EraseTestPerson(TestPersonView, RowAction[UserProfile]):
    """Erases a test person, without asking for the id to be typed."""

    route, name = "playground/<int:test_person>/forget/", "forget"
    http_method_names = ["post"]

    def change(self, person: UserProfile) -> str:
        try:
            with unlimited():  # rows that this operator may not see are erased too
                erase_user(person.user_id, application=person.application_id, actor=self.actor)
        except (OnHold, UserProfile.DoesNotExist) as error:
            messages.error(self.request, str(error))
        else:
            messages.success(self.request, f"Erased {person} and all their messages.")
        return page_url(UserProfile, Playground.name)

    def people(self) -> Collection[int]:
        """Return no people, because the next page shows none of their data."""
        return ()


add_views(UserProfile, Playground, Chat, Remember, EraseTestPerson)
add_page("Tuning", "Playground", "chat", "admin:sessions_app_userprofile_playground", may_play)
