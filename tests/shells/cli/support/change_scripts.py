"""Commands that change something, as scripts, with the files that they read."""

from __future__ import annotations

import json

from tests.shells.api.conftest import HTTP
from tests.shells.api.support.day import TOMORROW
from tests.shells.api.support.job_stage import job

MONITORS_FILE = (
    '{"id": "{n}-a", "check": {"kind": "tcp", "host": "example.org", "port": 1}, "every": "1h", "paused": true}\n'
    '{"id": "{n}-a", "check": {"kind": "tcp", "host": "example.org", "port": 1}, "every": "1h", "paused": true}\n'
    '{"id": "{n}-b", "check": {"kind": "tcp", "host": "", "port": 0}, "every": "1ms"}\n'
    '{"check": {}}\n'
    "not json\n"
)
RECORDS_FILE = (
    '{"id": "{n}-1", "provider": "shop", "body": {"n": 1.0}}\n'
    '{"id": "{n}-2", "provider": "nothing"}\n'
    '{"id": "{n}-1", "provider": "shop", "body": {"n": 1.0}}\n'
    '{"id": "", "provider": "shop"}\n'
)
RECORDS_CSV = "id,provider,endpoint,body,active\n{n}-3,shop,/x,plain text,no\n{n}-4,shop,,,perhaps\n"
ALL_YAML = """
providers:
  {n}: {base_url: https://bank.example, rate: 5/1s, headers: {X-Key: "k-{n}"}}
batches:
  {n}: {start: 02:00, window: 6h, paused: true}
users:
  alice:
    channels:
      {n}: {kind: webhook, url: "https://hooks.example/{n}"}
    monitors:
      {n}: &one
        check: {kind: http, url: https://example.org/, auth: {kind: bearer, token: a-secret}}
        every: 1h
        paused: true
        alert: {channels: ["{n}"]}
      {n}-two:
        <<: *one
        alert: {channels: [nothing]}
"""
FILES = {
    "monitors.ndjson": MONITORS_FILE,
    "records.ndjson": RECORDS_FILE,
    "records.csv": RECORDS_CSV,
    "monitor.json": json.dumps({"check": {**HTTP["check"], "headers": {"X-Key": "k"}}, "every": "1h"}),
    "provider.json": '{"base_url": "https://bank.example", "headers": {"X-Key": "k"}}',
    "broken.json": '{"check":',
    "all.yaml": ALL_YAML,
    "less.yaml": "users: {alice: {channels: {ops: &c {kind: webhook, url: '***'}, spare: *c}}}\n",
    "broken.yaml": "users:\n  alice:\n    monitors:\n      {n}: {check: {kind: tcp, host: a, port: 0}, every: 1x}\n",
    "job.json": json.dumps(job(2)),
    "dear.json": json.dumps({"measurements": job(900)["measurements"]}),
}
SCRIPTS: dict[str, list[str]] = {
    "users": [
        "user add {n} --daily-credits 50",
        "user add {n}",
        "token list {n}",
        "user limit {n} --daily-credits 70",
        "user limit {n} --daily-credits -1",
        "user disable {n}",
        "user enable {n}",
        f"token new {{n}} --label {'x' * 101}",
        "token new {n} --scope everything",
        "token new {n} --scope worker:",
        "token new {n} --scope worker:nothing",
        "token new {n} --expires tomorrow",
        "token new {n} --expires 2020-01-01T00:00:00Z",
        "token new {n} --expires 2099-01-01T00:00:00",
        "token new {n} --scope read --expires 2099-01-01T00:00:00Z",
        "token new {n} --scope checker",
        "token new {n} --scope worker:shop --expires 2099-01-01T01:00:00+01:00",
        "token list {n}",
        "token new {n} --label phone",
        "token revoke nothing --user {n}",
        "token revoke {id} --user {n}",
        "user rm {n}",
        "user rm {n}",
        "user limit {n} 5",
        "token new {n}",
    ],
    "monitors": [
        "monitor set {n} --every 1h --user alice",
        "monitor set {n} --url https://example.org/ --every 1h --paused --tag a --user alice",
        "monitor set {n} --url https://example.org/ --every 1h --paused --tag a --user alice",
        "monitor set {n} --every 2h --timeout 5s --user alice",
        "monitor set {n} --every 1ms --timeout 0s --user alice",
        "monitor set {n} --tls example.org --user alice",
        "monitor set {n} --file monitor.json --user alice",
        "monitor set {n} --file monitor.json --user alice",
        "monitor set {n} --file broken.json --user alice",
        "monitor set {n} --cron 61 --replace --user alice",
        "monitor pause {n} --user alice",
        "monitor resume {n} --user alice",
        "monitor pause {n} --user nobody",
        "monitor rm {n} --user alice",
        "monitor rm {n} --user alice",
        "monitor pause {n} --user alice",
        "monitor import monitors.ndjson --user alice",
        "monitor import monitors.ndjson --user alice",
    ],
    "as code": [
        "apply -f all.yaml --dry-run",
        "apply -f all.yaml",
        "apply -f all.yaml --dry-run",
        "apply -f all.yaml",
        "monitor set {n} --every 2h --bearer another --user alice",
        "provider set {n} --rate 7/1s",
        "apply -f all.yaml --dry-run",
        "apply -f all.yaml",
        "apply -f broken.yaml",
        "apply -f nothing.yaml",
        "apply -f less.yaml --dry-run --prune",
        "apply -f less.yaml --prune",
        "apply -f less.yaml --prune --yes",
        "monitor rm {n} --user alice",
        "channel rm {n} --user alice",
        "batch rm {n}",
        "provider rm {n}",
    ],
    "channels": [
        "channel set {n} --user alice",
        "channel set {n} --url http://127.0.0.1:9/x --default --user alice",
        "channel set {n} --no-default --user alice",
        "channel set {n} --kind apprise --user alice",
        "channel set {n} --url mailto://a:b@127.0.0.1:9 --user alice",
        "channel set {n} --url syslog:// --user alice",
        "channel set {n} --kind pigeon --user alice",
        "channel test nothing --user alice",
        "channel rm {n} --user alice",
        "channel rm {n} --user alice",
        "monitor silence web --for 2h --reason moving --user alice",
        "monitor silence nothing --for 2h --user alice",
        "monitor silence web --for soon --user alice",
        "silence add a --for 1h --user alice",
        "silence add a --for 1s --user alice",
        "silence end nothing --user alice",
    ],
    "providers": [
        "provider set {n} --rate 5/1s",
        "provider set {n} --base-url https://bank.example --rate 5/1s --header X-Key:k --max-attempts 3",
        "provider set {n} --base-url https://bank.example --rate 5/1s",
        "provider set {n} --retry-base 2s --paused",
        "provider set {n} --rate often",
        "provider set {n} --file provider.json",
        "provider set {n} --file broken.json",
        "provider pause {n}",
        "provider resume {n}",
        "provider rm {n}",
        "provider rm {n}",
        "provider pause {n}",
        "provider rm shop",
    ],
    "batches": [
        "batch set {n} --window 2h --timezone Europe/Berlin",
        "batch set {n} --window 2h",
        "batch set {n} --start 25:00",
        "batch set {n} --replace",
        "batch pause {n}",
        "batch resume {n}",
        "batch pause {n}-x",
        "batch import records.ndjson --batch {n}",
        "batch import records.csv --batch {n}",
        f"batch plan {{n}} --date {TOMORROW}",
        f"batch plan {{n}} --date {TOMORROW}",
        f"batch show {TOMORROW} --batch {{n}}",
        f"batch rerun {TOMORROW} --batch {{n}} --state done",
        f"batch rerun {TOMORROW} --batch {{n}} --record {{n}}-1",
        f"batch rerun {TOMORROW} --batch {{n}} --record nothing",
        f"batch rerun {TOMORROW} --batch {{n}}",
        "batch rm {n}",
        "batch rm {n}",
    ],
    "dead letters": [
        "dead redrive past/{r}@2026-11-15",
        "dead redrive past/{r}@2026-11-15",
        "dead redrive past/x@2026-11-15",
    ],
    "discarded letters": ["dead discard past/{d}@2026-11-15", "dead discard past/{d}@2026-11-15"],
    "jobs": [
        "job submit job.json --user alice --dry-run",
        "job submit job.json --user alice --idempotency-key {n}",
        "job submit job.json --user alice --idempotency-key {n}",
        "job cancel {id}",
        "job cancel {id}",
        "job submit dear.json --user alice",
        "job submit dear.json --user alice --dry-run",
        "job submit broken.json --user alice",
        "job submit job.json --user nobody",
        "job cancel nothing",
    ],
    "accounts": [
        "account set {n} --concurrent 5",
        "account set {n} --concurrent 5",
        "account set {n} --daily-credits 9 --disabled",
        "account set {n} --concurrent -1",
        "account set {n} --replace",
        "key add {n} short --no-check",
        "key add {n} key-of-{n} --label l --no-check",
        "key add {n} key-of-{n} --no-check",
        "key add nothing key-of-{n} --no-check",
        "key list {n}",
        "key disable {n} {id}",
        "key enable {n} {id}",
        "key rm {n} {id}",
        "key rm {n} {id}",
    ],
}
VARYING = [
    (r"\d{4}-\d\d-\d\dT[\d:.]+Z", "TIME"),
    (r"pl_\w+", "TOKEN"),
    (r"\b[0-9a-f]{12}\b", "TOKEN_ID"),
    (r"\bs[0-9a-f]{12}\b", "SILENCE_ID"),
    (r'("(?:generation|number)":)\d+', r"\1N"),
    (r"(generation +)\d+", r"\1N"),
    (r"(refused#)\d+", r"\1N"),
]
