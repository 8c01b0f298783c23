"""The context over REST."""

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import status
from rest_framework.exceptions import APIException, NotFound
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from moments_app.context.assemble import BudgetTooSmall, Envelope
from moments_app.context.serve import serve_context
from moments_app.interfaces.api import serializers as shapes
from sessions_app.api.person import user_id_of
from sessions_app.api.requests import parsed, query


class BudgetTooSmallError(APIException):
    """The budget holds not even policy and query."""

    status_code = status.HTTP_422_UNPROCESSABLE_ENTITY
    default_code = "budget_too_small"


class ContextView(APIView):
    """What a model should have before it answers."""

    scopes = {"POST": "read"}

    @extend_schema(parameters=[shapes.ContextInput], responses=shapes.ContextAnswer, operation_id="memory_context_get")
    def get(self, request: Request) -> Response:
        """Memory for the next call of a model: bounded, in layers, each line with its address."""
        return self._answer(request, query(shapes.ContextInput, request).validated_data)

    @extend_schema(request=shapes.ContextInput, responses=shapes.ContextAnswer, operation_id="memory_context_post")
    def post(self, request: Request) -> Response:
        """The same, for queries too long for an address."""
        return self._answer(request, parsed(shapes.ContextInput, request.data).validated_data)

    def _answer(self, request: Request, asked: dict[str, Any]) -> Response:
        return Response(shapes.context_data(served(user_id_of(request, asked.get("user_id")), asked)))


def served(user_id: str | None, asked: dict[str, Any]) -> Envelope:
    """The context that a valid request asks for, noted as served.

    Args:
        user_id: whose memory it is; None for nobody.
        asked: of `ContextInput`.

    Raises:
        NotFound: this person has no such session.
        BudgetTooSmallError: policy and query alone exceed the budget.
    """
    try:
        envelope = serve_context(user_id, asked["session_id"], shapes.wanted(asked), retrieval=asked["retrieval"])
    except BudgetTooSmall as error:
        raise BudgetTooSmallError(str(error)) from error
    if envelope is None:
        raise NotFound
    return envelope
