"""Settings: from text to values, from several sources to one, and what is said of those that cannot be."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from forebay_policies.own_choices import CHOOSE_PARTITIONS_THEMSELVES
from forebay_proxy.config.kinds import BrokerAddress
from forebay_proxy.config.secret import Secret
from forebay_proxy.config.settings import ALIASES, HostPort, Settings
from forebay_proxy.config.sources import (
    _NOT_SETTINGS,
    Loaded,
    Problem,
    SettingsError,
    Sources,
    load,
)
from forebay_proxy.config.values import SETTINGS, render
from forebay_proxy.process.control import Hello, decode, encode
from tests.kit.paths import ROOT
from tests.test_documents import FILES

PARTITIONERS = ("adaptive", "expected_wait", "uniform", "sticky", "round_robin", "own")
NEEDED = ("bootstrap.servers=broker:9092", "listen=0.0.0.0:19092")


def loaded(
    *assignments: str,
    environ: Mapping[str, str] | None = None,
    config: Path | None = None,
    complete: bool = True,
) -> Loaded:
    sources = Sources(str(config) if config else None, environ or {}, (*NEEDED, *assignments))
    return load(sources, PARTITIONERS, complete=complete)


def settings(*assignments: str, environ: Mapping[str, str] | None = None, config: Path | None = None) -> Settings:
    return loaded(*assignments, environ=environ, config=config).settings


def problems(*assignments: str, environ: Mapping[str, str] | None = None, config: Path | None = None) -> list[Problem]:
    with pytest.raises(SettingsError) as error:
        loaded(*assignments, environ=environ, config=config)
    return list(error.value.problems)


def problem(*assignments: str, environ: Mapping[str, str] | None = None, config: Path | None = None) -> Problem:
    (only,) = problems(*assignments, environ=environ, config=config)
    return only


def toml(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "forebay.toml"
    path.write_text(text)
    return path


class TestTable:
    def test_defaults_are_those_of_the_design(self) -> None:
        now = settings()
        assert (now.linger_ms, now.batch_initial_size, now.batch_size, now.batch_max_size) == (
            -1,
            4096,
            16384,
            262144,
        )
        assert (now.buffer_memory, now.max_request_size) == (32 * 1024 * 1024, 1024 * 1024)
        assert (now.partitioner, now.partitioner_adaptive_partitioning_enable) == ("adaptive", True)
        assert (now.topics_include, now.topics_exclude, now.client_ids_include) == (("*",), (), ("*",))
        assert now.client_ids_exclude == CHOOSE_PARTITIONS_THEMSELVES

    @pytest.mark.parametrize("name", SETTINGS)
    def test_each_setting_explains_itself_in_one_line(self, name: str) -> None:
        setting = SETTINGS[name]
        assert setting.description
        assert "\n" not in setting.description + setting.allowed
        assert setting.name == setting.attribute.replace("_", ".")

    @pytest.mark.parametrize("name", SETTINGS)
    def test_each_default_is_allowed_and_read_back_from_its_own_text(self, name: str) -> None:
        setting = SETTINGS[name]
        if not setting.required:
            assert setting.parse(render(setting.default)) == setting.default

    @pytest.mark.parametrize("name", SETTINGS)
    def test_no_setting_hides_behind_a_variable_that_is_ignored(self, name: str) -> None:
        assert not _NOT_SETTINGS.fullmatch(SETTINGS[name].variable)

    def test_settings_survive_the_way_to_a_worker(self) -> None:
        now = settings("node.ports=1:19093", "admin=[::1]:9100", "topics.exclude=a,b")
        assert decode(encode(Hello(0, now, ""))) == Hello(0, now, "")

    def test_brokers_are_left_before_they_would_close(self) -> None:
        assert settings().upstream_max_idle_ms == 540_000
        assert settings("connections.max.idle.ms=-1").upstream_max_idle_ms == -1


class TestValues:
    @pytest.mark.parametrize(
        ("assignment", "attribute", "value"),
        [
            ("linger.ms=5", "linger_ms", 5),
            ("bootstrap.servers=a:1, b:2", "bootstrap_servers", (HostPort("a", 1), HostPort("b", 2))),
            ("admin=[::1]:9100", "admin", HostPort("::1", 9100)),
            ("admin=", "admin", None),
            ("node.ports=1:19093,2:19094", "node_ports", {1: 19093, 2: 19094}),
            ("advertised.node.ports=1:31001,2:31002", "advertised_node_ports", {1: 31001, 2: 31002}),
            ("advertised.address=b$(node).forebay:9092", "advertised_address", BrokerAddress("b$(node).forebay", 9092)),
            ("advertised.address=[fd00::$(node)]:9092", "advertised_address", BrokerAddress("fd00::$(node)", 9092)),
            ("advertised.address=", "advertised_address", None),
            ("topics.exclude=audit-*,logs", "topics_exclude", ("audit-*", "logs")),
            ("client.ids.exclude=", "client_ids_exclude", ()),
            (
                "partitioner.adaptive.partitioning.enable=FALSE",
                "partitioner_adaptive_partitioning_enable",
                False,
            ),
            ("log.format=json", "log_format", "json"),
            ("partitioner=own", "partitioner", "own"),
            ("partitioner.min.share=0.02", "partitioner_min_share", 0.02),
            ("partitioner.min.share=0", "partitioner_min_share", 0.0),
            ("partitioner.rack.aware=true", "partitioner_rack_aware", True),
            ("partitioner.rack.max.skew=0.1", "partitioner_rack_max_skew", 0.1),
            ("client.rack=az-a", "client_rack", "az-a"),
            (
                "client.racks=10.1.0.0/16:az-a, fd00:2::/32:az-b,10.9.0.1:az-c",
                "client_racks",
                {"10.1.0.0/16": "az-a", "fd00:2::/32": "az-b", "10.9.0.1/32": "az-c"},
            ),
            ("advertised.host=kafka.example.org", "advertised_host", "kafka.example.org"),
        ],
    )
    def test_text(self, assignment: str, attribute: str, value: object) -> None:
        assert getattr(settings(assignment), attribute) == value

    @pytest.mark.parametrize(
        "assignment",
        [
            "linger.ms=-2",
            "client.racks=az-a",
            "client.racks=10.1.0.0/16:",
            "client.racks=10.1.0.1/16:az-a",
            "client.racks=10.1.0.0/33:az-a",
            "client.racks=10.1.0.0/16:az-a,10.1.0.0/16:az-b",
            "linger.ms=60001",
            "linger.ms=5.5",
            "linger.ms=",
            "workers=0",
            "workers=65",
            "partitioner.min.share=-0.1",
            "partitioner.min.share=1.1",
            "partitioner.min.share=nan",
            "partitioner.min.share=half",
            "batch.size=-1",
            "listen=19092",
            "listen=:19092",
            "listen=host:0",
            "listen=host:65536",
            "listen=::1:9092",
            "listen=[host]:9092",
            "listen=a b:9092",
            "bootstrap.servers=",
            "bootstrap.servers=a:1,b",
            "node.ports=1",
            "node.ports=-1:19093",
            "node.ports=1:19093,1:19094",
            "advertised.address=forebay:9092",
            "advertised.address=b$(node).forebay",
            "advertised.address=b$(node) forebay:9092",
            "advertised.address=b$(nodes).forebay:9092",
            "advertised.address=forebay:$(node)",
            "partitioner.adaptive.partitioning.enable=yes",
            "log.level=loud",
            "partitioner=random",
        ],
    )
    def test_impossible_text_is_refused_with_name_value_origin_and_what_is_allowed(self, assignment: str) -> None:
        name, _, value = assignment.partition("=")
        found = problem(assignment)
        assert (found.name, found.value, found.origin) == (name, value, "--set")
        assert found.message.startswith("must be ")

    @pytest.mark.parametrize(
        "topics", ['["payments"]', "'payments'", '"payments"', "a payments", "^payments$", '["a", "b"]']
    )
    def test_patterns_that_would_match_no_topic_are_refused_wherever_they_are_written(
        self, tmp_path: Path, topics: str
    ) -> None:
        found = [
            problem(f"topics.exclude={topics}"),
            problem(environ={"FOREBAY_TOPICS_EXCLUDE": topics}),
            problem(config=toml(tmp_path, f"topics.exclude = {topics!r}")),
            problem(config=toml(tmp_path, f"topics.exclude = [{topics!r}]")),
        ]
        for each in found:
            assert each.message.startswith("must be patterns of letters, digits, . _ - and * ? [a-z] [!a-z]; several")

    @pytest.mark.parametrize(
        "topics", ["[payments]", "[payments,audit]", "[payments, audit]", "a-[eu,us]", "a-[0-9", "a]"]
    )
    def test_nor_are_lists_whose_quotes_a_shell_has_taken(self, topics: str) -> None:
        assert problem(f"topics.exclude={topics}").message.startswith("must be patterns of letters, digits, ")

    @pytest.mark.parametrize("clients", ['["till-7"]', "'till-7'", '"till-7"', '["a", "b"]', '"a,b"', "[ 'a' ]"])
    def test_patterns_of_clients_in_quotes_are_refused(self, clients: str) -> None:
        assert "not in quotes" in problem(f"client.ids.exclude={clients}").message

    def test_patterns_of_names_are_taken(self) -> None:
        taken = ("orders-*", "[a-c]*", "[!x]*", "[!xy]", "[a-z]", "Old_1.raw", "?-[0-9]", "eu[12]")
        assert settings(f"topics.include={','.join(taken)}").topics_include == taken
        assert settings('client.ids.include=a b,^c$,d"e,["]f"').client_ids_include == ("a b", "^c$", 'd"e', '["]f"')

    @pytest.mark.parametrize("line", ["[linger]\nms = true", "[linger]\nms = [5]", '"linger.ms" = 5.0'])
    def test_impossible_toml_types_are_refused(self, tmp_path: Path, line: str) -> None:
        assert problem(config=toml(tmp_path, line)).name == "linger.ms"


class TestFile:
    def test_dotted_keys_and_tables_mean_the_same(self, tmp_path: Path) -> None:
        dotted = '"linger.ms" = 5\n"topics.exclude" = ["a", "b"]\n"node.ports" = { 1 = 19093 }\n'
        nested = "linger.ms = 5\n[topics]\nexclude = ['a', 'b']\n[node.ports]\n1 = 19093\n"
        first = settings(config=toml(tmp_path, dotted))
        assert first == settings(config=toml(tmp_path, nested))
        assert (first.linger_ms, first.topics_exclude, first.node_ports) == (5, ("a", "b"), {1: 19093})

    def test_a_text_means_the_same_as_on_the_command_line(self, tmp_path: Path) -> None:
        text = '"bootstrap.servers" = "a:1,b:2"\n"node.ports" = "1:19093"\n"linger.ms" = "5"\n'
        sources = Sources(str(toml(tmp_path, text)), {}, ("listen=h:19092",))
        now = load(sources, PARTITIONERS).settings
        assert now.bootstrap_servers == (HostPort("a", 1), HostPort("b", 2))
        assert (now.node_ports, now.linger_ms) == ({1: 19093}, 5)

    def test_the_variable_names_the_file_unless_the_flag_does(self, tmp_path: Path) -> None:
        path = toml(tmp_path, "linger.ms = 5")
        assert settings(environ={"FOREBAY_CONFIG": str(path)}).linger_ms == 5
        other = tmp_path / "other.toml"
        other.write_text("linger.ms = 6")
        assert settings(environ={"FOREBAY_CONFIG": str(path)}, config=other).linger_ms == 6

    def test_malformed_toml_names_file_and_line(self, tmp_path: Path) -> None:
        path = toml(tmp_path, '"linger.ms" = 5\nbatch size = 3\n')
        found = problem(config=path)
        assert found.name == str(path)
        assert "line 2" in found.message

    def test_a_missing_file_is_named(self, tmp_path: Path) -> None:
        found = problem(config=tmp_path / "none.toml")
        assert found.name == str(tmp_path / "none.toml")
        assert "No such file" in found.message

    def test_a_file_that_is_not_text_is_named(self, tmp_path: Path) -> None:
        path = tmp_path / "binary.toml"
        path.write_bytes(b"\xff\xfe\x00")
        assert problem(config=path).message == "is not UTF-8 text"

    @pytest.mark.parametrize("text", ["a = " + "[" * 5000, "a." * 5000 + "b = 1"])
    def test_a_file_that_is_nested_deeply_is_named(self, tmp_path: Path, text: str) -> None:
        path = toml(tmp_path, text)
        assert str(problem(config=path)) == f"{path} (--config): is nested too deeply"

    def test_a_number_beyond_all_bounds_is_a_problem(self, tmp_path: Path) -> None:
        found = problem(config=toml(tmp_path, f'"partitioner.min.share" = 1{"0" * 400}'))
        assert found.message == "must be a number from 0 to 1"
        found = problem(config=toml(tmp_path, f'"linger.ms" = 1{"0" * 5000}'))
        assert found.message.startswith("is not valid TOML: ")
        found = problem(config=toml(tmp_path, f'"linger.ms" = 0x{"f" * 5000}'))
        assert (found.value, found.message[:5]) == (f"0x{'f' * 5000}", "must ")

    def test_a_file_without_an_end_is_named(self) -> None:
        assert problem(config=Path("/dev/zero")).message == "cannot be read: it has more than 16 MiB"

    def test_a_secret_that_is_not_text_is_a_problem_and_is_not_shown(self) -> None:
        found = problem(environ={"FOREBAY_ADMIN_BEARER_TOKEN": "canary\udcff"})
        assert (found.message, found.value) == ("is not UTF-8 text", "[hidden]")

    @pytest.mark.parametrize("reference", ["${file:DIR/all.properties:none}", "${dir:DIR:none}", "${env:NONE}"])
    @pytest.mark.parametrize(
        "name",
        ["admin.bearer.token", "ssl.truststore.certificates", "listener.name.a.ssl.keystore.certificate.chain"],
    )
    def test_what_protects_refers_to_nothing_that_is_empty(self, tmp_path: Path, name: str, reference: str) -> None:
        for file, text in (("all.properties", "none=\n"), ("none", "\n")):
            (tmp_path / file).touch(mode=0o600)
            (tmp_path / file).write_text(text)
        written = reference.replace("DIR", str(tmp_path))
        found = problem(f"{name}={written}", environ={"NONE": ""})
        assert (found.name, found.value, found.message) == (name, written, "refers to something that is empty")
        assert settings(f"client.rack={written}", environ={"NONE": ""}).client_rack == ""

    @pytest.mark.parametrize(
        ("name", "shown"),
        [("admin.bearer.token", "[hidden]"), ("sasl.jaas.config", "[hidden]"), ("ssl.truststore.location", None)],
    )
    def test_what_protects_is_no_reference_that_is_not_understood(self, name: str, shown: str | None) -> None:
        written = "${vault:kafka/admin:token}"
        found = problem(environ={SETTINGS[name].variable: written})
        assert (found.name, found.value) == (name, shown or written)
        assert found.message.startswith("refers to a provider that is not known")
        assert settings(f"client.rack={written}").client_rack == written

    def test_a_secret_that_a_reference_leads_to_may_look_like_one(self) -> None:
        environ = {"FOREBAY_ADMIN_BEARER_TOKEN": "${env:TOKEN}", "TOKEN": "${vault:x"}
        assert settings(environ=environ).admin_bearer_token == Secret("${vault:x")

    def test_the_same_setting_twice_with_different_values_is_refused(self, tmp_path: Path) -> None:
        path = toml(tmp_path, '"linger.ms" = 5\n[linger]\nms = 6\n')
        assert "set twice" in problem(config=path).message

    def test_a_problem_of_the_file_names_the_file(self, tmp_path: Path) -> None:
        path = toml(tmp_path, '"lingr.ms" = 5')
        assert problem(config=path).origin == str(path)


class TestTogether:
    def test_later_sources_win(self, tmp_path: Path) -> None:
        path = toml(tmp_path, '"linger.ms" = 1\n"batch.size" = 8192\n"retry.backoff.ms" = 7\n')
        environ = {"FOREBAY_LINGER_MS": "2", "FOREBAY_BATCH_SIZE": "12288"}
        now = settings("linger.ms=3", environ=environ, config=path)
        assert (now.linger_ms, now.batch_size, now.retry_backoff_ms) == (3, 12288, 7)

    def test_origins_are_remembered(self, tmp_path: Path) -> None:
        path = toml(tmp_path, '"retry.backoff.ms" = 7\n')
        origins = loaded("linger.ms=3", environ={"FOREBAY_BATCH_SIZE": "12288"}, config=path).origins
        names = ("retry.backoff.ms", "batch.size", "linger.ms", "workers")
        assert [origins[name] for name in names] == [str(path), "FOREBAY_BATCH_SIZE", "--set", "default"]

    def test_of_assignments_the_last_wins(self) -> None:
        assert settings("linger.ms=3", "linger.ms=4").linger_ms == 4

    def test_a_flag_and_an_assignment_that_disagree_are_refused(self) -> None:
        sources = Sources(None, {}, NEEDED, {"--listen": ("listen", "other:19092")})
        with pytest.raises(SettingsError, match=r"listen = other:19092 \(--listen\): set twice"):
            load(sources, PARTITIONERS)

    @pytest.mark.parametrize("alias", ALIASES)
    def test_the_proposals_names_are_understood_everywhere(self, alias: str, tmp_path: Path) -> None:
        value = "false" if alias.endswith("partitioning") else "7"
        attribute = SETTINGS[ALIASES[alias]].attribute
        expected = SETTINGS[ALIASES[alias]].parse(value)
        variable = "FOREBAY_" + alias.upper().replace(".", "_")
        for now in (
            settings(f"{alias}={value}"),
            settings(environ={variable: value}),
            settings(config=toml(tmp_path, f"{alias} = {value}")),
        ):
            assert getattr(now, attribute) == expected

    def test_an_alias_that_contradicts_its_name_is_refused(self) -> None:
        found = problem("enable.adaptive.partitioning=false", "partitioner.adaptive.partitioning.enable=true")
        assert "set twice, first to false as enable.adaptive.partitioning (--set)" in found.message

    def test_variables_of_the_build_and_of_kubernetes_are_none_of_ours(self) -> None:
        environ = {
            "FOREBAY_NO_COMPILE": "1",
            "FOREBAY_REQUIRE_COMPILE": "1",
            "FOREBAY_TEST_KAFKA_HOME": "x",
            "FOREBAY_SERVICE_HOST": "10.0.0.1",
            "FOREBAY_SERVICE_PORT": "9092",
            "FOREBAY_SERVICE_PORT_KAFKA": "9092",
            "FOREBAY_PORT": "tcp://10.0.0.1:9092",
            "FOREBAY_PORT_9092_TCP": "tcp://10.0.0.1:9092",
            "FOREBAY_PORT_9092_TCP_ADDR": "10.0.0.1",
            "FOREBAY_ADMIN_SERVICE_HOST": "10.0.0.2",
            "FOREBAY_ADMIN_PORT_9100_TCP_PROTO": "tcp",
            "PATH": "/bin",
        }
        assert settings(environ=environ) == settings()

    def test_every_variable_that_the_project_names_is_a_setting_or_left_alone(self) -> None:
        """Forebay refuses to start with any other. Those of Airflow's DAG are what one may mistype."""
        variable = re.compile(rb"\bFOREBAY_[A-Z_]*[A-Z]\b")
        folders = [path.relative_to(ROOT).parts[0] for path in FILES]
        ours = [path for path, top in zip(FILES, folders, strict=True) if top != "tests" and not top.startswith(".")]
        ours = [path for path in ours if "airflow" not in path.parts]
        named = {name.decode() for path in ours for name in variable.findall(path.read_bytes())}
        assert {"FOREBAY_WATCH_WEBHOOK", "FOREBAY_LINGER_MS"} <= named
        sources = Sources(environ=dict.fromkeys(named, ""))
        with pytest.raises(SettingsError) as error:
            load(sources, PARTITIONERS, complete=False)
        assert [found for found in error.value.problems if "unknown" in found.message] == []


class TestProblems:
    @pytest.mark.parametrize(
        ("assignment", "unit"),
        [
            ("buffer.memory=32MiB", "bytes"),
            ("linger.ms=5s", "milliseconds"),
            ("listener.name.a.sasl.oauthbearer.clock.skew.seconds=5s", "seconds"),
            ("workers=two", None),
        ],
    )
    def test_a_number_that_is_none_is_told_the_unit(self, assignment: str, unit: str | None) -> None:
        message = problem(assignment).message
        assert message.endswith(f", in {unit}") if unit else ", in " not in message

    def test_an_unknown_setting_names_the_nearest_and_what_that_allows(self) -> None:
        found = problem("lingr.ms=5")
        assert str(found) == (
            "lingr.ms (--set): unknown setting; did you mean linger.ms (a whole number from -1 to 60000, in "
            "milliseconds)?"
        )

    @pytest.mark.parametrize(
        ("wrong", "nearest"),
        [
            ("linger_ms", "linger.ms"),
            ("Batch.Size", "batch.size"),
            ("bootstrap.server", "bootstrap.servers"),
            ("batch.maximum.size", "batch.max.size"),
            ("partition.availability.timeout", "partition.availability.timeout.ms"),
            ("listener.name.ssl.ssl.keystore.locaton", "listener.name.ssl.ssl.keystore.location"),
            ("listener.name.Edge.nodes.port", "listener.name.Edge.node.ports"),
        ],
    )
    def test_nearest_names(self, wrong: str, nearest: str) -> None:
        assert f"did you mean {nearest} (" in problem(f"{wrong}=1").message

    @pytest.mark.parametrize("listener", ["ex ternal", "EXTERNAL://", "café"])
    def test_a_listener_whose_name_cannot_be_one(self, listener: str) -> None:
        found = problem(f"listener.name.{listener}.ssl.keystore.location=x")
        assert found.message.startswith("unknown setting")

    def test_what_only_listeners_have_is_named_in_full(self) -> None:
        found = problem("upstream.identity=client").message
        assert found == "is a listener's: listener.name.<name>.upstream.identity"

    def test_a_name_near_to_none_points_to_the_list(self) -> None:
        assert problem("xyzzy=1").message == "unknown setting; `forebay config` lists all"

    def test_an_unknown_variable_is_named_as_it_was_written(self) -> None:
        found = problem(environ={"FOREBAY_LINGR_MS": "5"})
        assert found.origin == "FOREBAY_LINGR_MS"
        assert "did you mean linger.ms (" in found.message

    def test_an_assignment_without_a_value_is_refused(self) -> None:
        assert str(problem("linger.ms")) == "linger.ms (--set): must be name=value"

    def test_all_problems_are_told_at_once(self, tmp_path: Path) -> None:
        found = problems(
            "workers=0",
            "lingr.ms=5",
            "batch.size=5000",
            environ={"FOREBAY_LOG_LEVEL": "loud"},
            config=toml(tmp_path, '"max.request.size" = "big"'),
        )
        names = {"workers", "lingr.ms", "batch.size", "log.level", "max.request.size"}
        assert {each.name for each in found} == names

    def test_required_settings_are_asked_for_by_all_their_names(self) -> None:
        with pytest.raises(SettingsError) as error:
            load(Sources(), PARTITIONERS)
        texts = str(error.value).splitlines()
        assert [text.split(":")[0] for text in texts] == ["bootstrap.servers", "listen"]
        for way in ("--bootstrap-servers", "FOREBAY_BOOTSTRAP_SERVERS"):
            assert way in texts[0]

    def test_without_being_complete_only_what_is_there_is_checked(self) -> None:
        assert "bootstrap.servers" not in load(Sources(), PARTITIONERS, complete=False).values
        with pytest.raises(SettingsError, match=r"workers = 0"):
            load(Sources(assignments=("workers=0",)), PARTITIONERS, complete=False)

    def test_a_value_that_cannot_be_read_blames_no_other_setting(self) -> None:
        assert problem("batch.max.size=x").name == "batch.max.size"


class TestUrls:
    @pytest.mark.parametrize(
        "name",
        [
            "otlp.endpoint",
            "sasl.oauthbearer.token.endpoint.url",
            "listener.name.sasl_ssl.sasl.oauthbearer.jwks.endpoint.url",
        ],
    )
    def test_they_have_no_password_and_one_that_was_written_is_not_shown(self, name: str) -> None:
        for address in ("host:4318", "ftp://host", "http://", "http://a b/", "https://host:port/"):
            assert problem(f"{name}={address}").value == address
        for password in ("hunter2", "h@unter/2", "h/unter@2", "hunt er2"):
            found = problem(f"{name}=https://me:{password}@host/path")
            assert found.value == "https://[hidden]@host/path"
            assert "without a user or password" in found.message
        for address in ("me:hunter2@host/path", "https:/me:hunter2@host/path"):
            assert problem(f"{name}={address}").value == "[hidden]@host/path"

    def test_what_else_a_url_has_may_be_there(self) -> None:
        for address in (
            "http://127.0.0.1:4318",
            "https://host/a/b?c=d",
            "https://[fe80::1%eth0]:443/",
            "https://host/keys@of.example",
            "",
        ):
            assert settings(f"otlp.endpoint={address}").otlp_endpoint == address


class TestConflicts:
    @pytest.mark.parametrize(
        ("assignments", "name", "message"),
        [
            (["batch.size=2048"], "batch.size", "at least batch.initial.size = 4096"),
            (["batch.size=327680"], "batch.max.size", "at least batch.size = 327680"),
            (["max.request.size=131072"], "max.request.size", "at least batch.max.size = 262144"),
            (["buffer.memory=131072"], "buffer.memory", "at least batch.max.size = 262144"),
            (["max.decompressed.bytes=131072"], "max.decompressed.bytes", "at least batch.max.size"),
            (["batch.size=6144"], "batch.size", "multiple of batch.initial.size = 4096"),
            (["batch.max.size=264144"], "batch.max.size", "multiple of batch.initial.size = 4096"),
            (["delivery.timeout.ms=29999"], "delivery.timeout.ms", "linger.ms + request.timeout.ms = 30000"),
            (
                ["delivery.timeout.ms=30004", "linger.ms=5"],
                "delivery.timeout.ms",
                "linger.ms + request.timeout.ms = 30005",
            ),
            (["listen=h:65535"], "listen", "no port for the brokers"),
            (["listen=broker:9092"], "bootstrap.servers", "connect to itself"),
            (["connections.max.age.ms=999"], "connections.max.age.ms", "must be -1 or at least 1000"),
            (["node.ports=1:19092"], "node.ports", "port 19092 of node 1 is taken by listen"),
            (["node.ports=1:19093,2:19093"], "node.ports", "taken by node 1"),
            (["admin=127.0.0.1:19092"], "admin", "taken by listen"),
            (["admin=127.0.0.1:19095", "node.ports=4:19095"], "admin", "taken by node 4"),
            (["advertised.host=kafka:9092"], "advertised.host", "without a port"),
        ],
    )
    def test_settings_that_contradict_each_other(self, assignments: list[str], name: str, message: str) -> None:
        (found,) = [each for each in problems(*assignments) if each.name == name]
        assert message in found.message

    def test_the_least_of_everything_is_possible(self) -> None:
        now = settings(
            "batch.initial.size=512",
            "batch.size=512",
            "batch.max.size=512",
            "max.request.size=512",
            "buffer.memory=512",
            "max.decompressed.bytes=512",
        )
        assert now.buffer_memory == 512
