"""The template on the emulator, as ``sam deploy`` puts it there: mappings, scheduler, state machine, functions."""

from __future__ import annotations

import io
import json
import time
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from paceline.adapters.aws.client import tables
from paceline.adapters.aws.client.connect import Clients
from paceline.adapters.aws.store import AwsStore
from paceline.steps.access import add_user
from tests.aws.support.ministack import Emulator, emulator, guarded_clients, plain_client

TEMPLATE = Path(__file__).parents[3] / "deploy" / "aws" / "template.yaml"
PREFIX = "deployed"


@dataclass
class Deployment:
    aws: Emulator
    clients: Clients
    host: str
    token: str
    secret: str
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
            with error:
                return error.code, error.read().decode()

    def ask(self, status: int, method: str, path: str, body: Any = None) -> Any:
        found, answer = self.rest(method, path, body)
        assert found == status, (method, path, found, answer)
        return answer

    def call(self, function: str) -> Any:
        answer = plain_client("lambda", self.aws.url).invoke(FunctionName=f"{PREFIX}-{function}", Payload=b"{}")
        told = json.loads(answer["Payload"].read())
        assert "FunctionError" not in answer, told
        return told

    def depths(self, *queues: str, delayed: bool = False) -> dict[str, int]:
        """Returns the number of messages that wait or are being handled, by queue."""
        parts = ("", "NotVisible", "Delayed") if delayed else ("", "NotVisible")
        names = [f"ApproximateNumberOfMessages{part}" for part in parts]
        found = {}
        for queue in queues:
            url = f"{self.aws.url}/000000000000/{PREFIX}-{queue}"
            told = self.clients.sqs.get_queue_attributes(QueueUrl=url, AttributeNames=names)["Attributes"]
            found[queue] = sum(int(count) for count in told.values())
        return found

    def hide_for(self, seconds: int, *queues: str) -> None:
        """How long a message that is being handled is hidden."""
        for queue in queues:
            url = f"{self.aws.url}/000000000000/{PREFIX}-{queue}"
            self.clients.sqs.set_queue_attributes(QueueUrl=url, Attributes={"VisibilityTimeout": str(seconds)})

    def reschedule(self, rates: Mapping[str, str]) -> None:
        """The clocks of these functions, as an operator sets them; those of the others stand still."""
        schedules = plain_client("scheduler", self.aws.url)
        for one in schedules.list_schedules()["Schedules"]:
            told = schedules.get_schedule(Name=one["Name"])
            function = str(told["Target"]["Arn"]).rpartition(f":{PREFIX}-")[2]
            kept = {name: told[name] for name in ("Name", "FlexibleTimeWindow", "Target")}
            rate = rates.get(function)
            schedules.update_schedule(
                **kept,
                ScheduleExpression=rate or told["ScheduleExpression"],
                State="ENABLED" if rate else "DISABLED",
            )

    def processes(self, function: str) -> list[int]:
        """The processes that the emulator runs this function in."""
        marks = {f"GATEWAY_PORT={self.aws.url.rpartition(':')[2]}", f"AWS_LAMBDA_FUNCTION_NAME={function}"}
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):  # it has ended meanwhile
                if marks <= set((folder / "environ").read_text(errors="replace").split("\0")):
                    found.append(int(folder.name))
        return found

    def executions(self) -> list[dict[str, Any]]:
        """Of the planner, with what came of them."""
        machines = plain_client("stepfunctions", self.aws.url)
        found = machines.list_executions(stateMachineArn=self.outputs["PlannerArn"])["executions"]
        return [machines.describe_execution(executionArn=one["executionArn"]) for one in found]


@contextmanager
def deployed(
    more: Mapping[str, str] | None = None,
    *,
    app: str = "ministack.app:app",
    code: bytes | None = None,
    now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
) -> Iterator[Deployment]:
    """``more``: further environment of the emulator, and so of the functions. ``code``: theirs, zipped.

    Without it they run what this process has installed.
    """
    with emulator(more, app=app) as aws:
        outputs = _deploy(aws, code or _nothing())
        api = plain_client("apigatewayv2", aws.url).get_apis()["Items"][0]
        secrets = plain_client("secretsmanager", aws.url)
        secret = secrets.get_secret_value(SecretId=f"{PREFIX}-secret-key")["SecretString"]
        with guarded_clients(aws.url) as clients:
            assert tables.create(clients, PREFIX).created == (), "the template makes all that init makes"
            with closing(AwsStore(PREFIX, clients=clients)) as store:
                _, made = add_user(
                    store,
                    "boss",
                    role="admin",
                    daily_credits=0,
                    token_bytes=bytes(32),
                    secret_key=sha256(secret.encode()).digest(),
                    now_ms=now_ms(),
                )
            host = api["ApiEndpoint"].removeprefix("http://")
            yield Deployment(aws, clients, host, made.secret, secret, outputs)


def _nothing() -> bytes:
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w") as archive:
        archive.writestr("here", "the emulator's own interpreter has the package")
    return written.getvalue()


def _deploy(aws: Emulator, code: bytes) -> dict[str, str]:
    s3, formation = plain_client("s3", aws.url), plain_client("cloudformation", aws.url)
    s3.create_bucket(Bucket="code")
    s3.put_object(Bucket="code", Key="code.zip", Body=code)
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
        assert time.monotonic() < end_s, "the condition did not come true in time"
        time.sleep(0.2)
