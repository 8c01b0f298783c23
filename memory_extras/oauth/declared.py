"""Declares the extra's tables with personal data."""

from collections import Counter
from functools import partial
from typing import Any

from django.db.models import QuerySet

from memory_extras.oauth.models import AccessToken, Code, Consent, RefreshToken
from sessions_app.models import UserProfile
from sessions_app.people.provenance import Provenance, declare

Table = type[Consent | Code | AccessToken | RefreshToken]
_NOT_EXPORTED = "it is a credential for this installation, and can't be shown again"


def _of_person(model: Table, person: str, user: UserProfile) -> QuerySet[Any]:
    return model._base_manager.filter(**{person: user})


def _erase(model: Table, person: str, user: UserProfile) -> None:
    _of_person(model, person, user).delete()


def _count(model: Table, person: str, user: UserProfile) -> Counter[str]:
    return Counter({str(model._meta.verbose_name_plural): _of_person(model, person, user).count()})


def _provenance(model: Table, person: str) -> Provenance:
    return Provenance(
        model,
        person=person,
        not_exported=_NOT_EXPORTED,
        not_retracted="it is not derived from turns",
        erase=partial(_erase, model, person),
        count_others=partial(_count, model, person),
    )


declare(
    *(_provenance(model, "consent__key__user") for model in (RefreshToken, AccessToken, Code)),
    _provenance(Consent, "key__user"),
)
