"""The template on the emulator, with its own mappings, scheduler and state machine: from REST to the outcome."""

from __future__ import annotations

import io
import json
import time
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from paceline.adapters.aws import tables
from paceline.adapters.aws.store import AwsStore
from paceline.steps.access import add_user
from tests.aws.lambda_stage import Target
from tests.aws.ministack import Emulator, emulator, guarded_clients, plain_client
from tests.aws.test_lambda_batches import today

pytestmark = [pytest.mark.aws, pytest.mark.slow]
TEMPLATE = Path(__file__).parents[2] / "deploy" / "aws" / "template.yaml"
PREFIX = "deployed"


@dataclass
class Deployment:
    aws: Emulator
    host: str
    token: str
    outputs: dict[str, str]

    def rest(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """Through API Gateway."""
        headers = {"host": self.host, "authorization": f"Bearer {self.token}", "content-type": "application/json"}
        text = json.dumps(body).encode() if body is not None else None
        request = urllib.request.Request(f"{self.aws.url}{path}", data=text, method=method, headers=headers)  # noqa: S310  loopback
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310  loopback
                read = answer.read()
                return answer.status, json.loads(read) if read else None
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def call(self, function: str) -> Any:
        answer = plain_client("lambda", self.aws.url).invoke(FunctionName=f"{PREFIX}-{function}", Payload=b"{}")
        told = json.loads(answer["Payload"].read())
        assert "FunctionError" not in answer, told
        return told


@pytest.fixture(scope="module")
def deployment() -> Iterator[Deployment]:
    with ExitStack() as stack:
        aws = stack.enter_context(emulator())
        outputs = deploy(aws)
        api = plain_client("apigatewayv2", aws.url).get_apis()["Items"][0]
        secrets = plain_client("secretsmanager", aws.url)
        secret = secrets.get_secret_value(SecretId=f"{PREFIX}-secret-key")["SecretString"]
        clients = stack.enter_context(guarded_clients(aws.url))
        assert tables.create(clients, PREFIX).created == (), "the template makes all that init makes"
        with closing(AwsStore(PREFIX, clients=clients)) as store:
            _, made = add_user(
                store,
                "boss",
                role="admin",
                daily_credits=0,
                token_bytes=bytes(32),
                secret_key=sha256(secret.encode()).digest(),
                now_ms=time.time_ns() // 1_000_000,
            )
        yield Deployment(aws, api["ApiEndpoint"].removeprefix("http://"), made.secret, outputs)


def deploy(aws: Emulator) -> dict[str, str]:
    """As ``sam deploy`` does, but that the functions' code is what this process has installed."""
    s3, formation = plain_client("s3", aws.url), plain_client("cloudformation", aws.url)
    s3.create_bucket(Bucket="code")
    code = io.BytesIO()
    with zipfile.ZipFile(code, "w") as archive:
        archive.writestr("here", "the emulator's own interpreter has the package")
    s3.put_object(Bucket="code", Key="code.zip", Body=code.getvalue())
    template = TEMPLATE.read_text().replace("CodeUri: build", "CodeUri: s3://code/code.zip")
    s3.put_object(Bucket="code", Key="template.yaml", Body=template.encode())
    given = {"Prefix": PREFIX, "OutboundAllow": "127.0.0.0/8"}
    formation.create_stack(
        StackName=PREFIX,
        TemplateURL=f"{aws.url}/code/template.yaml",
        Capabilities=["CAPABILITY_IAM", "CAPABILITY_AUTO_EXPAND"],
        Parameters=[{"ParameterKey": name, "ParameterValue": value} for name, value in given.items()],
    )
    wait(lambda: not _stack(formation)["StackStatus"].endswith("IN_PROGRESS"), within_s=60)
    stack = _stack(formation)
    assert stack["StackStatus"] == "CREATE_COMPLETE", stack.get("StackStatusReason")
    return {one["OutputKey"]: one["OutputValue"] for one in stack["Outputs"]}


def _stack(formation: Any) -> dict[str, Any]:
    stack: dict[str, Any] = formation.describe_stacks(StackName=PREFIX)["Stacks"][0]
    return stack


def wait(holds: Callable[[], object], *, within_s: float) -> None:
    end_s = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < end_s, "it has not come to that in time"
        time.sleep(0.2)


def test_from_rest_over_streams_and_queues_to_the_outcome(deployment: Deployment) -> None:
    with closing(Target()) as target:
        path = "/v1/users/me/monitors/home"
        spec = {"check": {"kind": "http", "url": f"{target.url}/home"}, "every": "3s"}
        status, answer = deployment.rest("PUT", path, spec)
        assert status == 201, answer
        wait(lambda: len(target.asked) >= 3, within_s=120)
        _, page = deployment.rest("GET", f"{path}/runs")
        assert sum(run["state"] == "ok" for run in page["items"]) >= 2
        assert deployment.rest("DELETE", path)[0] == 204
        asked = len(target.asked)
        time.sleep(5)
        assert len(target.asked) <= asked + 1, "one may have been out when it was deleted"


def test_a_day_is_planned_by_the_state_machine_and_carried_out(deployment: Deployment) -> None:
    with closing(Target()) as target:
        starts = today(61)
        for provider in ("p0", "p1"):
            body = {"kind": "http", "base_url": target.url}
            assert deployment.rest("PUT", f"/v1/providers/{provider}", body)[0] == 201
        spec = {"start": starts.strftime("%H:%M"), "window": "1m", "missed": "once"}
        assert deployment.rest("PUT", "/v1/batches/daily", spec)[0] == 201
        items = [{"id": f"r{n}", "provider": f"p{n % 2}", "endpoint": f"/r{n}", "body": {}} for n in range(6)]
        assert deployment.rest("PUT", "/v1/batches/daily/records", {"items": items})[0] == 200
        machines = plain_client("stepfunctions", deployment.aws.url)

        def executions() -> list[dict[str, Any]]:
            found: list[dict[str, Any]] = machines.list_executions(stateMachineArn=deployment.outputs["PlannerArn"])[
                "executions"
            ]
            return found

        wait(lambda: any(one["status"] == "SUCCEEDED" for one in executions()), within_s=150)
        (execution,) = executions()
        assert execution["name"] == f"daily-{starts.date().isoformat()}"
        told = machines.describe_execution(executionArn=execution["executionArn"])
        assert json.loads(told["output"]) == {"enqueued": 6}
        assert deployment.call("plan-start")["started"] == [], "its name is taken, and its day is planned"
        wait(lambda: len(target.asked) == 6, within_s=150)
        assert sorted(target.asked) == [f"/r{n}" for n in range(6)]
