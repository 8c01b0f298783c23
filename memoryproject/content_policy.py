"""The policy of what a page may load, composed once for all answers that say nothing of it themselves."""

from functools import cache

from csp.constants import HEADER
from csp.middleware import CSPMiddleware
from csp.utils import build_policy
from django.conf import settings
from django.http import HttpRequest
from django.http.response import HttpResponseBase

_usual = cache(build_policy)


class ContentPolicyMiddleware(CSPMiddleware):
    """Adds the policy; one with a nonce, or that a view changed, is composed for its answer."""

    def process_response(self, request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
        """Add the policy to an answer."""
        is_own = hasattr(request, "_csp_nonce") or any(name.startswith("_csp") for name in vars(response))
        if is_own or settings.DEBUG or HEADER in response:
            return super().process_response(request, response)
        response[HEADER] = _usual()
        return response
