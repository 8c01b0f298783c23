"""Items of streams, written and corrected by hand."""

import pytest
from django.test import Client
from django.urls import reverse

from moments_app.models import Job, MemoryStream
from tests.support.pages import change_url
from tests.support.streams import note, shard

pytestmark = pytest.mark.django_db(transaction=True)


class TestAtoms:
    """Items of streams, written and corrected by hand."""

    @pytest.fixture
    def repairs(self, transactional_db: None) -> MemoryStream:
        return shard("repairs")

    def test_what_an_operator_writes_is_pinned_and_asked_to_be_found_well(
        self, root: Client, repairs: MemoryStream
    ) -> None:
        before = repairs.last_updated_at
        fields = {"stream": repairs.pk, "atom_type": "fact", "content": "Felt wears out.", "state": "active"}
        when = {"formed_at_0": "2026-03-02", "formed_at_1": "08:00:00"}
        answer = root.post(reverse("admin:moments_app_memoryatom_add"), fields | when)
        assert answer.status_code == 302, answer.content.decode()[-3_000:]
        atom = repairs.atoms.get()
        assert (atom.is_pinned, atom.user_id, atom.engine) == (True, None, "")
        repairs.refresh_from_db()
        assert repairs.last_updated_at > before
        assert Job.objects.get(process="count_words").stream == repairs

    def test_what_is_corrected_is_pinned_what_is_only_looked_at_is_not(
        self, root: Client, repairs: MemoryStream
    ) -> None:
        atom = note(repairs, "Felt wears out.", "fact", engine="extractive")
        fields = {"content": "Felt wears out in a year.", "state": "active"}
        when = {"formed_at_0": "2026-03-02", "formed_at_1": "08:00:00"}
        assert root.post(change_url(atom), fields | when).status_code == 302
        atom.refresh_from_db()
        assert (atom.content, atom.is_pinned, atom.engine) == ("Felt wears out in a year.", True, "extractive")
        other = note(repairs, "A jack is of wood.", "fact")
        assert root.post(change_url(other), {"content": other.content, "state": "evicted"} | when).status_code == 302
        other.refresh_from_db()
        assert (other.state, other.is_pinned) == ("evicted", False)

    def test_what_the_stream_has_already_is_refused_in_words(self, root: Client, repairs: MemoryStream) -> None:
        note(repairs, "Felt wears out.", "fact")
        fields = {"stream": repairs.pk, "atom_type": "fact", "content": "felt WEARS out", "state": "active"}
        when = {"formed_at_0": "2026-03-02", "formed_at_1": "08:00:00"}
        answer = root.post(reverse("admin:moments_app_memoryatom_add"), fields | when)
        assert "The stream has this already." in answer.content.decode()
        assert repairs.atoms.count() == 1
