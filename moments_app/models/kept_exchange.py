"""The texts of a failed model call: the request, and the unusable answer."""

import json
from dataclasses import asdict
from datetime import timedelta
from typing import Self

from django.conf import settings
from django.db import models
from django.utils import timezone

from moments_app.engines.interface import Exchange
from sessions_app.models import UserProfile
from sessions_app.security.encryption import seal, unseal


class KeptExchangeQuerySet(models.QuerySet["KeptExchange"]):
    def expired(self) -> Self:
        """Return texts older than `ENGINE__KEEP_FAILED_DAYS`."""
        return self.filter(created_at__lt=timezone.now() - timedelta(days=settings.ENGINE.keep_failed_days))

    def keep(self, call_pk: int, user_pk: int, exchange: Exchange) -> None:
        """Store the texts of a call that was made for a person."""
        sealed = seal(json.dumps(asdict(exchange)).encode(), _about(call_pk))
        self.create(call_id=call_pk, user_id=user_pk, sealed=sealed)


class KeptExchange(models.Model):
    """The encrypted texts of a failed call. They are deleted with the person whom they are about."""

    call = models.OneToOneField("moments_app.EngineCall", on_delete=models.CASCADE, related_name="exchange")
    user = models.ForeignKey(UserProfile, on_delete=models.CASCADE, related_name="+")
    sealed = models.BinaryField()
    created_at = models.DateTimeField(default=timezone.now, db_index=True)

    objects = KeptExchangeQuerySet.as_manager()

    def __str__(self) -> str:
        return f"exchange of call {self.call_id}"

    @property
    def exchange(self) -> Exchange | None:
        """The decrypted texts; None if no key decrypts them."""
        opened = unseal(self.sealed, _about(self.call_id))
        return Exchange(**json.loads(opened)) if opened else None


def _about(call_pk: int) -> str:
    return f"call {call_pk}"
