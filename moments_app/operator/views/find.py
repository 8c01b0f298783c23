"""A search for people, sessions, moments and facts, with the matching words marked."""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, NamedTuple

from django.contrib.admin.views.main import SEARCH_VAR
from django.db.models import Model, Q, QuerySet
from django.http import HttpRequest
from django.utils.safestring import SafeString
from django.utils.text import capfirst

from moments_app.models import MemoryAtom, Moment
from moments_app.provenance.rewording import sentences_of
from sessions_app import lexemes
from sessions_app.admin.access_log import people_of
from sessions_app.admin.links import change_url, list_url, marked, turn_url
from sessions_app.admin.views import OperatorPage, may_see
from sessions_app.models import Message, Session, UserProfile
from sessions_app.transcript.search import MAX_SESSIONS, Mention

SHOWN = 8  # maximum hits of each kind; the list of the kind shows all
EXCERPT = 280  # maximum characters of a hit's text
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
        """Return the primary keys of the people whom the hits are about."""
        return {person for group in self.groups for hit in group.hits for person in people_of(hit.row)}

    def _group(self, model: type[Model], asked: str, words: Sequence[lexemes.QueryWord]) -> Group:
        admin = self.admin.admin_site.get_model_admin(model)
        found, _ = admin.get_search_results(self.request, admin.get_queryset(self.request), asked)
        if model is Session:
            by_name = Q(session_id__startswith=asked) | Q(title__icontains=asked)
            named_first = found.annotate(is_named=by_name).order_by("-is_named", *admin.ordering)
            groups = self._sessions(named_first[:MAX_SESSIONS], words)
        else:
            groups = [[row] for row in found.order_by(*admin.ordering)[: SHOWN + 1]]
        more = list_url(model, **{SEARCH_VAR: asked}) if sum(map(len, groups)) > SHOWN else ""
        hits = [[_SAYS[model](self.request, row, words) for row in group] for group in groups[:SHOWN]]
        sources = [source._replace(similar=similar) for source, *similar in hits]
        return Group(capfirst(str(model._meta.verbose_name_plural)), sources, more)

    def _sessions(self, rows: QuerySet[Any], words: Sequence[lexemes.QueryWord]) -> list[list[Session]]:
        """Return a group for each session found by id or title, followed by groups of sessions with similar words."""
        named = [[row] for row in rows if row.is_named]
        others = [row for row in rows if not row.is_named]
        return named + group_similar(others, _turns(self.request), words)


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


# --- sessions with similar words ---
#
# A group has a source, and the sessions that repeat its words. The source is the person's earliest turn, or the
# earliest turn of others if the person has none. Later, the person, or a model that remembers the source, may repeat
# its words. All of these turns contain the query's words, so their other words decide whether they are similar. The
# words alone can't tell a repetition from its opposite: "I am not allergic to nuts" has all words of "I am allergic to
# nuts".

Words = Sequence[lexemes.QueryWord]
Statement = AbstractSet[str] | None  # the stems of a turn except those of the query; None if the text is archived


def group_similar(sessions: Sequence[Session], said: Mapping[int, Mention | None], words: Words) -> list[list[Session]]:
    """Return the sessions in groups. The first session of a group is the source, and the others have similar words.

    Groups are sorted by their first session in `sessions`. Within a group, turns of the person come before turns of
    others, both sorted by time.

    Args:
        said: the turn that was found in each session.
        words: the words of the query.
    """
    by_person: dict[int, list[Session]] = defaultdict(list)
    for session in sessions:
        by_person[session.user_id].append(session)
    places = {session: place for place, session in enumerate(sessions)}
    groups = [group for own in by_person.values() for group in _groups(own, said, words)]
    return sorted(groups, key=lambda group: min(places[session] for session in group))


def _groups(sessions: Sequence[Session], said: Mapping[int, Mention | None], words: Words) -> Iterator[list[Session]]:
    turns = {session: turn for session in sessions if (turn := said.get(session.pk))}
    sources: list[tuple[Statement, list[Session]]] = []
    for session, statement in _statements(turns, words):
        group = next((group for source, group in sources if _is_similar(statement, source)), None)
        if group is None:
            sources.append((statement, [session]))
        else:
            group.append(session)
    yield from (group for _, group in sources)
    yield from ([session] for session in sessions if session not in turns)


def _statements(turns: Mapping[Session, Mention], words: Words) -> Iterator[tuple[Session, Statement]]:
    """Yield sessions with their statements: first the person's turns, then turns of others, both sorted by time."""
    texts = {session: _matching_sentences(turn.content, words) for session, turn in turns.items()}
    languages = lexemes.languages_of(texts.values())
    asked = {stem for word in words for stem in word.stems}
    for session in sorted(turns, key=lambda one: (turns[one].role != Message.Role.USER, turns[one].time)):
        text = texts[session]
        yield session, lexemes.stems_in(text, languages) - asked if text else None


def _is_similar(later: Statement, source: Statement) -> bool:
    if later is None or source is None:
        return False
    return later >= source if source else not later


def _matching_sentences(text: str, words: Words) -> str:
    places = [start for start, _ in lexemes.places_of(text, words)]
    found, end = [], 0
    for sentence in sentences_of(text):
        start = text.index(sentence, end)
        end = start + len(sentence)
        if any(start <= place < end for place in places):
            found.append(sentence)
    return " ".join(found)
