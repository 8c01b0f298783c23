"""The page of embedding models: the active one, and the progress of each."""

from datetime import timedelta

import pytest
from django.test import Client
from django.utils import timezone
from pytest_django.fixtures import Settings

from moments_app.models import EmbeddingModel, FactEmbedding, Job, MemoryStream
from moments_app.recall import vectors
from sessions_app.models import UserProfile
from tests.support.openai_server import OpenAIServer
from tests.support.operator import operator
from tests.support.pages import MAX_QUERIES, change_url, list_url, page, queries_of
from tests.support.streams import note
from tests.support.transcript import START, talk

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def model(ada: UserProfile) -> EmbeddingModel:
    """The active model, with a vector for one of two facts."""
    stream = MemoryStream.objects.ensure_of_person(ada, "default")
    model = EmbeddingModel.objects.ensure("small", 3)
    first, _ = note(stream, "Felt wears out.", "fact"), note(stream, "A jack is of wood.", "fact")
    FactEmbedding.objects.create(source=first, model=model, user=ada, said_at=START, vector=[1, 0, 0])
    return model


def test_the_progress_of_each_kind_is_shown(root: Client, model: EmbeddingModel, ada: UserProfile) -> None:
    talk(ada, 4)
    assert [(row.kind, row.vectors, row.texts, row.is_exact) for row in vectors.embedding_progress(model)] == [
        ("fact", 1, 2, True),
        ("moment", 0, 0, True),
        ("turn", 0, 4, True),
        ("item", 0, 0, True),
    ]
    for url in (list_url(EmbeddingModel), change_url(model)):
        shown = page(root, url)
        assert "in use" in shown and 'max="2" value="1"' in shown and 'max="4" value="0"' in shown


def test_large_numbers_are_estimated_and_marked_so(
    root: Client, model: EmbeddingModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vectors, "MAX_COUNTED", 1)
    assert not vectors.embedding_progress(model)[0].is_exact
    assert "about" in page(root, change_url(model))


def test_without_a_provider_the_page_explains_word_search(root: Client, settings: Settings) -> None:
    assert "searches use words only" in page(root, list_url(EmbeddingModel))


def test_the_page_of_an_unused_model_explains_how_to_switch(root: Client, model: EmbeddingModel) -> None:
    other = EmbeddingModel.objects.ensure("large", 4)
    assert "manage.py embed --model large --dimensions 4 --activate" in page(root, change_url(other))


@pytest.mark.slow
def test_the_page_takes_a_constant_number_of_queries(root: Client, model: EmbeddingModel) -> None:
    few = queries_of(root, list_url(EmbeddingModel))
    for number in range(4, 9):
        EmbeddingModel.objects.ensure("more", number)
    assert queries_of(root, list_url(EmbeddingModel)) == few <= MAX_QUERIES


def test_rejected_texts_are_shown_and_sent_again_by_a_button(
    root: Client, embeddings_server: OpenAIServer, model: EmbeddingModel
) -> None:
    FactEmbedding.objects.update(vector=None, refusal="status 400.", ask_again_at=timezone.now() + timedelta(days=9))
    shown = page(root, change_url(model))
    assert "has rejected 1 text." in shown and "status 400." in shown and "Resend rejected texts…" in shown
    assert "Resend 1 text<" in shown
    again = f"{change_url(model).removesuffix('change/')}send-refused/"
    assert "1 rejected texts are being resent." in root.post(again, follow=True).content.decode()
    assert Job.objects.get(process="embed").user_id == FactEmbedding.objects.get().user_id
    assert sum(EmbeddingModel.objects.active().refused_by_kind().values()) == 1


def test_operators_who_cannot_manage_jobs_cannot_send_texts_again(model: EmbeddingModel) -> None:
    viewer = operator("view_")
    FactEmbedding.objects.update(vector=None)
    assert "Resend rejected texts" not in page(viewer, change_url(model))
    assert viewer.post(f"{change_url(model).removesuffix('change/')}send-refused/").status_code == 403
