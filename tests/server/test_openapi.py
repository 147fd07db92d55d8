"""What the OpenAPI document promises is so: schemathesis looks for requests that show otherwise."""

from __future__ import annotations

import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import Case
from schemathesis.checks import not_a_server_error
from schemathesis.generation import GenerationMode
from schemathesis.specs.openapi import checks

from sam3_stream.config.preview import PreviewConfig
from tests.server.test_preview import Served, config

__all__ = ["config"]  # a fixture
FEW = settings(
    max_examples=12,
    deadline=None,
    database=None,
    derandomize=True,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
# Not response_schema_conformance: schemathesis 4.32 rewrites prefixItems to an array of items, and then refuses it.
CHECKS = [checks.status_code_conformance, checks.content_type_conformance]


@schemathesis.serializer("application/sdp", "application/trickle-ice-sdpfrag")
def sdp(_: object, value: object) -> bytes:
    return str(value).encode(errors="replace")


BUSY = (503, 504)  # the stream was just removed or restarted: what they are for


def test_no_request_breaks_a_promise_of_the_document(config: PreviewConfig, monkeypatch):
    monkeypatch.setattr("sam3_stream.server.acknowledged._TIMEOUT_S", 0.5)
    served = Served(config)
    try:
        schema = schemathesis.openapi.from_url(f"{served.url}/openapi.json").exclude(path_regex=r"/results$")
        operations = [each.ok() for each in schema.get_all_operations()]
        assert len(operations) > 15
        for operation in operations:
            takes_something = bool(operation.body) or any(operation.iter_parameters())
            for mode in GenerationMode if takes_something else [GenerationMode.POSITIVE]:

                @FEW
                @given(case=operation.as_strategy(mode))
                def check(case: Case) -> None:
                    response = case.call()
                    used = CHECKS if response.status_code in BUSY else [*CHECKS, not_a_server_error]
                    case.validate_response(response, checks=used)
                    if response.status_code >= 400 and case.operation.path != "/readyz":
                        assert response.headers["content-type"] == ["application/problem+json"]

                check()
    finally:
        served.close()
