"""The compose file: valid by the Compose specification, and its parts fit each other."""

from __future__ import annotations

import copy
import json
from typing import Any

import jsonschema
import pytest

from forebay_proxy.config.values import SETTINGS
from tests.deploy.files import DEPLOY, assert_accepted, documents
from tests.deploy.schemas import COMPOSE

FOLDER = DEPLOY / "compose"
(FILE,) = documents(FOLDER / "compose.yaml")
SERVICES = FILE["services"]
BROKERS = {
    int(each["environment"]["KAFKA_NODE_ID"]): each
    for each in SERVICES.values()
    if "KAFKA_NODE_ID" in each.get("environment", {})
}


def validate(compose: Any) -> None:
    schema = json.loads(COMPOSE.read_text())
    jsonschema.validators.validator_for(schema)(schema).validate(compose)


def test_the_file_is_valid() -> None:
    validate(FILE)


def test_a_wrong_file_is_found_out() -> None:
    wrong = copy.deepcopy(FILE)
    wrong["services"]["forebay"]["depends_on"]["toxiproxy"]["condition"] = 1
    with pytest.raises(jsonschema.ValidationError):
        validate(wrong)


def flags() -> dict[str, str]:
    """The settings on forebay's command line: --listen=0.0.0.0:9092 → {"listen": "0.0.0.0:9092"}."""
    run, *options = SERVICES["forebay"]["command"]
    assert run == "run"
    pairs = (option.removeprefix("--").split("=", 1) for option in options)
    return {flag.replace("-", "."): value for flag, value in pairs}


def published() -> set[int]:
    """Ports that reach forebay from outside, each under its own number."""
    ports: set[int] = set()
    for entry in SERVICES["forebay"]["ports"]:
        _, outside, inside = entry.rsplit(":", 2)
        assert outside == inside, "clients are told the numbers that forebay listens on"
        first, _, last = inside.partition("-")
        ports.update(range(int(first), int(last or first) + 1))
    return ports


def test_forebay_accepts_its_settings() -> None:
    assert_accepted(*(f"--set={name}={value}" for name, value in flags().items()))


def test_every_broker_can_be_reached_through_forebay() -> None:
    bootstrap = int(flags()["listen"].rpartition(":")[2])
    assert {bootstrap, *(bootstrap + 1 + node_id for node_id in BROKERS)} <= published()


def test_brokers_agree_on_their_quorum() -> None:
    (voters,) = {each["environment"]["KAFKA_CONTROLLER_QUORUM_VOTERS"] for each in BROKERS.values()}
    expected = {
        f"{node_id}@{name}:9093" for name in SERVICES for node_id in BROKERS if SERVICES[name] is BROKERS[node_id]
    }
    assert set(voters.split(",")) == expected


def test_toxiproxy_stands_before_one_broker() -> None:
    (proxy,) = json.loads((FOLDER / "toxiproxy.json").read_text())
    assert proxy["upstream"] == f"{proxy['name']}:9092"
    advertised = SERVICES[proxy["name"]]["environment"]["KAFKA_ADVERTISED_LISTENERS"]
    assert advertised.startswith(f"CLIENT://toxiproxy:{proxy['listen'].rpartition(':')[2]},")


def test_forebay_begins_at_addresses_that_brokers_advertise() -> None:
    advertised = {
        each["environment"]["KAFKA_ADVERTISED_LISTENERS"].split(",")[0].removeprefix("CLIENT://")
        for each in BROKERS.values()
    }
    assert set(flags()["bootstrap.servers"].split(",")) == advertised


def test_docker_waits_for_longer_than_the_drain() -> None:
    drain = SETTINGS["shutdown.timeout.ms"].default
    assert isinstance(drain, int)
    assert int(SERVICES["forebay"]["stop_grace_period"].removesuffix("s")) * 1000 > drain
