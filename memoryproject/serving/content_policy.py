"""The content security policy. It is built once for all responses that don't change it."""

from functools import cache

from csp.constants import HEADER
from csp.middleware import CSPMiddleware
from csp.utils import build_policy
from django.conf import settings
from django.http import HttpRequest
from django.http.response import HttpResponseBase

_usual = cache(build_policy)


class ContentPolicyMiddleware(CSPMiddleware):
    """Adds the policy. A policy with a nonce, or that a view changed, is built for its response."""

    def process_response(self, request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
        is_own = hasattr(request, "_csp_nonce") or any(name.startswith("_csp") for name in vars(response))
        if is_own or settings.DEBUG or HEADER in response:
            return super().process_response(request, response)
        response[HEADER] = _usual()
        return response
