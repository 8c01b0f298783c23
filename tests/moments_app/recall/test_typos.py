"""Words that are similar to a misspelled one."""

import random

import pytest
from rapidfuzz.distance import OSA

from moments_app.models import Vocabulary, Word
from moments_app.recall.query_terms import MAX_EDITS, guessed_terms, tolerated_edits
from moments_app.recall.scoring import Term
from sessions_app.models import UserProfile

LETTERS = "abcdefghijklmnop"


def mistyped(word: str, chance: random.Random) -> set[str]:
    """Return a word with each pair of letters swapped, and with letters inserted, deleted and replaced.

    The first letter stays the same.
    """
    halves = [(word[:place], word[place:]) for place in range(1, len(word) + 1)]
    swapped = {before + after[:2][::-1] + after[2:] for before, after in halves}
    before, after = chance.choice(halves)
    letter = chance.choice(LETTERS)
    return swapped | {before + letter + after, before + after[1:], before + letter + after[1:]}


@pytest.mark.django_db
@pytest.mark.parametrize("letters", range(1, 15))
def test_every_word_within_the_edit_distance_is_found(ada: UserProfile, letters: int) -> None:
    chance = random.Random(letters)
    vocabulary = Vocabulary.objects.create(user=ada)
    asked = "".join(chance.choices(LETTERS, k=letters))
    near = set[str]().union(*(mistyped(asked, chance) for _ in range(10)))
    near |= set[str]().union(*(mistyped(word, chance) for word in near))
    wanted = {word for word in near if 0 < OSA.distance(word, asked) <= tolerated_edits(asked)} - {""}
    for stem in chance.sample(sorted(wanted), k=min(len(wanted), 60)):
        Word.objects.all().delete()
        Word.objects.create(vocabulary=vocabulary, user=ada, stem=f"de:{stem}", turns=1)
        unknown = Term("word", (f"de:{asked}",), {})
        meant = guessed_terms([unknown], user_id=ada.pk, vocabularies=[vocabulary.pk], is_counted=True)
        assert [term.word for term in meant] == [stem]
    assert MAX_EDITS == tolerated_edits("a" * 8) > tolerated_edits("a" * 7)
