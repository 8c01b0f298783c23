"""`make trust` detects problems, tested with servers that leak, fail, or do neither."""

import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest

from drill.provider import Provider
from drill.site import Site
from drill.trust import contract, fuzz, isolation, page
from drill.trust.__main__ import main
from drill.trust.calls import Operation, call, least, text_of
from drill.trust.isolation import FOREIGN, OWN, UNKNOWN, ForeignCaller, Upstream
from sessions_app.models import Application, Message, UserProfile
from sessions_app.models.application import DEFAULT
from sessions_app.transcript.append import NewMessage, append
from tests.support.processes import database_url
from tests.support.streams import note, shard
from tests.support.transcript import talk

READ = Operation("GET", "/api/v1/moments/{key}", {"user_id": {"type": "string"}})
WRITE = Operation("POST", "/api/v1/moments/build", body={"$ref": "#/components/schemas/Build"})
SCHEMAS: dict[str, Any] = {
    "Build": {
        "type": "object",
        "required": ["session_id", "lag"],
        "properties": {
            "session_id": {"type": "string"},
            "lag": {"type": "integer", "minimum": 0, "maximum": 9},
            "user_id": {"type": "string"},
        },
    }
}
ADA = ForeignCaller("key", {"user_id": "ada"}, is_bound=False)

Answer = Callable[[str], tuple[int, str]]  # from a path to a status and a body


@contextmanager
def answering(answer: Answer) -> Iterator[Site]:
    """A site that isn't started. Its requests go to a server that gives these answers."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            status, text = answer(self.path)
            self.send_response(status)
            self.end_headers()
            self.wfile.write(text.encode())

        def do_POST(self) -> None:
            self.do_GET()

        def log_message(self, *_: Any) -> None:
            """Log nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    site = Site(Provider(), database_url())
    site.port = server.server_address[1]
    try:
        yield site
    finally:
        server.shutdown()
        server.server_close()
        shutil.rmtree(site.folder)


def test_help_is_printed_without_starting_the_drill(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    assert "MINUTES" in capsys.readouterr().out


@pytest.mark.django_db(transaction=True)
class TestIsolation:
    @pytest.mark.slow
    def test_an_import_of_the_same_names_into_another_application_changes_nothing(self, bo: UserProfile) -> None:
        Application.objects.create(name="second")
        append(bo, "bo-own", [NewMessage("user", "Hello.", external_id="i1")])
        with answering(lambda path: (200, "")) as site:
            assert isolation.imported(site, "second", bo.pk).leaks == []
        assert Message.objects.filter(external_id="i1").count() == 2

    def probed(self, bo: UserProfile, answer: Answer) -> isolation.ProbeReport:
        with answering(answer) as site:
            return isolation.probe(site, [READ, WRITE], SCHEMAS, [ADA], {"key": ["bos-key"]}, bo.pk)

    def test_a_site_that_answers_404_to_everything_leaks_nothing(self, bo: UserProfile) -> None:
        found = self.probed(bo, lambda path: (404, "{}"))
        assert found.leaks == []
        assert found.probes == 5  # two for a moment, one for a build, two MCP URLs

    def test_a_response_with_text_of_another_person_is_a_leak(self, bo: UserProfile) -> None:
        found = self.probed(bo, lambda path: (200, FOREIGN if "bos-key" in path else "{}"))
        assert len(found.leaks) == 1 and "Bo's words" in found.leaks[0]

    def test_a_response_that_distinguishes_foreign_from_unknown_ids_is_a_leak(self, bo: UserProfile) -> None:
        found = self.probed(bo, lambda path: (404 if UNKNOWN in path else 403, "{}"))
        assert len(found.leaks) == 1 and "403 for Bo's" in found.leaks[0]

    def test_a_change_of_rows_of_another_person_is_a_leak(self, bo: UserProfile) -> None:
        session = talk(bo, 2)

        def change(path: str) -> tuple[int, str]:
            session.messages.filter(sequence=0).update(content="Changed.")
            return 404, "{}"

        assert self.probed(bo, change).leaks == ["Something of Bo's was changed."]

    def test_rows_visible_to_unfiltered_queries_are_a_leak(self, ada: UserProfile, bo: UserProfile) -> None:
        append(bo, "s1", [NewMessage("user", FOREIGN)])
        with answering(lambda path: (404, "{}")) as site:
            found = isolation.without_filters(site, bo.pk)
            assert found.leaks == [] and found.probes > 2  # as Ada, and without a person
            note(shard("lessons"), FOREIGN)
            found += isolation.without_filters(site, bo.pk)
        [as_ada, as_nobody] = found.leaks
        assert "moments_app_memoryatom" in as_ada and f"as {ada.pk} of {DEFAULT}" in as_ada
        assert f"as nobody of {DEFAULT}" in as_nobody

    def test_the_text_of_an_export_is_read_from_its_zip(self) -> None:
        file = BytesIO()
        with ZipFile(file, "w") as archive:
            archive.writestr("messages.jsonl", FOREIGN)
        assert (text_of(file.getvalue()), text_of(b"\xff{}")) == (FOREIGN, "\ufffd{}")

    def test_a_model_call_with_text_of_two_people_is_a_leak(self) -> None:
        upstream = Upstream()
        upstream(f"{OWN} alone")
        assert upstream.leaks == []
        upstream(f"{OWN} and {FOREIGN}")
        assert len(upstream.leaks) == 1


@pytest.mark.django_db(transaction=True)
class TestFuzz:
    def fuzzed(self, answer: Answer) -> fuzz.FuzzReport:
        with answering(answer) as site:
            return fuzz.fuzz(site, [READ, WRITE], SCHEMAS, ["key", ""], {"user_id": ["ada"]}, requests=30, number=1)

    @pytest.mark.slow
    def test_the_requested_number_of_requests_is_sent_across_operations(self, transactional_db: None) -> None:
        asked: list[str] = []

        def refuse(path: str) -> tuple[int, str]:
            asked.append(path)
            return 400, "{}"

        found = self.fuzzed(refuse)
        assert found.requests == len(asked) == 30
        assert found.failures == []
        assert sum(path.startswith("/api/v1/moments/build") for path in asked) >= 10

    @pytest.mark.slow
    def test_a_5xx_response_is_a_failure(self, transactional_db: None) -> None:
        found = self.fuzzed(lambda path: (500 if path == "/api/v1/moments/build" else 404, "{}"))
        assert len(found.failures) == 10
        assert found.failures[0].startswith("500: POST /api/v1/moments/build")

    def test_an_internal_error_over_mcp_is_a_failure(self, transactional_db: None) -> None:
        found = self.fuzzed(lambda path: (200, '{"code":-32603}'))
        assert len(found.failures) == 10


def test_the_minimal_value_of_a_schema_has_its_required_fields() -> None:
    assert least({"$ref": "#/components/schemas/Build"}, SCHEMAS) == {"session_id": "text", "lag": 0}
    assert least({"anyOf": [{"type": "null"}, {"type": "string"}]}, {}) == "text"


def test_ids_in_a_path_are_escaped() -> None:
    assert call(READ, {"key": "../../x?y"}, {}, None).path == "/api/v1/moments/..%2F..%2Fx%3Fy"


def test_the_figures_are_replaced_between_their_marks_only(tmp_path: Path) -> None:
    copy = tmp_path / "trust.md"
    whole = page.PAGE.read_text()
    copy.write_text(whole)
    page.put(page.section("A machine.", [("requests", "3", "0 failed")], "", ["a remark"]), copy)
    text = copy.read_text()
    assert "A machine.\n\n| attack" in text and "- a remark" in text
    before, after = whole.partition(page.BEGIN)[0], whole.partition(page.END)[2]
    assert text.startswith(before + page.BEGIN) and text.endswith(page.END + after)
    copy.write_text("A page without figures.")
    with pytest.raises(ValueError, match="no marks"):
        page.put("x", copy)


class TestContract:
    REPORT: dict[str, Any] = {
        "failures": [],
        "errors": [],
        "test_cases": {"generated": 1234},
        "operations": {"tested": 47},
    }

    def test_responses_that_match_the_schema_become_a_figure(self) -> None:
        held = contract.parse_report("user key", self.REPORT)
        what = "requests checked against the OpenAPI schema, user key"
        row = (what, "1,234 to 47 operations", "0 × 5xx, 0 mismatches")
        assert (held.figure, held.remarks) == (row, [])

    def test_mismatches_are_counted_by_kind_and_listed(self) -> None:
        failures = [
            {"type": "ServerError", "operations": ["GET /a"]},
            {"type": "UndefinedStatusCode", "operations": ["GET /a", "POST /b"]},
        ]
        held = contract.parse_report("all", self.REPORT | {"failures": failures, "errors": ["none"]})
        assert held.figure[2] == "1 × 5xx, 2 mismatches"
        assert held.remarks == ["all, ServerError: GET /a", "all, UndefinedStatusCode: GET /a, POST /b", 'all: "none"']
