"""What a key, a person and an application have used today, over REST."""

from typing import Any

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from sessions_app.api.person import key_of
from sessions_app.api.throttling import KeyRateThrottle
from sessions_app.api.viewsets import PersonViewSet
from sessions_app.daily_limits import meter
from sessions_app.models.daily_limit import UNITS, Kind, Subject, today, tomorrow


class AmountAnswer(serializers.Serializer[Any]):
    """An amount, and its limit."""

    used = serializers.IntegerField()
    limit = serializers.IntegerField(allow_null=True, help_text="Null: there is none.")


class UsdAnswer(serializers.Serializer[Any]):
    """An amount of money, and its limit."""

    used = serializers.DecimalField(max_digits=16, decimal_places=6)
    limit = serializers.DecimalField(max_digits=16, decimal_places=6, allow_null=True, help_text="Null: there is none.")


class StandingAnswer(serializers.Serializer[Any]):
    """What somebody has used today, and may."""

    requests = AmountAnswer(help_text="Above the limit: 429.")
    stored_bytes = AmountAnswer(help_text="Above the limit: 429.")
    model_calls = AmountAnswer(help_text="Above the limit work waits for the next day.")
    usd = UsdAnswer(help_text="Above the limit work waits for the next day.")


class UsageAnswer(serializers.Serializer[Any]):
    day = serializers.DateField(help_text="In UTC.")
    ends_at = serializers.DateTimeField()
    key = StandingAnswer()
    person = StandingAnswer(allow_null=True, help_text="Null: nobody is named, or nothing is known of them.")
    application = StandingAnswer(allow_null=True, help_text="Null: the key is a person's own.")


class UsageViewSet(PersonViewSet[Any]):
    """Today's usage. The call itself is not counted, and works when a limit is used up."""

    serializer_class = UsageAnswer
    throttle_classes = (KeyRateThrottle,)
    about_nobody = ("retrieve",)
    own_transaction = ("retrieve",)

    def retrieve(self, request: Request) -> Response:
        """What the key and its application have used today, and the person, if one is named; with the limits."""
        key = key_of(request)
        usage = {
            "day": today(),
            "ends_at": tomorrow(),
            "key": _data(Subject(Kind.KEY, key.pk)),
            "person": self._of_person() if key.user or self.named else None,
            "application": None if key.user else _data(Subject(Kind.APPLICATION, key.application_id)),
        }
        return self.answer(usage)

    def _of_person(self) -> dict[str, Any] | None:
        with self.transaction():
            person = self.person
            return _data(Subject(Kind.PERSON, None, person.user_id, person.application_id)) if person else None


def _data(subject: Subject) -> dict[str, Any]:
    standing = meter.standing(subject)
    return {name: {"used": standing.used.of(name), "limit": standing.limits.get(name)} for name in UNITS}
