"""The parts of the OpenAPI description that can't be found out from the views."""

from typing import Any

from drf_spectacular.extensions import OpenApiAuthenticationExtension
from drf_standardized_errors.openapi_serializers import ClientErrorEnum, ServerErrorEnum
from rest_framework import serializers


class ApiKeyScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    """Bearer keys."""

    target_class = "sessions_app.api.authentication.ApiKeyAuthentication"
    name = "ApiKey"

    def get_security_definition(self, auto_schema: Any) -> dict[str, Any]:
        return {"type": "http", "scheme": "bearer", "description": "`Authorization: Bearer <key>`"}


class TooLargeError(serializers.Serializer[Any]):
    code = serializers.ChoiceField(choices=["too_large"])
    detail = serializers.CharField()
    attr = serializers.CharField(allow_null=True)


class TooLargeAnswer(serializers.Serializer[Any]):
    """413, in the shape of every error."""

    type = serializers.ChoiceField(choices=ClientErrorEnum.choices)
    errors = TooLargeError(many=True)  # type: ignore[assignment]  # the name is given


class UnavailableError(serializers.Serializer[Any]):
    code = serializers.ChoiceField(choices=["busy", "unavailable"])
    detail = serializers.CharField()
    attr = serializers.CharField(allow_null=True)


class UnavailableAnswer(serializers.Serializer[Any]):
    """503, with `Retry-After`: nothing was changed, and a later try may succeed."""

    type = serializers.ChoiceField(choices=ServerErrorEnum.choices)
    errors = UnavailableError(many=True)  # type: ignore[assignment]  # the name is given


class TooManyError(serializers.Serializer[Any]):
    code = serializers.ChoiceField(choices=["throttled", "daily_limit"])
    detail = serializers.CharField()
    attr = serializers.CharField(allow_null=True)


class TooManyAnswer(serializers.Serializer[Any]):
    """429, with `Retry-After`: too many calls within a second, or what a limit allows is used up for today."""

    type = serializers.ChoiceField(choices=ClientErrorEnum.choices)
    errors = TooManyError(many=True)  # type: ignore[assignment]  # the name is given
