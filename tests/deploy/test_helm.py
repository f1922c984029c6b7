"""The Helm chart: valid in the oldest and newest Kubernetes, its parts fit, and Forebay takes its settings."""

from __future__ import annotations

import re
import shutil
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from forebay_proxy.config.values import LISTENER_SETTINGS, SETTINGS
from forebay_proxy.process.supervisor import ASK_EVERY_S
from forebay_proxy.process.worker_slot import HUNG_S, SILENT_S
from tests.deploy.chart import CHART, NAME, NAMESPACE, NEWEST, OF_OPERATORS, Rendered, helm_template
from tests.deploy.files import DEPLOY, documents, forebay_config, kubeconform
from tests.deploy.schemas import KUBERNETES_VERSIONS
from tests.kit.certificates import Authority

LEAST: dict[str, Any] = {"bootstrapServers": ["kafka.kafka.svc:9092"]}
MONITORING = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}
ALL: dict[str, Any] = {
    "bootstrapServers": ["a:9093", "b:9093"],
    "brokers": {"ids": [1, 2, 5]},
    "port": 19092,
    "adminPort": 19000,
    "advertisedHost": "kafka.example.org",
    "settings": {
        "topics.include": ["orders"],
        "client.ids.include": ['a"b', "<&>"],
        "linger.ms": 5,
        "buffer.memory": 134217728,
        "partitioner.min.share": 0.01,
        "partitioner.rack.aware": True,
        "client.racks": {"10.1.0.0/16": "az-a", "10.2.0.0/16": "az-b"},
        "shutdown.timeout.ms": 45000,
        "journal.dir": "/var/lib/forebay",
    },
    "journalVolume": {"emptyDir": {"sizeLimit": "2Gi"}},
    "files": [{"secret": {"name": "orders", "items": [{"key": "sasl.jaas.config", "path": "sasl.jaas.config"}]}}],
    "extraEnv": [
        {"name": "OTEL_EXPORTER_OTLP_HEADERS", "valueFrom": {"secretKeyRef": {"name": "collector", "key": "headers"}}},
        {"name": "OTEL_SERVICE_NAME", "value": "edge"},
    ],
    "workers": 2,
    "image": {"repository": "example.org/forebay", "tag": "1.2", "pullSecrets": [{"name": "pull"}]},
    "service": {
        "type": "LoadBalancer",
        "annotations": {"example.org/scheme": "internal"},
        "loadBalancerSourceRanges": ["10.0.0.0/8"],
    },
    "autoscaling": {"enabled": True},
    "networkPolicy": {"clients": [{"ipBlock": {"cidr": "10.0.0.0/8"}}], "monitoring": [MONITORING]},
    "podMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
    "prometheusRule": {"enabled": True, "labels": {"release": "prometheus"}},
    "leaveSeconds": 20,
    "podAnnotations": {"a": "b"},
    "podLabels": {"team": "orders"},
    "nodeSelector": {"disk": "ssd"},
    "tolerations": [{"key": "edge", "operator": "Exists"}],
    "affinity": {"nodeAffinity": {}},
    "priorityClassName": "high",
}


@pytest.fixture(scope="module", params=[LEAST, ALL], ids=["least", "all"])
def chart(request: pytest.FixtureRequest) -> Rendered:
    return Rendered(request.param)


@pytest.mark.parametrize("version", KUBERNETES_VERSIONS)
def test_it_is_valid(chart: Rendered, version: str, tmp_path: Path) -> None:
    path = tmp_path / "chart.yaml"
    path.write_text(chart.of_kubernetes)
    answer = kubeconform(path, version)
    assert answer.returncode == 0, answer.stdout + answer.stderr
    ours = chart.objects.keys() - OF_OPERATORS
    assert f"Valid: {len(ours)}, Invalid: 0, Errors: 0, Skipped: 0" in answer.stdout


def test_a_wrong_value_gets_as_far_as_the_schemas(tmp_path: Path) -> None:
    path = tmp_path / "chart.yaml"
    path.write_text(Rendered({**LEAST, "tolerations": [{"key": ["edge"]}]}).text)
    assert "Invalid: 1" in kubeconform(path, KUBERNETES_VERSIONS[0]).stdout


@pytest.mark.parametrize("values", [LEAST, ALL], ids=["least", "all"])
def test_each_broker_has_its_port_wherever_clients_pass(values: dict[str, Any]) -> None:
    port = values.get("port", 9092)
    ids = values.get("brokers", {"ids": range(6)})["ids"]
    for ports in Rendered(values).ports():
        assert ports == {"bootstrap": port} | {f"broker-{node}": port + 1 + node for node in ids}


@pytest.mark.parametrize("protocol", ["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"])
def test_clients_are_told_of_no_broker_that_the_service_has_no_port_for(protocol: str) -> None:
    told = tomllib.loads(Rendered({**LEAST, "brokers": {"ids": [3, 12]}, "protocol": protocol}).settings)
    prefix = "" if protocol == "PLAINTEXT" else f"listener.name.{protocol.lower()}."
    assert (told[f"{prefix}node.ports"], told[f"{prefix}node.ports.only"]) == ({"3": 9096, "12": 9105}, True)


def test_selectors_find_the_pods(chart: Rendered) -> None:
    labels = chart.pod["metadata"]["labels"].items()
    selectors = [
        chart.objects["Deployment"]["spec"]["selector"]["matchLabels"],
        chart.objects["Service"]["spec"]["selector"],
        chart.objects["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"],
        chart.objects["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"],
    ]
    if "PodMonitor" in chart.objects:
        selectors.append(chart.objects["PodMonitor"]["spec"]["selector"]["matchLabels"])
    assert all(selector.items() <= labels for selector in selectors)
    assert all(each["metadata"]["name"] == NAME for each in chart.objects.values())


def test_the_kubelet_waits_for_longer_than_leaving_and_draining_take(chart: Rendered) -> None:
    sleep, leave = chart.container["lifecycle"]["preStop"]["exec"]["command"]
    assert sleep == "sleep"
    drain = tomllib.loads(chart.settings)["shutdown.timeout.ms"] / 1000
    assert chart.pod["spec"]["terminationGracePeriodSeconds"] > int(leave) + drain


def probes(container: Any) -> dict[str, Any]:
    """What each asks."""
    return {name: probe["httpGet"] for name, probe in container.items() if name.endswith("Probe")}


def test_probes_reach_the_admin_endpoint(chart: Rendered) -> None:
    """None but readiness counts brokers: one that fails has a pod started anew, ever later, until they are back."""
    (admin,) = (each for each in chart.container["ports"] if each["name"] == "admin")
    settings = tomllib.loads(chart.settings)
    address = f"0.0.0.0:{admin['containerPort']}"
    assert settings["admin"] == address
    assert {each["name"]: each.get("value") for each in chart.container["env"]}["FOREBAY_ADMIN"] == address
    assert probes(chart.container) == {
        "startupProbe": {"path": "/healthz", "port": "admin"},
        "readinessProbe": {"path": "/readyz", "port": "admin"},
        "livenessProbe": {"path": "/healthz", "port": "admin"},
    }


def test_probes_speak_tls_where_the_admin_endpoint_does() -> None:
    settings = {**ALL["settings"], "admin.ssl.keystore.location": "/etc/kafka/admin.pem"}
    chart = Rendered({**ALL, "settings": settings, "podMonitor": {"enabled": True, "endpoint": {"tlsConfig": {}}}})
    assert {probe["scheme"] for probe in probes(chart.container).values()} == {"HTTPS"}
    (endpoint,) = chart.objects["PodMonitor"]["spec"]["podMetricsEndpoints"]
    assert (endpoint["scheme"], endpoint["tlsConfig"]) == ("https", {})


def test_the_kubelet_leaves_a_worker_that_hangs_to_forebay(chart: Rendered) -> None:
    """Which kills that one: the kubelet would end all of them."""
    probe = chart.container["livenessProbe"]
    assert SILENT_S + (probe["failureThreshold"] - 1) * probe["periodSeconds"] > HUNG_S + ASK_EVERY_S


def test_it_listens_on_ipv6_where_pods_have_that() -> None:
    chart = Rendered({**LEAST, "bindAddress": "::"})
    settings = tomllib.loads(chart.settings)
    assert (settings["listen"], settings["admin"]) == ("[::]:9092", "[::]:9091")
    assert {each["name"]: each["value"] for each in chart.container["env"]}["FOREBAY_ADMIN"] == "[::]:9091"


def test_commands_in_the_container_find_the_socket(chart: Rendered) -> None:
    """Its root cannot be written to, so the socket has a volume."""
    mounts = {each["mountPath"]: each for each in chart.container["volumeMounts"]}
    (file,) = (each["value"] for each in chart.container["env"] if each["name"] == "FOREBAY_CONFIG")
    assert Path(file).parent.as_posix() in mounts
    mount = mounts[Path(tomllib.loads(chart.settings)["admin.socket"]).parent.as_posix()]
    assert "readOnly" not in mount
    assert "emptyDir" in next(each for each in chart.pod["spec"]["volumes"] if each["name"] == mount["name"])


def test_the_environment_has_more_where_that_is_wanted() -> None:
    ours = Rendered(LEAST).container["env"]
    assert [each["name"] for each in ours] == ["FOREBAY_ADMIN", "FOREBAY_CONFIG"]
    assert Rendered(ALL).container["env"][len(ours) :] == ALL["extraEnv"]


@pytest.mark.parametrize("protocol", ["SSL", "SASL_SSL"])
def test_clients_may_speak_tls_and_log_in(protocol: str, tmp_path: Path) -> None:
    keystore = Authority(tmp_path).issue("forebay", f"{NAME}.{NAMESPACE}.svc")
    settings = {f"listener.name.{protocol.lower()}.ssl.keystore.location": str(keystore)}
    if protocol == "SASL_SSL":
        settings["security.protocol"] = "SASL_SSL"
    chart = Rendered({**LEAST, "brokers": {"ids": [3, 12]}, "protocol": protocol, "settings": settings})
    told = tomllib.loads(chart.settings)
    assert told["listeners"] == [f"{protocol}://0.0.0.0:9092"]
    assert "listen" not in told
    config = tmp_path / "forebay.toml"
    config.write_text(chart.settings)
    answer = forebay_config("--config", str(config))
    assert answer.returncode == 0, answer.stderr


@pytest.mark.parametrize(
    ("tag", "label"),
    [
        ("1.2", "1.2"),
        (f"1.2@sha256:{'0' * 64}", f"1.2_sha256_{'0' * 52}"),
        (f"{'a' * 62}-b", "a" * 62),
        ("_a_", "a"),
        ("_", ""),
    ],
)
def test_any_tag_makes_a_label(tag: str, label: str) -> None:
    """Kubernetes takes 63 letters, digits and a few signs, the first and last of which are none."""
    chart = Rendered({**LEAST, "image": {"tag": tag}})
    assert chart.container["image"] == f"forebay:{tag}"
    for labels in (chart.pod["metadata"]["labels"], chart.objects["Service"]["metadata"]["labels"]):
        assert labels["app.kubernetes.io/version"] == label


def test_an_image_may_be_pinned() -> None:
    """Without the tag, since not everything that runs containers takes both."""
    digest = f"sha256:{'0f' * 32}"
    chart = Rendered({**LEAST, "image": {"repository": "example.org/forebay", "tag": "1.2", "digest": digest}})
    assert chart.container["image"] == f"example.org/forebay@{digest}"
    assert chart.pod["metadata"]["labels"]["app.kubernetes.io/version"] == "1.2"


def test_only_monitoring_reaches_the_admin_endpoint() -> None:
    """It is open to whom the NetworkPolicy lets in, which by default is nobody."""
    clients = Rendered(LEAST).objects["NetworkPolicy"]["spec"]["ingress"]
    assert [set(rule) for rule in clients] == [{"ports"}]
    limited, admin = Rendered(ALL).objects["NetworkPolicy"]["spec"]["ingress"]
    assert limited["from"] == ALL["networkPolicy"]["clients"]
    assert admin == {"ports": [{"port": "admin"}], "from": [MONITORING]}


def test_prometheus_gets_the_rules_that_there_are() -> None:
    assert "PrometheusRule" not in Rendered(LEAST).objects
    rule = Rendered(ALL).objects["PrometheusRule"]
    assert rule["spec"] == yaml.safe_load((DEPLOY / "prometheus" / "forebay.rules.yaml").read_text())
    assert rule["metadata"]["labels"].items() >= ALL["prometheusRule"]["labels"].items()


def test_forebay_takes_the_settings(tmp_path: Path) -> None:
    """Each as it was given: numbers of a values file are floats to Helm, and it would write 134217728 as 1.34e+08."""
    config = tmp_path / "forebay.toml"
    text = Rendered({**ALL, "files": []}).settings
    config.write_text(text)
    answer = forebay_config("--config", str(config))
    assert answer.returncode == 0, answer.stderr
    settings = tomllib.loads(text)
    assert settings.items() >= ALL["settings"].items()
    assert isinstance(settings["buffer.memory"], int)
    assert isinstance(settings["linger.ms"], int)
    assert settings["listen"] == "0.0.0.0:19092"
    assert settings["workers"] == 2


def test_clients_are_told_of_the_service_or_what_leads_to_it() -> None:
    """An empty advertised.host would tell them a pod's address, and strand them when it goes."""
    assert tomllib.loads(Rendered(LEAST).settings)["advertised.host"] == f"{NAME}.{NAMESPACE}.svc"
    assert tomllib.loads(Rendered(ALL).settings)["advertised.host"] == "kafka.example.org"


@pytest.mark.parametrize("protocol", ["PLAINTEXT", "SSL"])
def test_each_broker_may_have_an_address_of_its_own(protocol: str, tmp_path: Path) -> None:
    keystore = str(Authority(tmp_path).issue("forebay", "forebay"))
    settings = {"listener.name.ssl.ssl.keystore.location": keystore} if protocol == "SSL" else {}
    name = "listener.name.ssl.advertised.address" if protocol == "SSL" else "advertised.address"
    settings[name] = "b$(node).example.org:9092"
    config = tmp_path / "forebay.toml"
    config.write_text(Rendered({**LEAST, "protocol": protocol, "settings": settings}).settings)
    answer = forebay_config("--config", str(config))
    assert answer.returncode == 0, answer.stderr


def test_connections_come_anew_where_pods_do() -> None:
    name = "connections.max.age.ms"
    assert name not in tomllib.loads(Rendered(LEAST).settings)
    assert tomllib.loads(Rendered(ALL).settings)[name] == 600_000
    own = {**ALL, "settings": {**ALL["settings"], name: -1}}
    assert tomllib.loads(Rendered(own).settings)[name] == -1


def test_the_autoscaler_says_how_many_pods_there_are() -> None:
    least, scaled = Rendered(LEAST), Rendered(ALL)
    assert least.objects["Deployment"]["spec"]["replicas"] == 2
    assert "HorizontalPodAutoscaler" not in least.objects
    assert "replicas" not in scaled.objects["Deployment"]["spec"]
    assert scaled.objects["HorizontalPodAutoscaler"]["spec"]["scaleTargetRef"]["name"] == NAME
    assert str(scaled.container["resources"]["requests"]["cpu"]) == "2", "a part of the cores that two workers can use"


def test_a_journal_is_written_to_the_volume_that_is_mounted_where_it_belongs() -> None:
    chart = Rendered(ALL)
    assert {"name": "forebay-journal", **ALL["journalVolume"]} in chart.pod["spec"]["volumes"]
    assert {"name": "forebay-journal", "mountPath": "/var/lib/forebay"} in chart.container["volumeMounts"]


def test_volumes_have_names_of_forebays_own() -> None:
    """A sidecar's stand beside those of the producer, two of which may not have the same."""
    names = [each["name"] for each in Rendered(ALL).pod["spec"]["volumes"]]
    assert len(names) == 4
    assert all(name.startswith("forebay") for name in names)


MIB = 1 << 20


@pytest.mark.parametrize(
    ("limit", "workers", "kept"),
    [
        ("2Gi", 1, (2048 - 128) * MIB),
        ("2Gi", 4, (2048 - 512) * MIB),
        ("1.5Gi", 1, (1536 - 128) * MIB),
        ("300Mi", 1, (300 - 128) * MIB),
        ("500M", 1, 500_000_000 - 128 * MIB),
        ("2000000k", 1, 2_000_000_000 - 128 * MIB),
        (2147483648, 1, (2048 - 128) * MIB),
        ("2147483648", 1, (2048 - 128) * MIB),
    ],
)
def test_a_journal_stays_below_the_limit_of_its_volume(limit: str | int, workers: int, kept: int) -> None:
    """Above it the kubelet evicts the pod, which has a second to end. Closed files leave room for open ones."""
    values = {**LEAST, "workers": workers, "journalVolume": {"emptyDir": {"sizeLimit": limit}}}
    settings = {"journal.dir": "/var/lib/forebay"}
    told = tomllib.loads(Rendered({**values, "settings": settings}).settings)
    assert told["journal.retention.bytes"] == kept * 9 // 10
    own = {**settings, "journal.retention.bytes": kept}
    assert tomllib.loads(Rendered({**values, "settings": own}).settings)["journal.retention.bytes"] == kept
    for wrong in (kept + 1, -1):
        answer = helm_template({**values, "settings": {**settings, "journal.retention.bytes": wrong}})
        assert f"journal.retention.bytes must be from 0 to {kept}" in answer.stderr


@pytest.mark.parametrize("volume", [{"emptyDir": {}}, {"persistentVolumeClaim": {"claimName": "journal"}}])
def test_a_journal_without_a_limit_keeps_what_forebay_keeps(volume: dict[str, Any]) -> None:
    values = {**LEAST, "settings": {"journal.dir": "/var/lib/forebay"}, "journalVolume": volume}
    assert "journal.retention.bytes" not in tomllib.loads(Rendered(values).settings)


def test_smaller_files_leave_more_room_for_a_journal() -> None:
    settings = {"journal.dir": "/var/lib/forebay", "journal.segment.bytes": MIB}
    values = {**LEAST, "settings": settings, "journalVolume": {"emptyDir": {"sizeLimit": "102Mi"}}}
    assert tomllib.loads(Rendered(values).settings)["journal.retention.bytes"] == 90 * MIB


@pytest.mark.parametrize(
    ("name", "value"), [("admin.socket", ""), ("log.format", "console"), ("shutdown.timeout.ms", 0)]
)
def test_what_users_set_counts_also_where_it_is_nothing(name: str, value: object) -> None:
    assert tomllib.loads(Rendered({**LEAST, "settings": {name: value}}).settings)[name] == value


def test_a_setting_that_is_null_is_not_given() -> None:
    assert Rendered({**LEAST, "settings": {"log.format": None, "linger.ms": None}}).settings == Rendered(LEAST).settings


def nested(settings: dict[str, Any]) -> dict[str, Any]:
    """As `--set settings.linger.ms=5` has it."""
    found: dict[str, Any] = {}
    for name, value in settings.items():
        *above, last = name.split(".")
        inner = found
        for word in above:
            inner = inner.setdefault(word, {})
        inner[last] = value
    return found


def test_settings_may_be_nested_as_in_a_file() -> None:
    """With a volume and memory that follow them."""
    settings = {**ALL["settings"], "admin.ssl.keystore.location": "/etc/kafka/admin.pem", "log.format": None}
    told = Rendered({**ALL, "settings": nested(settings)})
    assert told.objects == Rendered({**ALL, "settings": settings}).objects
    assert told.container["resources"]["limits"]["memory"] == "1160Mi"


def test_a_chart_knows_which_settings_are_maps() -> None:
    of_listeners = [f"listener.name.ssl.{name}" for name, setting in LISTENER_SETTINGS.items() if setting.is_map]
    names = [*(name for name, setting in SETTINGS.items() if setting.is_map), *of_listeners]
    settings = {name: {"a.b": {"c": 1}} for name in names if not name.endswith("node.ports")} | {
        name: {"7": 9093} for name in names if name.endswith("node.ports")
    }
    told = tomllib.loads(Rendered({**LEAST, "mode": "sidecar", "settings": nested(settings)}, NEWEST).settings)
    assert told.items() >= settings.items()


def test_memory_follows_what_workers_may_hold() -> None:
    """56 + 32 + 32 + 32 + 64 + 2 x 64 MiB; 128, and 16 of a journal, instead of 32 twice; 16 of history; a quarter."""

    def limit(values: dict[str, Any]) -> Any:
        return Rendered(values).container["resources"]["limits"]["memory"]

    assert limit(LEAST) == "450Mi"
    assert limit(ALL) == "1160Mi"
    assert limit({**LEAST, "settings": {"journal.topic": "rows", "admin.history.bytes": 100 << 20}}) == "575Mi"
    own = {"limits": {"memory": "1Gi"}}
    assert Rendered({**LEAST, "resources": own}).container["resources"] == own
    unbounded = {**LEAST, "settings": {"queued.max.request.bytes": -1}, "resources": own}
    assert Rendered(unbounded).container["resources"] == own


def test_new_settings_replace_the_pods() -> None:
    def checksum(values: dict[str, Any]) -> str:
        return str(Rendered(values).pod["metadata"]["annotations"]["checksum/settings"])

    assert checksum(LEAST) == checksum({**LEAST, "replicas": 3})
    assert checksum(LEAST) != checksum({**LEAST, "settings": {"linger.ms": 5}})


@pytest.fixture(scope="module")
def telling(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The chart, with an object that has the notes: `helm template` leaves them out."""
    chart = tmp_path_factory.mktemp("telling") / "forebay"
    shutil.copytree(CHART, chart)
    (chart / "templates" / "told.yaml").write_text(
        'kind: Notes\ntext: {{ include (print .Template.BasePath "/NOTES.txt") . | toJson }}\n'
    )
    return chart


@pytest.mark.parametrize(
    ("settings", "command"),
    [
        ({}, f"exec deploy/{NAME} -- forebay top --once --url http://127.0.0.1:9091"),
        ({"admin.ssl.keystore.location": "/etc/kafka/admin.pem"}, f"rollout status deploy/{NAME}"),
        ({"admin.bearer.token": "${file:/etc/kafka/secrets:token}"}, f"rollout status deploy/{NAME}"),
    ],
)
def test_the_notes_have_a_command_that_needs_neither_a_certificate_nor_a_token(
    telling: Path, settings: dict[str, Any], command: str
) -> None:
    """In the container nobody has these."""
    text = Rendered({**LEAST, "settings": settings}, chart=telling).objects["Notes"]["text"]
    assert re.findall("kubectl .*", text) == [f"kubectl --namespace {NAMESPACE} {command}"]


def test_secrets_are_mounted_as_in_the_sidecar() -> None:
    secured = DEPLOY / "kubernetes" / "secured-sidecar.yaml"
    (deployment,) = (each for each in documents(secured) if each["kind"] == "Deployment")
    sidecar = deployment["spec"]["template"]["spec"]
    (volume,) = (each for each in sidecar["volumes"] if each["name"] == "forebay-files")
    chart = Rendered({**LEAST, "files": volume["projected"]["sources"]})
    assert volume in chart.pod["spec"]["volumes"]
    assert chart.pod["spec"]["securityContext"] == sidecar["securityContext"]
    (forebay,) = sidecar["initContainers"]
    assert [each for each in chart.container["volumeMounts"] if each["name"] != "forebay-run"] == forebay[
        "volumeMounts"
    ]
    assert chart.container["securityContext"] == forebay["securityContext"]


def limited(size: str) -> dict[str, Any]:
    return {"settings": {"journal.dir": "/var/lib/forebay"}, "journalVolume": {"emptyDir": {"sizeLimit": size}}}


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({}, "bootstrapServers"),
        ({**LEAST, "settings": {"advertised.host": "x"}}, "advertised.host is the chart's own to set"),
        ({**LEAST, "brokers": {"ids": [1, 1]}}, "ids"),
        ({**LEAST, "settings": {"listeners": ["SSL://0.0.0.0:9092"]}}, "listeners is the chart's own to set"),
        ({**LEAST, "protocol": "TLS"}, "protocol"),
        ({**LEAST, "bindAddress": "10.0.0.1"}, "bindAddress"),
        ({**LEAST, "port": 9088}, "broker 2 cannot be on port 9091"),
        ({**LEAST, "brokers": {"ids": [60000]}}, "broker 60000 cannot be on port 69093"),
        ({**LEAST, "port": 70000}, "port"),
        ({**LEAST, "replica": 3}, "replica"),
        ({**LEAST, "image": {"digest": "1.2"}}, "digest"),
        ({**LEAST, "extraEnv": [{"name": "FOREBAY_ADMIN", "value": "x"}]}, "FOREBAY_ADMIN is the chart's own to set"),
        ({**LEAST, "extraEnv": [{"name": "FOREBAY_CONFIG", "value": "x"}]}, "FOREBAY_CONFIG is the chart's own"),
        ({**LEAST, "extraEnv": [{"name": "FOREBAY_WORKERS", "value": "2"}]}, "FOREBAY_WORKERS is the chart's own"),
        ({**LEAST, "extraEnv": [{"name": "A", "value": 1}]}, "extraEnv"),
        ({**LEAST, "settings": {"journal.dir": "/var/lib/forebay"}}, "journal.dir needs a journalVolume"),
        ({**LEAST, "journalVolume": {"emptyDir": {}}}, "settings have no journal.dir"),
        ({**LEAST, **limited("128Mi")}, "sizeLimit must be more than 134217728 bytes"),
        ({**LEAST, **limited("2 GB")}, "sizeLimit 2 GB is not a size like 2Gi or 500M"),
        (
            {**LEAST, "extraEnv": [{"name": "FOREBAY_NODE_PORTS", "value": "7:1"}]},
            "FOREBAY_NODE_PORTS is the chart's own",
        ),
        ({**LEAST, "settings": {"node.ports": {"7": 9093}}}, "node.ports cannot be set"),
        ({**LEAST, "settings": {"node": {"ports": {"7": 9093}}}}, "node.ports cannot be set"),
        ({**LEAST, "settings": {"advertised": {"host": "x"}}}, "advertised.host is the chart's own to set"),
        (
            {**LEAST, "advertisedHost": "x", "settings": {"advertised.address": "b$(node).x:9092"}},
            "advertisedHost: cannot be set together with advertised.address",
        ),
        ({**LEAST, "settings": {"linger.ms": 3, "linger": {"ms": 5}}}, "linger.ms is set twice"),
        ({**LEAST, "settings": {"queued.max.request.bytes": -1}}, "resources must have a memory limit"),
        (
            {**LEAST, "settings": {"queued.max.request.bytes": -1}, "resources": {"requests": {"memory": "1Gi"}}},
            "resources must have a memory limit",
        ),
        ({**LEAST, "settings": {"node.ports.only": False}}, "node.ports.only cannot be set"),
        (
            {**LEAST, "protocol": "SASL_SSL", "settings": {"listener.name.sasl_ssl.node.ports": {"7": 9093}}},
            "listener.name.sasl_ssl.node.ports cannot be set",
        ),
    ],
)
def test_what_cannot_work_is_refused_in_words(values: dict[str, Any], said: str) -> None:
    answer = helm_template(values)
    assert answer.returncode != 0
    assert said in answer.stderr
