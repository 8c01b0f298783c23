"""What sentences state, and about whom: read correctly or not at all."""

from datetime import UTC, datetime

import pytest

from moments_app.engines.statements import is_not_asserted, statement_of, worth_of
from moments_app.engines.statements.dates import start_in

AT = datetime(2026, 3, 10, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("User lives in Oslo with their wife Ann.", ("User", "home", "Oslo", False)),
        ("Mary Ann moved from Oslo to New York on March 3rd.", ("Mary Ann", "home", "New York", False)),
        ("The user used to live in Rome.", ("User", "home", "Rome", True)),
        ("User works as a baker at Hansen's.", ("User", "work", "baker at Hansen's", False)),
        (
            "User started a new job as a software engineer at Acme.",
            ("User", "work", "software engineer at Acme", False),
        ),
        ("User no longer works at Equinor.", ("User", "work", "at Equinor", True)),
        ("User lost their job.", ("User", "work", "", True)),
        ("Nora moved to Google.", ("Nora", "work", "at Google", False)),
        ("The user moved from SAP to Acme Labs in March.", ("User", "work", "at Acme Labs", False)),
        ("Nora moved to Apple Valley.", ("Nora", "home", "Apple Valley", False)),
        ("User's name is Nora.", ("User", "name", "Nora", False)),
        ("User just turned 35.", ("User", "age", "35", False)),
        ("User got divorced in May.", ("User", "relationship", "divorced", False)),
        ("Caroline adopted a puppy called Pixie.", ("Caroline", "puppy", "Pixie", False)),
        ("Recently Nora moved to Bergen.", ("Nora", "home", "Bergen", False)),
    ],
)
def test_a_statement_is_parsed(text: str, read: tuple[str, str, str, bool]) -> None:
    said = statement_of(text)
    assert said and (said.subject, said.attribute, said.value, said.is_over) == read
    assert worth_of(text) == 1.0


@pytest.mark.parametrize(
    ("text", "attribute", "value", "wrong"),
    [
        ("My dog is not called Bello, he is called Otto.", "dog", "Otto", "Bello"),
        ("My horse isn't called Bello, but Otto.", "horse", "Otto", "Bello"),
        ("My sister's name isn't Ann, it's Anna.", "sister", "Anna", "Ann"),
    ],
)
def test_a_denied_name_is_corrected_by_the_name_after_it(text: str, attribute: str, value: str, wrong: str) -> None:
    said = statement_of(text)
    assert said and (said.attribute, said.value, said.wrong) == (attribute, value, wrong)


@pytest.mark.parametrize(
    ("text", "name"),
    [("Ich heiße August.", "August"), ("Je m'appelle June.", "June"), ("我叫May。", "May")],
)
def test_a_name_can_be_an_english_month(text: str, name: str) -> None:
    said = statement_of(text)
    assert said and (said.attribute, said.value) == ("name", name)


@pytest.mark.parametrize(
    "text",
    [
        "User moved to a new flat.",
        "User moved in March.",
        "Nora moved to Marketing.",
        "User moved to Linux last year.",
        "User started with a joke.",
        "Caroline's son is happy with that.",
        "Since Nora lost their job at Equinor, things have been tough.",
        "If User works at Equinor, they will move.",
    ],
)
def test_other_sentences_are_not_parsed(text: str) -> None:
    assert statement_of(text) is None


@pytest.mark.parametrize(
    ("earlier", "later", "ends"),
    [
        ("User lives in Oslo.", "User moved to Bergen.", True),
        ("User lives in Oslo.", "User lives in Oslo now.", False),
        ("User lives in Oslo.", "User used to live in Rome.", False),
        ("User works as a baker.", "User works at Hansen's.", False),
        ("User works as a baker.", "User got a new job at Equinor.", True),
        ("User works as a baker.", "User quit their job at Equinor.", True),
        ("User: I work as a nurse at Haukeland Hospital.", "User: I no longer work at Haukeland.", True),
        ("User works at Haukeland Hospital.", "User no longer works at Hauke.", False),
        ("User's daughter is called Maya.", "User's daughter is called Mia.", None),
        ("User's daughter is called Maya.", "User's daughter's name is Mia, not Maya.", True),
    ],
)
def test_a_later_statement_may_end_an_earlier_one(earlier: str, later: str, ends: bool | None) -> None:
    before, after = statement_of(earlier), statement_of(later)
    assert before and after and after.ends(before) is ends


def test_a_day_without_a_year_is_the_latest_one_before_the_statement() -> None:
    days = {
        "on 3 March": "2026-03-03",
        "on May 5th": "2025-05-05",
        "since 2019": "2019-01-01",
        "in May 2024": "2024-05-01",
    }
    assert {text: f"{start_in(text, AT, UTC):%Y-%m-%d}" for text in days} == days
    assert start_in("on 31 February 2026", AT, UTC) is None and start_in("on 5 May 2027", AT, UTC) == AT


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("I live in Oslo.", ("User", "home", "Oslo", False)),
        ("Nora: I live in Oslo with my wife Ann.", ("Nora", "home", "Oslo", False)),
        ("We moved to Bergen on 3 March 2025.", ("User", "home", "Bergen", False)),
        ("I used to live in Rome.", ("User", "home", "Rome", True)),
        ("I don't live in Rome anymore.", ("User", "home", "Rome", True)),
        ("I no longer work at Haukeland.", ("User", "work", "at Haukeland", True)),
        ("I quit my job at Equinor.", ("User", "work", "at Equinor", True)),
        ("I work as a nurse at Haukeland Hospital.", ("User", "work", "nurse at Haukeland Hospital", False)),
        ("Last year I turned 40, and I’m working as a baker.", ("User", "work", "baker", False)),
        ("My name is Nora and I keep bees.", ("User", "name", "Nora", False)),
        ("I'm Nora, I make ceramics.", ("User", "name", "Nora", False)),
        ("My daughter is called Maya.", ("User", "daughter", "Maya", False)),
        ("I'm divorced.", ("User", "relationship", "divorced", False)),
        ("I just turned 35.", ("User", "age", "35", False)),
        ("I'm a primary school teacher.", ("User", "work", "primary school teacher", False)),
        ("Nora: I'm a nurse at Haukeland Hospital.", ("Nora", "work", "nurse at Haukeland Hospital", False)),
        ("Ich bin Krankenschwester.", ("User", "work", "Krankenschwester", False)),
        ("Soy médico.", ("User", "work", "médico", False)),
        ("Je suis boulanger.", ("User", "work", "boulanger", False)),
        ("我是小学老师。", ("User", "work", "小学老师", False)),
        ("Я врач.", ("User", "work", "врач", False)),
        ("Wir wohnen in Mannheim.", ("User", "home", "Mannheim", False)),
        ("Ich bin letztes Jahr [2025] nach Kiel gezogen.", ("User", "home", "Kiel", False)),
        ("Vivimos en Rosario.", ("User", "home", "Rosario", False)),
        ("Nous habitons à Dijon.", ("User", "home", "Dijon", False)),
        ("Мы живём в Перми.", ("User", "home", "Перми", False)),
        ("Nora: Ich wohne nicht mehr in Köln.", ("Nora", "home", "Köln", True)),
        ("Nora: Ya no trabajo en Telefónica.", ("Nora", "work", "at Telefónica", True)),
        ("Je ne travaille plus chez Renault.", ("User", "work", "at Renault", True)),
        ("我搬到了成都。", ("User", "home", "成都", False)),
        ("Я больше не живу в Омске.", ("User", "home", "Омске", True)),
        ("I'm 29 and single.", ("User", "age", "29", False)),
        ("I turned 30 yesterday.", ("User", "age", "30", False)),
        ("I got laid off from Siemens.", ("User", "work", "at Siemens", True)),
        ("I don't work at Bosch anymore, I'm at Siemens now.", ("User", "work", "at Bosch", True)),
        ("I have a new job at Bosch.", ("User", "work", "at Bosch", False)),
        ("You can call me Dr. Brown.", ("User", "name", "Dr. Brown", False)),
        ("Ich bin am 3. März 2025 nach Köln gezogen.", ("User", "home", "Köln", False)),
        ("Wir sind nach Graz umgezogen.", ("User", "home", "Graz", False)),
        ("Ich habe gestern meinen Job gekündigt.", ("User", "work", "", True)),
        ("Nos mudamos a Bilbao.", ("User", "home", "Bilbao", False)),
        ("Nous avons déménagé à Lille.", ("User", "home", "Lille", False)),
        ("我是张丽。", ("User", "name", "张丽", False)),
        ("我是北京人，现在住在杭州。", ("User", "home", "杭州", False)),
        ("我不再当护士了。", ("User", "work", "护士", True)),
        ("我去年辞职了。", ("User", "work", "", True)),
        ("Привет, я Иван, мне 36 лет.", ("User", "name", "Иван", False)),
        ("В марте мы переехали в Тюмень.", ("User", "home", "Тюмень", False)),
        ("My friends call me Ash.", ("User", "name", "Ash", False)),
        ("Name's Ashwin Rao.", ("User", "name", "Ashwin Rao", False)),
        ("Let me introduce myself: Ashwin Rao, plumber.", ("User", "name", "Ashwin Rao", False)),
        ("Du kannst mich gern Toni nennen.", ("User", "name", "Toni", False)),
        ("Ich komme aus Ulm, wohne aber seit Mai in Kassel.", ("User", "home", "Kassel", False)),
        ("Puedes llamarme Lola.", ("User", "name", "Lola", False)),
        ("Todos me dicen Quique.", ("User", "name", "Quique", False)),
        ("Hola, aquí Remedios.", ("User", "name", "Remedios", False)),
        ("Resido en Lugo.", ("User", "home", "Lugo", False)),
        ("Vous pouvez m'appeler Manon.", ("User", "name", "Manon", False)),
        ("Salut, ici Manon.", ("User", "name", "Manon", False)),
        ("Je réside à Nîmes.", ("User", "home", "Nîmes", False)),
        ("自我介绍一下：何小雨，护士。", ("User", "name", "何小雨", False)),
        ("目前定居青岛。", ("User", "home", "青岛", False)),
        ("Друзья зовут меня Лёля.", ("User", "name", "Лёля", False)),
        ("Приятно познакомиться, я Инна.", ("User", "name", "Инна", False)),
        ("Проживаю в Твери.", ("User", "home", "Твери", False)),
        ("I don't live in Porto, I live in Faro.", ("User", "home", "Faro", False)),
        ("I do not live in Porto, but I live in Faro.", ("User", "home", "Faro", False)),
        ("Ich wohne nicht in Bonn, ich wohne in Ulm.", ("User", "home", "Ulm", False)),
        ("No vivo en Madrid, vivo en Lima.", ("User", "home", "Lima", False)),
        ("Je n'habite pas à Lyon, j'habite à Lille.", ("User", "home", "Lille", False)),
        ("Я не живу в Москве, я живу в Казани.", ("User", "home", "Казани", False)),
    ],
)
def test_statements_in_the_first_person_are_parsed(text: str, read: tuple[str, str, str, bool]) -> None:
    said = statement_of(text)
    assert said and (said.subject, said.attribute, said.value, said.is_over) == read


@pytest.mark.parametrize(
    "text",
    [
        "I don't live in Berlin.",
        "I dreamed I moved to Cairo.",
        "Pretend I live on Mars.",
        "If I lived in Rome, I would cook.",
        "Do I live in Oslo?",
        "I wish I lived in Paris.",
        "My brother says I live in Detroit.",
        "I'm Norwegian.",
        "I'm a vegetarian.",
        "I was a nurse once.",
        "Ich bin müde.",
        "Soy vegetariana.",
        "I moved to Marketing.",
        "My mother moved to Bergen.",
        "Ich wohne nicht in Berlin.",
        "No vivo en Madrid.",
        "Ich wünschte, ich wohnte in Rom.",
        "要是我住在北京就好了。",
        "We are 5 in the family.",
        "I fired Bob.",
        "Ich habe den Vertrag gekündigt.",
        "我是北京人。",
        "我是高中生。",
        "我是素食者。",
        "我爸爸退休了。",
        "我不是老师。",
        "I was let go to the party.",
        "I got fired in Monopoly.",
        "I don't work anymore on Fridays.",
        "I have as much right as anyone.",
        "I found the work at the mill hard.",
        "We are 25 in the class.",
        "I am 16.5 on the scale.",
        "Ich arbeite nicht mehr im Homeoffice.",
        "Ich habe bei Netflix gekündigt.",
        "Wir sind nicht nach Hamburg gezogen.",
        "Wir sind mit dem Zug nach Hamburg gefahren und um die Häuser gezogen.",
        "Ya no trabajo en casa.",
        "Si nos mudamos a Madrid, lo celebramos.",
        "El año que viene nos mudamos a Madrid.",
        "Je ne travaille plus à temps plein.",
        "Nous avons déménagé à Noël.",
        "Мои родители переехали в Берлин.",
        "Мы не переехали в Москву.",
        "Я больше не работаю на выходных.",
        "Да, я Водолей.",
        "等我退休了，我想去旅行。",
        "万一我失业了怎么办。",
        "My sister's friends call her Ash.",
        "Name's Rex, my dog.",
        "Everybody calls me Grandma now that Lily has a baby.",
        "My friends call me Lazy because I sleep late.",
        "Mein Zuhause ist Chaos.",
        "J'habite Rue Pasteur.",
        "Si me dicen Ana, no contesto.",
        "По ошибке меня называют Олей.",
        "我朋友很有钱，家住北京。",
        "家住上海的表哥结婚了。",
        "我是他朋友，家住北京。",
        "我家在附近。",
        "No me dicen Lola.",
        "Nadie puede llamarme Paco.",
        "Ya no estoy viviendo en Madrid.",
        "Не зовут меня Лёля.",
        "Проживаю не в Москве, а в Твери.",
        "Для этого можно просто Python взять.",
        "Ich möchte mich kurz vorstellen: Krankenschwester, 34.",
        "Let me introduce myself: My name means something.",
        "自我介绍一下，谢谢，再见。",
        "Sie nennen ihn Toni.",
        "Puedes llamar a Lola.",
        "Tu peux appeler Manon.",
        "J'habite seul.",
        "Её зовут Лёля.",
        "Мой дом в порядке.",
        "他家在青岛。",
    ],
)
def test_denied_and_hypothetical_statements_have_no_value(text: str) -> None:
    assert statement_of(text) is None


@pytest.mark.parametrize(
    "text",
    [
        "I don't live in Berlin.",
        "I don't live in Berlin, I told you.",
        "I do not work at Siemens.",
        "Ich wohne nicht in Berlin.",
        "No vivo en Madrid.",
        "Je n'habite pas à Berlin.",
        "我不住在北京。",
        "Я не живу в Берлине.",
        "At card night Tom joked that nobody can trust me.",
        "我姐姐说我对猫过敏。",
        "考官看我的手，以为我是打架来的。",
    ],
)
def test_denied_homes_and_hearsay_are_unreal(text: str) -> None:
    assert is_not_asserted(text)


@pytest.mark.parametrize(
    "text",
    [
        "I no longer live in Berlin.",
        "I don't work at Siemens any more.",
        "Ya no vivo en Madrid.",
        "我不住在北京了。",
        "我觉得我对猫过敏。",
        "我可以为女儿做饭。",
        "Я больше не живу в Берлине.",
        "My doctor says I'm allergic to penicillin.",
        "Mein Arzt sagt, ich bin gegen Nüsse allergisch.",
    ],
)
def test_past_states_and_words_of_a_doctor_are_real(text: str) -> None:
    assert not is_not_asserted(text)


def test_quotations_and_statements_in_the_third_person_end_each_other() -> None:
    lives, moved = statement_of("Nora lives in Oslo."), statement_of("Nora: I moved to Bergen.")
    assert lives and moved and moved.ends(lives) is True and lives.ends(moved) is True
