"""Other languages: the engine drops sentences rather than keep nonsense."""

import re
from datetime import UTC, datetime, timedelta

import pytest

from benchmarks.languages import Language, read_languages
from moments_app.engines.calls.formation import FormationRequest, StreamSection
from moments_app.engines.calls.moments import Journey, MomentRequest
from moments_app.engines.extractive import ExtractiveEngine
from moments_app.engines.extractive.sentences import needs_context
from moments_app.engines.transcript import Turn

LANGUAGES = {one.language: one for one in read_languages() if one.language != "en"}
READ = ("ar", "de", "es", "fr", "hi", "ja", "ko", "nl", "pl", "pt", "ru", "sv", "tr", "zh")
UNKNOWN = ("th",)
DATE = re.compile(r" \[[\d– -]+\]")  # follows a relative time, such as "tomorrow"


def turns_of(language: Language) -> list[Turn]:
    at = datetime(2026, 3, 4, 8, tzinfo=UTC)
    return [
        Turn(n, "assistant" if "talk" in name else "user", text, at + timedelta(minutes=n))
        for n, (name, text) in enumerate(language.turns())
    ]


def of_user(turns: list[Turn]) -> list[str]:
    """Return the lasting statements about the user."""
    section = StreamSection("user", "", 50, 50, "")
    [entry] = ExtractiveEngine().form_memories(FormationRequest(turns, [section], "")).streams
    return [item["text"].removeprefix("User: ") for item in entry["facts"] + entry["observations"]]


@pytest.mark.parametrize("code", LANGUAGES)
def test_kept_sentences_are_quotations_without_small_talk(code: str) -> None:
    language = LANGUAGES[code]
    turns = turns_of(language)
    sections = [
        StreamSection("session", "", 0, 50, ""),
        StreamSection("user", "", 50, 0, ""),
    ]
    entries = ExtractiveEngine().form_memories(FormationRequest(turns, sections, "")).streams
    texts = [item["text"] for entry in entries for item in entry["facts"] + entry["observations"]]
    kept = [DATE.sub("", text.removeprefix("User: ")) for text in texts]
    assert all(any(text in statement for statement in language.statements) for text in kept)
    assert kept or code == "th"  # words of its script can't be separated


@pytest.mark.parametrize("code", LANGUAGES)
def test_names_and_tags_are_words_of_statements_without_feelings_or_interests(code: str) -> None:
    language = LANGUAGES[code]
    built = ExtractiveEngine().build_moments(MomentRequest(turns_of(language), Journey(), ""))
    stated = " ".join(language.statements).lower().replace("’", "'")
    for moment in built.moments:
        assert moment.emotion_tags == []
        assert code in UNKNOWN or (moment.topic_tags and all(word in stated for word in moment.name.split("-")))
        assert moment.name.startswith("conversation-2026-03-04") == (code in UNKNOWN)
    assert bool(of_user(turns_of(language))) == (code in READ)


def test_names_and_tags_are_in_the_persons_language_if_the_assistant_answers_in_another() -> None:
    at = datetime(2026, 3, 4, 8, tzinfo=UTC)
    talk = [
        ("user", "我叫李娜。"),
        ("assistant", "Nice to meet you, what a lovely name!"),
        ("user", "我住在成都，养了一只猫叫豆豆。"),
        ("assistant", "Young cats love cardboard boxes."),
        ("user", "我丈夫叫张伟。"),
        ("assistant", "You should cook for him."),
    ]
    turns = [Turn(n, role, text, at) for n, (role, text) in enumerate(talk)]
    [moment] = ExtractiveEngine().build_moments(MomentRequest(turns, Journey(), "")).moments
    assert moment.topic_tags and not any(tag.isascii() for tag in moment.topic_tags)
    assert not moment.name.isascii()


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("de", "Ich bin Veganerin und liebe es."),
        ("de", "Mein Hund heißt Rex und ich liebe ihn."),
        ("fr", "Mon mari s'appelle Paul et je l'aime."),
        ("ru", "У меня есть собака Рекс, я очень люблю его."),
        ("zh", "我对花生过敏，所以不吃。"),
        ("zh", "我喜欢这座城市。"),
    ],
)
def test_a_fact_that_ends_with_liking_something_is_kept(code: str, said: str) -> None:
    assert not needs_context(said, code)


@pytest.mark.parametrize(
    ("code", "said", "small_talk"),
    [
        ("ar", "لدي حساسية من الفول السوداني.", "أنا بخير والحمد لله."),
        ("de", "Ich bin allergisch gegen Nüsse.", "Ich bin heute müde."),
        ("es", "Soy alérgica a las nueces.", "No sé qué hacer mañana."),
        ("fr", "Mon mari s'appelle Thierry.", "Je ne sais pas trop."),
        ("hi", "मुझे मूंगफली से एलर्जी है।", "मैं ठीक हूँ।"),
        ("it", "Sono allergica al lattosio.", "Non lo so ancora."),
        ("ja", "私の名前は田中美咲です。", "私もそう思います。"),
        ("ko", "저는 새우 알레르기가 있어요.", "저는 잘 모르겠어요."),
        ("nl", "Mijn zus woont in Gent.", "Ik weet het niet."),
        ("pl", "Mam alergię na orzechy.", "Nie wiem jeszcze."),
        ("ru", "У меня аллергия на мёд.", "Я пока не знаю."),
        ("sv", "Min dotter heter Saga.", "Jag vet inte riktigt."),
        ("zh", "我对花生过敏。", "我记住了，谢谢。"),
        ("de", "Ich mag keinen Kaffee.", "Ich mag das."),
        ("es", "Me encanta el ciclismo.", "Me gusta mucho."),
        ("fr", "J'aime le vélo.", "J'aime bien ça."),
        ("ru", "Я не ем мясо.", "Я люблю это."),
        ("zh", "我喜欢喝绿茶。", "我喜欢这个。"),
        ("zh", "女儿豆豆六岁，大班。", "朋友六点来。"),
        ("es", "Me dedico a reparar bicicletas.", "Me voy a casa."),
    ],
)
def test_short_lasting_statements_are_kept_and_small_talk_is_not(code: str, said: str, small_talk: str) -> None:
    language = LANGUAGES.get(code)
    before = (
        [text for _name, text in language.turns()] if language else ["Vivo a Torino da dieci anni con mia sorella."]
    )
    at = datetime(2026, 3, 4, 8, tzinfo=UTC)
    turns = [Turn(n, "assistant", text, at) for n, text in enumerate(before)]
    turns += [Turn(len(before) + n, "user", text, at) for n, text in enumerate((said, small_talk))]
    assert of_user(turns) == [said]
