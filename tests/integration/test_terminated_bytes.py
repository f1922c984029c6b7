"""The same bytes of clients that log in, to a broker and to Forebay in its place: the same answers, but for texts."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from time import monotonic

import pytest
from click.testing import CliRunner

from forebay_codecs import api_versions, sasl
from forebay_codecs.api_keys import API_VERSIONS, METADATA, SASL_AUTHENTICATE, SASL_HANDSHAKE
from forebay_codecs.header import PEEK_SIZE, peek
from forebay_codecs.metadata import parse_metadata_response
from forebay_codecs.metadata_request import encode_metadata_request
from forebay_codecs.sasl import plain
from forebay_codecs.scram import HASHES, ScramClient, salt_password
from forebay_proxy.commands import cli
from tests.kit.forebay import ForebayProcess
from tests.kit.kafka import KafkaCluster
from tests.kit.login_wire import Wire, authenticate, handshake
from tests.kit.logins import USERS, password_of
from tests.kit.sasl import MODULES, quoted
from tests.kit.wire import framed

pytestmark = pytest.mark.integration

REAUTH_MS = 2_000
PLAIN = "PLAIN"
MECHANISMS = (PLAIN, *HASHES)
PATIENCE_S = 30
PROMPT_S = 0.8
"""For a second a login that comes once more is refused: what took longer tells less of that than of the machine."""
TRIES = 3


@dataclass
class Stage:
    """Two ways: to a broker, and to Forebay before another listener of it, which asks nobody who he is."""

    addresses: tuple[str, str]
    forebay: ForebayProcess


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    users = " ".join(f"user_{user}={quoted(password_of(user))}" for user in USERS)
    line = f"{MODULES[PLAIN]} required {users};"
    secret = tmp_path_factory.mktemp("bytes") / "users"
    secret.touch(mode=0o600)
    secret.write_text(line)
    prefix = "listener.name.client."
    broker = {
        "listener.security.protocol.map": "CLIENT:SASL_PLAINTEXT,INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT",
        f"{prefix}sasl.enabled.mechanisms": ",".join(MECHANISMS),
        f"{prefix}plain.sasl.jaas.config": line,
        **{f"{prefix}{name.lower()}.sasl.jaas.config": f"{MODULES[name]} required;" for name in HASHES},
        **{f"{prefix}{name.lower()}.connections.max.reauth.ms": str(REAUTH_MS) for name in MECHANISMS},
    }
    credentials = secret.parent / "credentials.json"
    with KafkaCluster("4.3.1", brokers=1, settings=broker) as cluster:
        for user in USERS:
            where = ("--bootstrap-servers", cluster.internal, "--credentials", str(credentials))
            added = CliRunner().invoke(cli.main, ("users", "add", user, *where), input=f"{password_of(user)}\n")
            assert added.exit_code == 0, added.output
        told = {
            "client.authentication": "terminate",
            "upstream.identity": "service",
            "sasl.enabled.mechanisms": ",".join(MECHANISMS),
            "scram.credentials.location": str(credentials),
            "plain.sasl.jaas.config": f"${{dir:{secret.parent}:{secret.name}}}",
            "connections.max.reauth.ms": str(REAUTH_MS),
        }
        with ForebayProcess(cluster.internal, cluster.nodes, sasl=told) as forebay:
            yield Stage((cluster.bootstrap, forebay.bootstrap), forebay)


def versions(version: int = 3) -> bytes:
    return framed(api_versions.request(3, "c", version, "test", "1"))


METADATA_V4 = framed(encode_metadata_request(4, "c", 4, None, allow_auto_topic_creation=False))
RIGHT = plain("alice", password_of("alice"))
BOB = plain("bob", password_of("bob"))
GREETED = [handshake(1, PLAIN)]
IN = [handshake(1, PLAIN), authenticate(RIGHT)]
IN_V0 = [handshake(0, PLAIN), framed(RIGHT)]

SAID = {
    "right, handshake v0": [*IN_V0, METADATA_V4],
    **{f"right, v{v}": [handshake(1, PLAIN), authenticate(RIGHT, v), METADATA_V4] for v in range(3)},
    "with itself as authzid": [*GREETED, authenticate(b"alice" + RIGHT), METADATA_V4],
    "versions first": [versions(), *IN, METADATA_V4],
    "versions v0 first": [versions(0), *IN, METADATA_V4],
    "versions twice": [versions(), versions()],
    "unknown versions, then known": [versions(99), versions(0), *IN, METADATA_V4],
    "versions behind the login": [*IN, versions()],
    "unknown mechanism, v0": [handshake(0, "NONSENSE"), METADATA_V4],
    "unknown mechanism, v1": [handshake(1, "NONSENSE"), METADATA_V4],
    "no mechanism": [handshake(1, ""), METADATA_V4],
    "handshake of a version that is not there": [handshake(2, PLAIN)],
    "half a handshake": [framed(handshake(1, PLAIN)[4:-3])],
    "authenticate of a version that is not there": [*GREETED, framed(struct.pack(">hhi", 36, 3, 5) + bytes(20))],
    "half an authenticate": [*GREETED, framed(authenticate(RIGHT)[4:-3])],
    "authenticate before the handshake": [authenticate(RIGHT)],
    **{
        f"{what}, v{v}": [*GREETED, authenticate(token, v), METADATA_V4]
        for v in range(3)
        for what, token in {
            "wrong password": plain("alice", "wrong"),
            "unknown user": plain("nobody", "any"),
            "somebody else's password": plain("alice", password_of("bob")),
            "no password": plain("alice", ""),
            "no user": plain("", "any"),
            "for somebody else": b"bob" + RIGHT,
            "garbage": b"garbage",
            "nothing": b"",
            "four parts": RIGHT + b"\0more",
        }.items()
    },
    "wrong password, handshake v0": [handshake(0, PLAIN), framed(plain("alice", "wrong"))],
    "garbage, handshake v0": [handshake(0, PLAIN), framed(b"garbage")],
    "nothing, handshake v0": [handshake(0, PLAIN), framed(b"")],
    "a request, handshake v0": [handshake(0, PLAIN), METADATA_V4],
    "a token behind handshake v1": [*GREETED, framed(RIGHT)],
    "no login": [METADATA_V4],
    "an API that there is not": [framed(struct.pack(">hhi", 999, 0, 5) + b"\xff\xff")],
    "no request": [framed(b"GET / HTTP/1.1\r\n\r\n")],
    "too large": [struct.pack(">i", 524_289) + bytes(64)],
    "too large, behind the handshake": [*GREETED, struct.pack(">i", 524_289) + bytes(64)],
    "of no size": [framed(b"")],
    "of a negative size": [struct.pack(">i", -1)],
    "authenticate behind the login": [*IN, authenticate(RIGHT), METADATA_V4],
    "again": [*IN, *IN, METADATA_V4],
    "again, without headers": [*IN, *IN_V0, METADATA_V4],
    "again from v0": [*IN_V0, *IN_V0, METADATA_V4],
    "twice again within a second": [*IN, *IN, handshake(1, PLAIN), METADATA_V4],
    "again, as somebody else": [*IN, *GREETED, authenticate(BOB), METADATA_V4],
    "again, with a wrong password": [*IN, *GREETED, authenticate(plain("alice", "wrong")), METADATA_V4],
    "again, by a mechanism that there is not": [*IN, handshake(1, "NONSENSE"), METADATA_V4],
    "again, by another mechanism": [*IN, handshake(1, "SCRAM-SHA-256"), authenticate(b"n,,n=alice,r=nonce")],
}


def gist(frame: bytes, answer: bytes | None, *, is_token: bool) -> object:
    """All of an answer but texts, and what tells where the answer comes from."""
    if answer is None or is_token:
        return answer
    key, version, correlation_id = peek(frame, 4)
    assert int.from_bytes(answer[:4], "big") == correlation_id
    if key == SASL_AUTHENTICATE:
        said = sasl.parse_authenticate(answer, version)
        return said._replace(error_message=said.error_message and "words")
    if key == SASL_HANDSHAKE:
        shook = sasl.parse_handshake(answer)
        return shook.error_code, sorted(shook.mechanisms)
    if key == API_VERSIONS:
        known = api_versions.parse_api_versions(answer, min(version, 4) if version < 99 else 0)
        return answer[4:6], known.get(SASL_HANDSHAKE), known.get(SASL_AUTHENTICATE)
    if key == METADATA:
        return len(parse_metadata_response(answer, version).brokers)
    return answer


def is_token(before: Sequence[bytes], frame: bytes) -> bool:
    """Whether it follows SaslHandshake v0."""
    return bool(before) and len(before[-1]) >= 4 + PEEK_SIZE and peek(before[-1], 4)[:2] == (SASL_HANDSHAKE, 0)


def tell(address: str, frames: Sequence[bytes]) -> list[object]:
    heard: list[object] = []
    with Wire(address, None) as wire:
        for number, frame in enumerate(frames):
            answer = wire.say(frame)
            heard.append(gist(frame, answer, is_token=is_token(frames[:number], frame)))
            if answer is None:
                break
    return heard


@pytest.mark.parametrize("frames", SAID.values(), ids=SAID)
def test_it_is_answered_as_by_a_broker(stage: Stage, frames: list[bytes]) -> None:
    for _ in range(TRIES):
        began = monotonic()
        direct, through = (tell(address, frames) for address in stage.addresses)
        if monotonic() - began < PROMPT_S:
            break
    assert through == direct


MIDDLE = {"metadata": METADATA_V4, "versions": versions(), "another handshake": handshake(1, PLAIN)}


@pytest.mark.parametrize("frame", MIDDLE.values(), ids=MIDDLE)
@pytest.mark.parametrize("before", [GREETED, [*IN, *GREETED]], ids=["the first login", "the second"])
def test_in_the_middle_of_a_login_another_request_ends_the_connection(
    stage: Stage, before: list[bytes], frame: bytes
) -> None:
    """A broker answers with an error first, for which it reads the request; here it is not read."""
    heard = []
    for address in stage.addresses:
        with Wire(address, None) as wire:
            for each in before:
                assert wire.say(each) is not None
            heard.append(wire.say(frame))
            assert heard[-1] is None or wire.hear() is None
    direct, through = heard
    assert through is None
    assert direct is None or (b"localhost" not in direct and b"127.0.0.1" not in direct)


Twist = Callable[[bytes], bytes]


def as_it_is(message: bytes) -> bytes:
    return message


SCRAM: dict[str, tuple[Twist, Twist]] = {
    "right": (as_it_is, as_it_is),
    "with itself as authzid": (lambda m: m.replace(b"n,,", b"n,a=alice,"), as_it_is),
    "for somebody else": (lambda m: m.replace(b"n,,", b"n,a=bob,"), as_it_is),
    "with an extension": (lambda m: m + b",tokenauth=false", as_it_is),
    "garbage first": (lambda m: b"garbage", as_it_is),
    "nothing first": (lambda m: b"", as_it_is),
    "no name": (lambda m: m.replace(b"n=alice", b"n="), as_it_is),
    "channel binding": (lambda m: m.replace(b"n,,", b"p=tls-unique,,"), as_it_is),
    "a forgotten comma": (lambda m: m.replace(b"n,,", b"n,"), as_it_is),
    "garbage last": (as_it_is, lambda m: b"garbage"),
    "another nonce": (as_it_is, lambda m: m.replace(b"r=nonce", b"r=other")),
    "a wrong proof": (as_it_is, lambda m: m.replace(b",p=", b",p=AAAA").replace(m[-8:], m[-4:])),
    "no proof": (as_it_is, lambda m: m.partition(b",p=")[0]),
}


def scram(wire: Wire, mechanism: str, version: int, user: str, twists: tuple[Twist, Twist]) -> list[object]:
    """A login, however it ends: what is told, the salt, too, but for nonces and words."""
    client = ScramClient(mechanism, user, "nonce")
    assert wire.say(handshake(1, mechanism)) is not None
    answer = wire.say(authenticate(twists[0](client.first()), version))
    if answer is None:
        return [None]
    said = sasl.parse_authenticate(answer, version)
    if said.error_code:
        return [said._replace(error_message="words"), wire.hear()]
    challenge = client.challenge(said.auth_bytes)
    final = client.final(salt_password(mechanism, password_of("alice"), challenge))
    answer = wire.say(authenticate(twists[1](final), version))
    if answer is None:
        return [challenge, None]
    last = sasl.parse_authenticate(answer, version)
    if not last.error_code:
        client.verify(last.auth_bytes)
        return [challenge, last._replace(auth_bytes=b""), wire.say(METADATA_V4) is not None]
    return [challenge, last._replace(error_message="words"), wire.hear()]


@pytest.mark.parametrize(
    ("mechanism", "version"),
    [("SCRAM-SHA-512", 2), pytest.param("SCRAM-SHA-256", 0, marks=pytest.mark.whole), ("SCRAM-SHA-256", 1)],
)
@pytest.mark.parametrize("twists", SCRAM.values(), ids=SCRAM)
def test_scram_is_answered_as_by_a_broker(
    stage: Stage, twists: tuple[Twist, Twist], mechanism: str, version: int
) -> None:
    heard = []
    for address in stage.addresses:
        with Wire(address, None) as wire:
            heard.append(scram(wire, mechanism, version, "alice", twists))
    direct, through = heard
    assert through == direct


def test_a_user_of_scram_that_there_is_not_is_refused_at_the_end_and_not_at_the_beginning(stage: Stage) -> None:
    """A broker tells at once that there is no such user; Forebay, only whether somebody may come in."""
    heard = []
    for address in stage.addresses:
        with Wire(address, None) as wire:
            heard.append(scram(wire, "SCRAM-SHA-512", 1, "nobody", SCRAM["right"]))
    direct, through = heard
    assert through[1:] == direct
    for user in ("nobody", "alice"):
        with Wire(stage.addresses[1], None) as wire:
            told = scram(wire, "SCRAM-SHA-512", 1, user, SCRAM["a wrong proof"])
        assert told[1:] == direct, "the same for both"


def test_a_proof_of_a_wrong_length_is_refused_as_any_wrong_one(stage: Stage) -> None:
    """A broker says nothing; no client sends one."""
    heard = []
    for address in stage.addresses:
        with Wire(address, None) as wire:
            short = (as_it_is, lambda m: m.partition(b",p=")[0] + b",p=AAAA")
            heard.append(scram(wire, "SCRAM-SHA-512", 1, "alice", short)[1:])
        with Wire(address, None) as wire:
            heard.append(scram(wire, "SCRAM-SHA-512", 1, "alice", SCRAM["a wrong proof"])[1:])
    assert heard[0] == [None]
    assert heard[2] == heard[1] == heard[3]


def test_what_comes_in_one_piece_is_answered_in_order(stage: Stage) -> None:
    for address in stage.addresses:
        with Wire(address, None) as wire:
            frames = [versions(), *IN, METADATA_V4]
            answers = [wire.say(b"".join(frames)), *(wire.hear() for _ in frames[1:])]
            told = [int.from_bytes(answer[:4], "big") for answer in answers if answer is not None]
            assert told == [3, 1, 2, 4]


@pytest.mark.whole
@pytest.mark.parametrize("login", [IN, IN_V0], ids=["told of it", "not told of it"])
def test_a_session_ends_at_the_next_request_once_its_time_is_over(stage: Stage, login: list[bytes]) -> None:
    for address in stage.addresses:
        with Wire(address, None) as wire:
            began, asked = monotonic(), 0
            for frame in login:
                assert wire.say(frame) is not None
            while wire.say(METADATA_V4) is not None:
                asked += 1
                assert monotonic() - began < PATIENCE_S
            assert asked > 1
            assert monotonic() - began > REAUTH_MS / 1000


@pytest.mark.whole
def test_a_session_that_is_renewed_goes_on(stage: Stage) -> None:
    for address in stage.addresses:
        assert any(goes_on(address) for _ in range(TRIES))


def goes_on(address: str) -> bool:
    """False where it has ended, though this machine may have stood still until its time was over."""
    with Wire(address, None) as wire:
        began = monotonic()
        logged_in = [wire.say(frame) for frame in IN]
        while monotonic() - began < REAUTH_MS / 1000 * 0.6:
            logged_in.append(wire.say(METADATA_V4))
        logged_in += [wire.say(frame) for frame in IN]
        while monotonic() - began < REAUTH_MS / 1000 * 1.3:
            logged_in.append(wire.say(METADATA_V4))
    return None not in logged_in
