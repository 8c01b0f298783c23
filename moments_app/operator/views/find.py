"""A search for people, sessions, moments and facts, with the matching words marked."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

from django.contrib.admin.views.main import SEARCH_VAR
from django.db.models import Model, Q, QuerySet
from django.http import HttpRequest
from django.utils.safestring import SafeString
from django.utils.text import capfirst

from moments_app.models import MemoryAtom, Moment
from moments_app.operator.similar import with_similar
from sessions_app import lexemes
from sessions_app.admin.links import change_url, list_url, marked, turn_url
from sessions_app.admin.reading import people_of
from sessions_app.admin.views.base import OperatorPage, may_see
from sessions_app.models import Session, UserProfile
from sessions_app.transcript.search import MOST_SESSIONS, Mention

SHOWN = 8  # of each kind; its list has more
EXCERPT = 280  # characters
QUERY_MAX = 200  # characters


class Hit(NamedTuple):
    """A search hit.

    Attributes:
        text: its text, with the matching words marked.
        said: who said it, and when; blank if it is not a turn.
        similar: the hits of the person's other sessions with similar words.
    """

    url: str
    name: str
    text: SafeString
    row: Model
    said: str = ""
    similar: Sequence["Hit"] = ()


class Group(NamedTuple):
    """The hits of one kind.

    Attributes:
        hits: the first hits.
        more: the URL of the list with all hits; blank if these are all.
    """

    title: str
    hits: Sequence[Hit]
    more: str


class Find(OperatorPage):
    """Search all kinds, using the searches of the lists."""

    route, name = "find/", "find"
    template_name = "operator/find/page.html"
    title = "Find"
    groups: Sequence[Group] = ()

    def context(self) -> dict[str, Any]:
        asked = self.request.GET.get(SEARCH_VAR, "").replace("\0", "").strip()[:QUERY_MAX]
        if asked:
            words = lexemes.whole_words(asked)
            seen = [model for model in _SAYS if may_see(self.request, model)]
            self.groups = [self._group(model, asked, words) for model in seen]
        return {"asked": asked, "groups": self.groups, "query_max": QUERY_MAX}

    def people(self) -> Collection[int]:
        """Return the people whom the hits are about."""
        return {person for group in self.groups for hit in group.hits for person in people_of(hit.row)}

    def _group(self, model: type[Model], asked: str, words: Sequence[lexemes.QueryWord]) -> Group:
        admin = self.admin.admin_site.get_model_admin(model)
        found, _ = admin.get_search_results(self.request, admin.get_queryset(self.request), asked)
        if model is Session:
            by_name = Q(session_id__startswith=asked) | Q(title__icontains=asked)
            named_first = found.annotate(is_named=by_name).order_by("-is_named", *admin.ordering)
            groups = self._sessions(named_first[:MOST_SESSIONS], words)
        else:
            groups = [[row] for row in found.order_by(*admin.ordering)[: SHOWN + 1]]
        more = list_url(model, **{SEARCH_VAR: asked}) if sum(map(len, groups)) > SHOWN else ""
        hits = [[_SAYS[model](self.request, row, words) for row in group] for group in groups[:SHOWN]]
        sources = [source._replace(similar=similar) for source, *similar in hits]
        return Group(capfirst(str(model._meta.verbose_name_plural)), sources, more)

    def _sessions(self, rows: QuerySet[Any], words: Sequence[lexemes.QueryWord]) -> list[list[Session]]:
        """Return a group for each session found by id or title, then groups of the others by similar words."""
        named = [[row] for row in rows if row.is_named]
        others = [row for row in rows if not row.is_named]
        return named + with_similar(others, _turns(self.request), words)


def _turns(request: HttpRequest) -> Mapping[int, Mention | None]:
    """Return the turns that the search in the session list found."""
    found: Mapping[int, Mention | None] = request.said  # type: ignore[attr-defined]
    return found


def _person(request: HttpRequest, user: UserProfile, words: Sequence[lexemes.QueryWord]) -> Hit:
    return Hit(change_url(user), user.user_id, marked(user.summary, words, EXCERPT), user)


def _session(request: HttpRequest, session: Session, words: Sequence[lexemes.QueryWord]) -> Hit:
    """Return a hit for a session: the turn that has the words, or the session's beginning."""
    name = f"{session.session_id} of {session.user.user_id}"
    mention = _turns(request).get(session.pk)
    if mention is None:
        return Hit(change_url(session), name, marked(getattr(session, "began", ""), words, EXCERPT), session)
    url, text = turn_url(session.pk, mention.sequence), marked(mention.excerpt, words, EXCERPT)
    return Hit(url, f"{name}, {mention.name}", text, session, said=f"{mention.role}, {mention.time:%Y-%m-%d}")


def _moment(request: HttpRequest, moment: Moment, words: Sequence[lexemes.QueryWord]) -> Hit:
    name = f"{moment.key} of {moment.user.user_id}"
    return Hit(change_url(moment), name, marked(moment.summary, words, EXCERPT), moment)


def _fact(request: HttpRequest, atom: MemoryAtom, words: Sequence[lexemes.QueryWord]) -> Hit:
    """Return a hit for an item, with its state unless it is active."""
    state = "" if atom.state == MemoryAtom.State.ACTIVE else f", {atom.state_in_words}"
    name = f"{atom.atom_type}{state}, {atom.stream.title}"
    return Hit(change_url(atom), name, marked(atom.content, words, EXCERPT), atom)


_SAYS: dict[type[Model], Callable[[HttpRequest, Any, Sequence[lexemes.QueryWord]], Hit]] = {
    UserProfile: _person,
    Session: _session,
    Moment: _moment,
    MemoryAtom: _fact,
}
