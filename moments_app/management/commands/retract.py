import uuid
from typing import Any

from django.core.exceptions import ValidationError
from django.core.management.base import CommandParser

from moments_app.models import Retraction
from moments_app.provenance.retract import CannotRetract, Preview, preview, retract, sequences_of
from moments_app.provenance.retract_items import ItemSelection, preview_items, retract_items
from moments_app.provenance.undo import undo_retraction
from sessions_app.management.base import RefusingCommand, add_application, application_of
from sessions_app.models import Session, UserProfile


class Command(RefusingCommand):
    help = (
        "Remove turns, a whole session, or directly written items from memory, together with everything derived from "
        "them. Nothing is lost: --undo reverses the retraction."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("user", nargs="?", help="user_id of the person")
        parser.add_argument("session", nargs="?", help="session_id of the session")
        add_application(parser)
        parser.add_argument("--sequences", help="turn numbers, such as 3,4,7-9; default: all turns of the session")
        parser.add_argument(
            "--item",
            action="append",
            metavar="ID",
            help="id of a directly written item to retract, instead of a session",
        )
        parser.add_argument(
            "--entity",
            action="append",
            metavar="ID",
            help="id of a task, goal or problem to retract, instead of a session",
        )
        parser.add_argument(
            "--written-by",
            metavar="WHO",
            help="instead of a session, retract everything that a key (key:…) or operator (operator:…) wrote directly",
        )
        parser.add_argument("--reason", default="", help="reason, shown with the retraction")
        parser.add_argument("--dry-run", action="store_true", help="only count the memory that would be removed")
        parser.add_argument("--undo", metavar="ID", help="id of a retraction to undo")

    def handle(self, *args: Any, **options: Any) -> str:
        return _undo(options["undo"]) if options["undo"] else _retract(options)


def _retract(options: dict[str, Any]) -> str:
    is_of_items = options["item"] or options["entity"] or options["written_by"]
    return _retract_items(options) if is_of_items else _retract_turns(options)


def _retract_turns(options: dict[str, Any]) -> str:
    if not options["user"] or not options["session"]:
        raise CannotRetract("Name a user and a session, or use --item, --entity, --written-by or --undo.")
    session = Session.objects.named(options["session"], options["user"], application_of(options)).first()
    if session is None:
        raise CannotRetract(f"User {options['user']!r} has no session {options['session']!r}.")
    sequences = None if options["sequences"] is None else sequences_of(options["sequences"])
    if options["dry_run"]:
        found = preview(session, sequences)
        first = _describe_preview(f"{found.turns} turns", found)
        return "\n".join(filter(None, [first, found.lost, *found.moment_keys, *_repeated_answers(found)]))
    retraction = retract(session, sequences, reason=_reason(options), requested_by="command")
    return f"Retraction {retraction.retraction_id}: {retraction.result}"


def _retract_items(options: dict[str, Any]) -> str:
    if not options["user"] or options["session"]:
        raise CannotRetract("With --item, --entity or --written-by, name a user, but no session.")
    user = UserProfile.objects.named(options["user"], application_of(options))
    if user is None:
        raise CannotRetract(f"There is no user {options['user']!r}.")
    atoms, entities = ([_uuid(text) for text in options[name] or ()] for name in ("item", "entity"))
    selection = ItemSelection(atoms, entities, options["written_by"] or "")
    if options["dry_run"]:
        found = preview_items(user, selection)
        return "\n".join([_describe_preview(f"{found.items} items", found), *_repeated_answers(found)])
    retraction = retract_items(user, selection, reason=_reason(options), requested_by="command")
    return f"Retraction {retraction.retraction_id}: {retraction.result}"


def _reason(options: dict[str, Any]) -> str:
    reason: str = options["reason"]
    if not reason.strip():
        raise CannotRetract("Add a --reason.")
    return reason


def _describe_preview(what: str, found: Preview) -> str:
    withdrawn = ", ".join(f"{count} {kind}" for kind, count in found.withdrawn.items())
    return f"Would retract {what} and withdraw {withdrawn}; about {found.engine_calls} engine calls."


def _repeated_answers(found: Preview) -> list[str]:
    return [f"The answer {answer.ref} repeats the text. {answer.problem}".strip() for answer in found.answers]


def _uuid(text: str) -> uuid.UUID:
    try:
        return uuid.UUID(text)
    except ValueError:
        raise CannotRetract(f"{text!r} is not the id of an item.") from None


def _undo(retraction_id: str) -> str:
    try:
        retraction = Retraction.objects.filter(retraction_id=retraction_id).first()
    except ValidationError as error:
        raise CannotRetract(f"{retraction_id!r} is not the id of a retraction.") from error
    if retraction is None:
        raise CannotRetract(f"There is no retraction {retraction_id}.")
    undo_retraction(retraction, requested_by="command")
    return f"Retraction {retraction_id} is undone."
