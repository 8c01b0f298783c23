"""What an engine's answer has to be: a model of it, and the JSON Schema that endpoints are given."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Generic, TypeVar

from pydantic import BaseModel

# The parts of JSON Schema that every endpoint with strict structured outputs takes. Some refuse a schema with bounds of
# length or defaults; those are held by validating the answer.
_KEYWORDS = {"$defs", "$ref", "type", "description", "properties", "items"}

Answer = TypeVar("Answer", bound=BaseModel)


def strict_schema(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a JSON Schema as strict structured outputs want it: every property required, and no other allowed."""
    kept = {keyword: value for keyword, value in schema.items() if keyword in _KEYWORDS}
    for keyword in kept.keys() & {"properties", "$defs"}:
        kept[keyword] = {name: strict_schema(part) for name, part in kept[keyword].items()}
    if "items" in kept:
        kept["items"] = strict_schema(kept["items"])
    if "properties" in kept:
        kept.pop("description", None)  # the docstring of the class, which is not for models
        kept |= {"required": list(kept["properties"]), "additionalProperties": False}
    return kept


@dataclass(frozen=True)
class Shape(Generic[Answer]):
    """An answer that a model is asked for.

    Args:
        purpose: of the call, as it is recorded.
        model: that the answer has to validate as.
        problem: returns what else is wrong with an answer, in words that don't quote it; blank when nothing is.
        asked: the model that is asked for, where more than that is taken; None is `model`.
    """

    purpose: str
    model: type[Answer]
    problem: Callable[[Answer], str]
    asked: type[BaseModel] | None = None

    @cached_property
    def schema(self) -> dict[str, Any]:
        """The JSON Schema, as strict structured outputs want it."""
        return strict_schema((self.asked or self.model).model_json_schema())

    @property
    def as_text(self) -> str:
        """The shape in words, for endpoints that take no schema as a response format."""
        return f"The answer's shape, as JSON Schema: {json.dumps(self.schema)}"
