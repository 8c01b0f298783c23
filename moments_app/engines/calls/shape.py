"""The required shape of an engine's answer: a pydantic model, and the JSON Schema for endpoints."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Generic, TypeVar

from pydantic import BaseModel

# JSON Schema keywords accepted by every endpoint with strict structured outputs. Some endpoints reject length limits or
# defaults, so these are enforced when the answer is validated.
_KEYWORDS = {"$defs", "$ref", "type", "description", "properties", "items"}

Answer = TypeVar("Answer", bound=BaseModel)


def strict_schema(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a JSON Schema for strict structured outputs: every property is required, and no other is allowed."""
    kept = {keyword: value for keyword, value in schema.items() if keyword in _KEYWORDS}
    for keyword in kept.keys() & {"properties", "$defs"}:
        kept[keyword] = {name: strict_schema(part) for name, part in kept[keyword].items()}
    if "items" in kept:
        kept["items"] = strict_schema(kept["items"])
    if "properties" in kept:
        kept.pop("description", None)  # the docstring of the class, which models don't need
        kept |= {"required": list(kept["properties"]), "additionalProperties": False}
    return kept


@dataclass(frozen=True)
class Shape(Generic[Answer]):
    """The required shape of a model's answer.

    Args:
        purpose: The recorded purpose of the call.
        model: Validates the answer.
        problem: Returns a problem that `model` can't detect, without quoting the answer, or a blank string.
        asked: The model of the requested schema, if it is stricter than `model`.
    """

    purpose: str
    model: type[Answer]
    problem: Callable[[Answer], str]
    asked: type[BaseModel] | None = None

    @cached_property
    def schema(self) -> dict[str, Any]:
        return strict_schema((self.asked or self.model).model_json_schema())

    @property
    def as_text(self) -> str:
        """The shape in words, for endpoints that don't accept a schema as a response format."""
        return f"The answer's shape, as JSON Schema: {json.dumps(self.schema)}"
