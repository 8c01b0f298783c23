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
from sessions_app.admin.links import change_url, highlighted, list_url, turn_url
from sessions_app.admin.views import OperatorPage, may_see
from sessions_app.models import Message, Session, UserProfile
from sessions_app.transcript.search import MAX_SESSIONS, Mention

SHOWN = 8  # maximum hits of each kind; the kind's own list shows all of them
EXCERPT = 280  # maximum characters of a hit's text
QUERY_MAX = 200  # maximum characters of a query


class Hit(NamedTuple):
    """A search hit.

    Attributes:
        text: the text of the hit, with the matching words marked.
        speaker: the role of the speaker, and the day; blank if the hit is not a turn.
        similar: hits with similar words from the person's other sessions.
    """

    url: str
    name: str
    text: SafeString
    row: Model
    speaker: str = ""
    similar: Sequence["Hit"] = ()


class Group(NamedTuple):
    """The hits of one kind.

    Attributes:
        hits: the first hits.
        more: the URL of the list with all hits; blank if `hits` has all of them.
    """

    title: str
    hits: Sequence[Hit]
    more: str


class Find(OperatorPage):
    """Search all kinds of rows, with the same searches as their lists."""

    route, name = "find/", "find"
    template_name = "operator/find/page.html"
    title = "Find"
    groups: Sequence[Group] = ()

    def context(self) -> dict[str, Any]:
        query = self.request.GET.get(SEARCH_VAR, "").replace("\0", "").strip()[:QUERY_MAX]
        if query:
            words = lexemes.whole_words(query)
            seen = [model for model in _HITS if may_see(self.request, model)]
            self.groups = [self._group(model, query, words) for model in seen]
        return {"query": query, "groups": self.groups, "query_max": QUERY_MAX}

    def people(self) -> Collection[int]:
        return {person for group in self.groups for hit in group.hits for person in people_of(hit.row)}

    def _group(self, model: type[Model], query: str, words: Sequence[lexemes.QueryWord]) -> Group:
        admin = self.admin.admin_site.get_model_admin(model)
        found, _ = admin.get_search_results(self.request, admin.get_queryset(self.request), query)
        if model is Session:
            by_name = Q(session_id__startswith=query) | Q(title__icontains=query)
            named_first = found.annotate(is_named=by_name).order_by("-is_named", *admin.ordering)
            groups = self._sessions(named_first[:MAX_SESSIONS], words)
        else:
            groups = [[row] for row in found.order_by(*admin.ordering)[: SHOWN + 1]]
        more = list_url(model, **{SEARCH_VAR: query}) if sum(map(len, groups)) > SHOWN else ""
        hits = [[_HITS[model](self.request, row, words) for row in group] for group in groups[:SHOWN]]
        sources = [source._replace(similar=similar) for source, *similar in hits]
        return Group(capfirst(str(model._meta.verbose_name_plural)), sources, more)

    def _sessions(self, rows: QuerySet[Any], words: Sequence[lexemes.QueryWord]) -> list[list[Session]]:
        """Return one group per session found by id or title, and then groups of sessions with similar words."""
        named = [[row] for row in rows if row.is_named]
        others = [row for row in rows if not row.is_named]
        return named + group_similar(others, _mentions(self.request), words)


def _mentions(request: HttpRequest) -> Mapping[int, Mention | None]:
    """Return the turns that the search in the session list found, keyed by the primary key of the session."""
    found: Mapping[int, Mention | None] = request.mentions  # type: ignore[attr-defined]
    return found


def _person(request: HttpRequest, user: UserProfile, words: Sequence[lexemes.QueryWord]) -> Hit:
    return Hit(change_url(user), user.user_id, highlighted(user.summary, words, EXCERPT), user)


def _session(request: HttpRequest, session: Session, words: Sequence[lexemes.QueryWord]) -> Hit:
    """Return a hit for a session: the turn that has the words, or the session's beginning."""
    name = f"{session.session_id} of {session.user.user_id}"
    mention = _mentions(request).get(session.pk)
    if mention is None:
        return Hit(change_url(session), name, highlighted(getattr(session, "began", ""), words, EXCERPT), session)
    url, text = turn_url(session.pk, mention.sequence), highlighted(mention.excerpt, words, EXCERPT)
    return Hit(url, f"{name}, {mention.name}", text, session, speaker=f"{mention.role}, {mention.time:%Y-%m-%d}")


def _moment(request: HttpRequest, moment: Moment, words: Sequence[lexemes.QueryWord]) -> Hit:
    name = f"{moment.key} of {moment.user.user_id}"
    return Hit(change_url(moment), name, highlighted(moment.summary, words, EXCERPT), moment)


def _fact(request: HttpRequest, atom: MemoryAtom, words: Sequence[lexemes.QueryWord]) -> Hit:
    """Return a hit for an item, with its state unless it is active."""
    state = "" if atom.state == MemoryAtom.State.ACTIVE else f", {atom.state_in_words}"
    name = f"{atom.atom_type}{state}, {atom.stream.title}"
    return Hit(change_url(atom), name, highlighted(atom.content, words, EXCERPT), atom)


_HITS: dict[type[Model], Callable[[HttpRequest, Any, Sequence[lexemes.QueryWord]], Hit]] = {
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
Stems = AbstractSet[str] | None  # the stems of a turn except those of the query; None if the text is archived


def group_similar(
    sessions: Sequence[Session], mentions: Mapping[int, Mention | None], words: Words
) -> list[list[Session]]:
    """Return the sessions in groups. The first session of a group is the source, and the others have similar words.

    Groups are sorted by their first session in `sessions`. Within a group, turns of the person come before turns of
    others, both sorted by time.

    Args:
        mentions: the turn that was found in each session.
        words: the words of the query.
    """
    by_person: dict[int, list[Session]] = defaultdict(list)
    for session in sessions:
        by_person[session.user_id].append(session)
    order = {session: number for number, session in enumerate(sessions)}
    groups = [group for own in by_person.values() for group in _groups(own, mentions, words)]
    return sorted(groups, key=lambda group: min(order[session] for session in group))


def _groups(
    sessions: Sequence[Session], mentions: Mapping[int, Mention | None], words: Words
) -> Iterator[list[Session]]:
    turns = {session: turn for session in sessions if (turn := mentions.get(session.pk))}
    sources: list[tuple[Stems, list[Session]]] = []
    for session, stems in _stems(turns, words):
        group = next((group for source, group in sources if _is_similar(stems, source)), None)
        if group is None:
            sources.append((stems, [session]))
        else:
            group.append(session)
    yield from (group for _, group in sources)
    yield from ([session] for session in sessions if session not in turns)


def _stems(turns: Mapping[Session, Mention], words: Words) -> Iterator[tuple[Session, Stems]]:
    """Yield sessions with the stems of their turns: first the person's turns, then turns of others, sorted by time."""
    texts = {session: _matching_sentences(turn.content, words) for session, turn in turns.items()}
    languages = lexemes.languages_of(texts.values())
    query_stems = {stem for word in words for stem in word.stems}
    for session in sorted(turns, key=lambda one: (turns[one].role != Message.Role.USER, turns[one].time)):
        text = texts[session]
        yield session, lexemes.stems_in(text, languages) - query_stems if text else None


def _is_similar(later: Stems, source: Stems) -> bool:
    if later is None or source is None:
        return False
    return later >= source if source else not later


def _matching_sentences(text: str, words: Words) -> str:
    matches = [start for start, _ in lexemes.occurrences(text, words)]
    found, end = [], 0
    for sentence in sentences_of(text):
        start = text.index(sentence, end)
        end = start + len(sentence)
        if any(start <= match < end for match in matches):
            found.append(sentence)
    return " ".join(found)
