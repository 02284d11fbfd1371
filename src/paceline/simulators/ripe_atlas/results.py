"""Results in the formats of real probes, computed from the seed, the measurement, the probe and the round."""

from __future__ import annotations

import base64
import random
import struct
from collections.abc import Callable, Iterator
from typing import Any

from paceline.simulators.ripe_atlas.measurements import SimulatedMeasurement, address_of
from paceline.simulators.ripe_atlas.probes import Probe

FIRMWARE = 5_080
NAMES = {
    "ping": "Ping",
    "traceroute": "Traceroute",
    "dns": "Tdig",
    "sslcert": "SSLCert",
    "ntp": "Ntp",
    "http": "HTTPGet",
}
ROUNDS_MAX = 100_000
NTP_EPOCH_S = 2_208_988_800
_RECORD_TYPES = {"A": 1, "NS": 2, "CNAME": 5, "SOA": 6, "PTR": 12, "MX": 15, "TXT": 16, "AAAA": 28, "ANY": 255}
# A certificate that can only be read: nothing trusts it.
CERTIFICATE = """-----BEGIN CERTIFICATE-----
MIIBGDCBwKADAgECAgIQkjAKBggqhkjOPQQDAjAWMRQwEgYDVQQDDAtleGFtcGxl
Lm9yZzAeFw0yNjAxMDEwMDAwMDBaFw0zNjAxMDEwMDAwMDBaMBYxFDASBgNVBAMM
C2V4YW1wbGUub3JnMFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEiYUnkU7HIzZ4
KDvkkA5aZcSYgS52lZ6mm9kSNOlwgm919syyC77inLOvrQP+aUwPVGUdSfAi5QaI
3RhpSlUOfzAKBggqhkjOPQQDAgNHADBEAiBcuTLvkWiv0sfA3IN0yyKW5z0woIGB
pOrGwEN/46wG/AIgNh1e+y8zeHTcOkD+CyH2xROKzuZZBYTOqb3pIsOrlxo=
-----END CERTIFICATE-----
"""


def results_of(
    measurement: SimulatedMeasurement,
    probes: dict[int, Probe],
    *,
    seed: int,
    from_ms: int,
    until_ms: int,
    only: set[int] | None,
) -> Iterator[dict[str, Any]]:
    """Yield the results from ``from_ms`` to ``until_ms``, both included, oldest round first."""
    finish_ms = measurement.finish_ms
    last_ms = until_ms if finish_ms is None else min(until_ms, finish_ms)
    step_ms = measurement.interval_s * 1_000
    wanted = [one for one in measurement.deliveries if only is None or one.probe in only]
    rounds = 1 if measurement.is_oneoff else max(0, (last_ms - measurement.start_ms) // step_ms + 1)
    first = 0 if measurement.is_oneoff else max(0, (from_ms - measurement.start_ms) // step_ms - 1)
    for number in range(first, min(rounds, first + ROUNDS_MAX)):
        for one in wanted:
            at_ms = measurement.start_ms + number * step_ms + one.after_ms
            if from_ms <= at_ms <= last_ms:
                chance = random.Random(f"{seed}/{measurement.id}/{one.probe}/{number}")  # noqa: S311 - a model
                yield _result(measurement, probes[one.probe], at_ms // 1_000, chance)


def latest_of(
    measurement: SimulatedMeasurement,
    probes: dict[int, Probe],
    *,
    seed: int,
    until_ms: int,
    only: set[int] | None,
    versions: int = 1,
) -> list[dict[str, Any]]:
    """Return the newest results of each probe."""
    back_ms = (versions + 1) * measurement.interval_s * 1_000
    finish_ms = measurement.finish_ms
    last_ms = until_ms if finish_ms is None else min(until_ms, finish_ms)
    from_ms = measurement.start_ms if measurement.is_oneoff else last_ms - back_ms
    by_probe: dict[int, list[dict[str, Any]]] = {}
    for result in results_of(measurement, probes, seed=seed, from_ms=from_ms, until_ms=until_ms, only=only):
        by_probe.setdefault(result["prb_id"], []).append(result)
    return [result for probe in sorted(by_probe) for result in by_probe[probe][-versions:]]


def _result(measurement: SimulatedMeasurement, probe: Probe, at_s: int, chance: random.Random) -> dict[str, Any]:
    af = measurement.definition["af"]
    source = probe.address_v4 if af == 4 else probe.address_v6
    common = {
        "fw": FIRMWARE,
        "mver": "2.6.4",
        "lts": chance.randrange(5, 60),
        "af": af,
        "dst_name": measurement.target,
        "dst_addr": address_of(measurement),
        "src_addr": source,
        "msm_id": measurement.id,
        "prb_id": probe.id,
        "timestamp": at_s,
        "msm_name": NAMES[measurement.type],
        "from": source,
        "type": measurement.type,
        "group_id": measurement.group_id or measurement.id,
        "step": None if measurement.is_oneoff else measurement.interval_s,
        "stored_timestamp": at_s,
    }
    return common | _SHAPES[measurement.type](measurement.definition, common, chance)


def _ping(definition: dict[str, Any], _common: dict[str, Any], chance: random.Random) -> dict[str, Any]:
    sent = definition.get("packets", 3)
    base_ms = chance.uniform(2, 180)
    packets: list[dict[str, Any]] = [
        {"x": "*"} if chance.random() < 0.02 else {"rtt": round(base_ms + chance.expovariate(0.5), 6)}
        for _ in range(sent)
    ]
    times = [packet["rtt"] for packet in packets if "rtt" in packet]
    return {
        "proto": "ICMP",
        "ttl": 64 - chance.randrange(5, 20),
        "size": definition.get("size", 48),
        "result": packets,
        "dup": 0,
        "rcvd": len(times),
        "sent": sent,
        "min": min(times, default=-1),
        "max": max(times, default=-1),
        "avg": round(sum(times) / len(times), 6) if times else -1,
    }


def _traceroute(definition: dict[str, Any], common: dict[str, Any], chance: random.Random) -> dict[str, Any]:
    first, packets = definition.get("first_hop", 1), definition.get("packets", 3)
    size = definition.get("size", 48)
    last = min(first + chance.randrange(4, 14), definition.get("max_hops", 32))
    hops = []
    for hop in range(first, last + 1):
        silent = hop != last and chance.random() < 0.1
        host = common["dst_addr"] if hop == last else f"203.0.113.{chance.randrange(1, 255)}"
        replies: list[dict[str, Any]] = [
            {"x": "*"} if silent else {"from": host, "ttl": 255 - hop, "size": size + 20, "rtt": _rtt(hop, chance)}
            for _ in range(packets)
        ]
        hops.append({"hop": hop, "result": replies})
    return {
        "proto": definition["protocol"],
        "size": size,
        "paris_id": chance.randrange(1, 17) if definition.get("paris", 16) else 0,
        "endtime": common["timestamp"] + chance.randrange(1, 5),
        "destination_ip_responded": True,
        "result": hops,
    }


def _rtt(hop: int, chance: random.Random) -> float:
    return round(hop * 3 + chance.expovariate(0.3), 3)


def _dns(definition: dict[str, Any], common: dict[str, Any], chance: random.Random) -> dict[str, Any]:
    buffer, number = _dns_answer(definition, chance)
    result = {
        "rt": round(chance.uniform(1, 120), 3),
        "size": len(buffer),
        "abuf": base64.b64encode(buffer).decode(),
        "ID": number,
        "QDCOUNT": 1,
        "ANCOUNT": 0,
        "NSCOUNT": 0,
        "ARCOUNT": 0,
    }
    protocol = definition.get("protocol", "UDP")
    if not definition.get("use_probe_resolver"):
        return {"proto": protocol, "result": result}
    answer = {"subid": 1, "submax": 1, "dst_addr": "192.0.2.53", "dst_port": "53", "af": common["af"]}
    answer |= {"proto": protocol, "time": common["timestamp"], "lts": common["lts"], "result": result}
    return {"proto": protocol, "resultset": [answer]}


def _dns_answer(definition: dict[str, Any], chance: random.Random) -> tuple[bytes, int]:
    """Return a DNS message with the answer NOERROR and no records, and its number."""
    number = chance.randrange(65_536)
    labels = [label.encode("idna")[:63] for label in definition["query_argument"].rstrip(".").split(".") if label]
    name = b"".join(bytes([len(label)]) + label for label in labels) + b"\0"
    record = _RECORD_TYPES.get(str(definition["query_type"]).upper(), 255)
    class_ = 3 if definition["query_class"] == "CHAOS" else 1
    return struct.pack("!6H", number, 0x8180, 1, 0, 0, 0) + name + struct.pack("!2H", record, class_), number


def _sslcert(definition: dict[str, Any], _common: dict[str, Any], chance: random.Random) -> dict[str, Any]:
    connected_ms = chance.uniform(2, 90)
    return {
        "method": "TLS",
        "ver": "1.2",
        "dst_port": str(definition.get("port", 443)),
        "ttr": round(chance.uniform(1, 40), 6),
        "ttc": round(connected_ms, 6),
        "rt": round(connected_ms * 2 + 1, 6),
        "server_cipher": "0xc02f",
        "cert": [CERTIFICATE],
    }


def _ntp(definition: dict[str, Any], common: dict[str, Any], chance: random.Random) -> dict[str, Any]:
    exchanges = []
    for _ in range(definition.get("packets", 3)):
        sent, rtt = common["timestamp"] + NTP_EPOCH_S + chance.random(), chance.uniform(0.002, 0.15)
        exchanges.append(
            {
                "origin-ts": sent,
                "receive-ts": sent + rtt / 2,
                "transmit-ts": sent + rtt / 2,
                "final-ts": sent + rtt,
                "rtt": round(rtt, 6),
                "offset": round(chance.gauss(0, 0.002), 6),
            }
        )
    return {
        "proto": "UDP",
        "version": 4,
        "li": "no",
        "mode": "server",
        "stratum": 2,
        "poll": 8,
        "precision": 9.53674e-07,
        "root-delay": 0.00117,
        "root-dispersion": 0.0155,
        "ref-id": "c0000201",
        "ref-ts": common["timestamp"] + NTP_EPOCH_S - 300.0,
        "result": exchanges,
    }


def _http(definition: dict[str, Any], common: dict[str, Any], chance: random.Random) -> dict[str, Any]:
    fetched = {
        "af": common["af"],
        "dst_addr": common["dst_addr"],
        "src_addr": common["src_addr"],
        "method": definition.get("method", "GET"),
        "res": 200,
        "ver": definition.get("version", "1.1"),
        "rt": round(chance.uniform(5, 250), 3),
        "hsize": chance.randrange(120, 400),
        "bsize": chance.randrange(0, 4_000),
    }
    uri = f"http://{common['dst_name']}:{definition.get('port', 80)}{definition.get('path', '/')}"
    return {"uri": uri, "result": [fetched]}


_SHAPES: dict[str, Callable[[dict[str, Any], dict[str, Any], random.Random], dict[str, Any]]] = {
    "ping": _ping,
    "traceroute": _traceroute,
    "dns": _dns,
    "sslcert": _sslcert,
    "ntp": _ntp,
    "http": _http,
}
