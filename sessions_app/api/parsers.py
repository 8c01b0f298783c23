"""The parser of request bodies."""

import json
import math
from collections.abc import Mapping
from typing import Any, NoReturn

from rest_framework.exceptions import ParseError
from rest_framework.parsers import BaseParser


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ValueError("A number in the JSON is too large.")
    return number


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not valid JSON.")


class StrictJSONParser(BaseParser):
    """Parses JSON in UTF-8 as RFC 8259 defines it: no NaN, no other charset, no number outside the range of a double.

    JSON that is nested too deeply is an error, not a crash.
    """

    media_type = "application/json"

    def parse(self, stream: Any, media_type: str | None = None, parser_context: Mapping[str, Any] | None = None) -> Any:
        """Return the parsed body.

        Raises:
            ParseError: Becomes a 400 response.
        """
        try:
            return json.loads(stream.read().decode(), parse_constant=_refuse_constant, parse_float=_finite)
        except RecursionError as error:
            raise ParseError("The JSON is nested too deeply.") from error
        except ValueError as error:
            raise ParseError("The body is not valid JSON in UTF-8.") from error
