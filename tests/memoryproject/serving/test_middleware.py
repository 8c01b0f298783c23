"""The content policy of responses."""

from django.http import HttpResponse
from django.test import RequestFactory

from memoryproject.serving.middleware import ContentPolicyMiddleware


def test_a_response_has_the_default_content_policy_unless_it_has_its_own() -> None:
    def policy(answer: HttpResponse, **attributes: str) -> str:
        request = RequestFactory().get("/")
        middleware = ContentPolicyMiddleware(lambda _: answer)
        for name, value in attributes.items():
            setattr(request, name, value)
        return str(middleware.process_response(request, answer)["Content-Security-Policy"])

    own = HttpResponse()
    own._csp_update = {"img-src": ["https://example.org"]}  # type: ignore[attr-defined]
    assert policy(HttpResponse()) == policy(HttpResponse()) != policy(own)
    assert "example.org" in policy(own) and "nonce-abc" in policy(HttpResponse(), _csp_nonce="abc")
    assert "default-src 'none'" in policy(HttpResponse())
    assert "nonce" not in policy(HttpResponse())
