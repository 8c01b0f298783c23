"""Today's usage of a key and its application, over REST."""

from typing import Any

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from sessions_app.api.permissions import key_of
from sessions_app.api.throttling import KeyRateThrottle
from sessions_app.api.viewsets import PersonViewSet
from sessions_app.models.daily_limit import UNITS, Subject, SubjectKind, meter, today, tomorrow


class AmountAnswer(serializers.Serializer[Any]):
    """An amount and its limit."""

    used = serializers.IntegerField()
    limit = serializers.IntegerField(allow_null=True, help_text="The daily limit. Null if there is no limit.")


class UsdAnswer(serializers.Serializer[Any]):
    """An amount in USD and its limit."""

    used = serializers.DecimalField(max_digits=16, decimal_places=6)
    limit = serializers.DecimalField(
        max_digits=16, decimal_places=6, allow_null=True, help_text="The daily limit. Null if there is no limit."
    )


class StandingAnswer(serializers.Serializer[Any]):
    """Today's usage and the limits."""

    requests = AmountAnswer(
        help_text="Number of requests today. When the limit is reached, further requests get status 429."
    )
    model_calls = AmountAnswer(
        help_text="Number of model calls today. When the limit is reached, jobs wait until the next day."
    )
    usd = UsdAnswer(help_text="Cost of today's model calls. When the limit is reached, jobs wait until the next day.")


class UsageAnswer(serializers.Serializer[Any]):
    day = serializers.DateField(help_text="Day in UTC.")
    ends_at = serializers.DateTimeField()
    key = StandingAnswer()
    application = StandingAnswer(
        allow_null=True, help_text="Usage of the application. Null if the key belongs to a user."
    )


class UsageViewSet(PersonViewSet[Any]):
    """Today's usage. The call itself is not counted, and works when a limit is used up."""

    serializer_class = UsageAnswer
    throttle_classes = (KeyRateThrottle,)
    person_optional = ("retrieve",)
    own_transaction = ("retrieve",)

    def retrieve(self, request: Request) -> Response:
        """Return today's usage of the key and its application, with the limits. `user_id` has no effect."""
        key = key_of(request)
        usage = {
            "day": today(),
            "ends_at": tomorrow(),
            "key": _usage_of(Subject(SubjectKind.KEY, key.pk)),
            "application": None if key.user else _usage_of(Subject(SubjectKind.APPLICATION, key.application_id)),
        }
        return self.answer(usage)


def _usage_of(subject: Subject) -> dict[str, Any]:
    usage_status = meter.usage_status(subject)
    return {name: {"used": usage_status.used.of(name), "limit": usage_status.limits.get(name)} for name in UNITS}
