"""Partitioners of others: found by entry point, loaded with clear errors, harmless when they fail."""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest

from forebay_policies.partitioner import Partitioner, PartitionerOptions
from forebay_proxy.produce.partitioner_plugins import GROUP, known_partitioners, load_partitioner
from tests.policies.fakes import FakeTopic

DOCUMENT = Path(__file__).parents[3] / "docs" / "partitioners.md"

Install = Callable[[str, str, dict[str, str]], None]


class Reports:
    """What the log would have been told."""

    def __init__(self) -> None:
        self.messages: list[str] = []
        self.errors: list[Exception | None] = []

    def __call__(self, message: str, error: Exception | None) -> None:
        self.messages.append(message)
        self.errors.append(error)


@pytest.fixture
def reports() -> Reports:
    return Reports()


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Puts a module and its entry points where an installed package has them."""
    modules: list[str] = []
    monkeypatch.syspath_prepend(str(tmp_path))

    def do(module: str, source: str, points: dict[str, str]) -> None:
        modules.append(module)
        (tmp_path / f"{module}.py").write_text(source)
        info = tmp_path / f"{module}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
        lines = [f"[{GROUP}]", *(f"{name} = {value}" for name, value in points.items())]
        (info / "entry_points.txt").write_text("\n".join(lines) + "\n")

    yield do
    for module in modules:
        sys.modules.pop(module, None)


def made(name: str, reports: Reports) -> Partitioner:
    return load_partitioner(name, reports)(options())


def options(seed: int = 1) -> PartitionerOptions:
    return PartitionerOptions(rng=Random(seed), batch_size=100)


def blocks(language: str) -> str:
    (found,) = re.findall(rf"```{language}\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    assert isinstance(found, str)
    return found


# found and loaded


def test_the_example_in_the_documentation_runs(install: Install, reports: Reports) -> None:
    points = tomllib.loads(blocks("toml"))["project"]["entry-points"][GROUP]
    ((name, value),) = points.items()
    install(value.partition(":")[0], blocks("python"), points)

    assert name in known_partitioners()
    partitioner = made(name, reports)

    busy = FakeTopic(2, loads={0: 5000})
    chosen = [partitioner.partition(busy, 10, 0.0) for _ in range(400)]
    assert 50 < chosen.count(0) < 150  # the busy one only where both draws hit it: 100 expected, deviation 8.7
    idle = FakeTopic(2)
    assert {partitioner.partition(idle, 10, 0.0) for _ in range(200)} == {0, 1}
    assert partitioner.choices()["chosen"] == 400
    assert partitioner.choices()["no_opinion"] == 200
    assert reports.messages == []


@pytest.mark.parametrize("name", ["adaptive", "expected_wait", "uniform", "sticky", "round_robin"])
def test_built_in_names_give_built_in_partitioners(name: str, reports: Reports) -> None:
    assert made(name, reports).choices() == {"sticky": 0, "switch": 0}


def test_a_built_in_name_cannot_be_taken_over(install: Install, reports: Reports) -> None:
    install("takeover", "raise RuntimeError('imported')", {"uniform": "takeover:make"})
    assert made("uniform", reports).choices() == {"sticky": 0, "switch": 0}


def test_an_unknown_name_is_refused_with_those_that_are_known(install: Install, reports: Reports) -> None:
    install("others", "", {"nearest": "others:make"})

    with pytest.raises(ValueError, match="'neerest' is unknown") as caught:
        load_partitioner("neerest", reports)
    assert "adaptive, expected_wait, nearest, round_robin, sticky, uniform" in str(caught.value)
    assert GROUP in str(caught.value)


@pytest.mark.parametrize(
    ("source", "what"),
    [
        ("raise OSError('no licence')", "OSError: no licence"),
        ("", "AttributeError"),
        ("import a_package_that_is_not_there", "ModuleNotFoundError"),
        ("make = 42", "not callable"),
    ],
)
def test_what_cannot_be_loaded_is_refused_and_says_why(
    install: Install,
    reports: Reports,
    source: str,
    what: str,
) -> None:
    install("broken", source, {"mine": "broken:make"})
    with pytest.raises(ValueError, match=rf"'mine'.*{what}"):
        load_partitioner("mine", reports)


def test_a_name_that_two_packages_provide_is_refused(install: Install, reports: Reports) -> None:
    install("one", "", {"mine": "one:make"})
    install("two", "", {"mine": "two:make"})
    with pytest.raises(ValueError, match="more than once: one:make, two:make"):
        load_partitioner("mine", reports)


# at run time

RAISES = """
class Mine:
    def __init__(self, options):
        pass
    def partition(self, topic, size, now):
        raise ZeroDivisionError("in partition")
    def on_new_batch(self, topic, partition):
        raise KeyError("in on_new_batch")
    def on_acknowledged(self, partition, seconds):
        raise ValueError("in on_acknowledged")
"""


def test_one_that_raises_has_no_opinion_and_is_reported_once_over_all_topics(
    install: Install,
    reports: Reports,
) -> None:
    install("raising", RAISES, {"mine": "raising:Mine"})
    factory = load_partitioner("mine", reports)
    topic = FakeTopic(3)

    for partitioner in [factory(options()), factory(options())]:
        assert {partitioner.partition(topic, 100, 0.0) for _ in range(100)} == {0, 1, 2}
        assert partitioner.on_new_batch(topic, 0) is False
        partitioner.on_acknowledged(0, 0.1)
        assert partitioner.choices() == {
            "sticky": 0,
            "switch": 100,
            "chosen": 0,
            "no_opinion": 100,
            "invalid": 0,
        }

    assert reports.messages == [
        "partitioner 'mine' raised ZeroDivisionError in partition; the default (adaptive) decides instead",
        "partitioner 'mine' raised KeyError in on_new_batch; the default (adaptive) decides instead",
        "partitioner 'mine' raised ValueError in on_acknowledged; the default (adaptive) decides instead",
    ]
    assert [type(error) for error in reports.errors] == [ZeroDivisionError, KeyError, ValueError]


@pytest.mark.parametrize("body", ["raise RuntimeError('no')", "pass"])
def test_a_factory_that_fails_leaves_the_default(install: Install, reports: Reports, body: str) -> None:
    """It raises, or returns what is not a partitioner."""
    install("unmade", f"def make(options):\n    {body}\n", {"mine": "unmade:make"})
    factory = load_partitioner("mine", reports)

    for partitioner in [factory(options()), factory(options(2))]:
        assert {partitioner.partition(FakeTopic(3), 100, 0.0) for _ in range(100)} == {0, 1, 2}
    assert len(reports.messages) == 1
    assert "'mine' raised" in reports.messages[0]


def test_a_wrong_answer_is_reported_once_over_all_topics(install: Install, reports: Reports) -> None:
    source = (
        "from forebay_policies.partitioner import BasePartitioner\n"
        "class Mine(BasePartitioner):\n"
        "    def __init__(self, options):\n"
        "        super().__init__()\n"
        "    def partition(self, topic, size, now):\n"
        "        return 99\n"
    )
    install("wrong", source, {"mine": "wrong:Mine"})
    factory = load_partitioner("mine", reports)

    for partitioner in [factory(options()), factory(options())]:
        assert partitioner.partition(FakeTopic(3), 100, 0.0) in {0, 1, 2}
    assert reports.messages == [
        "partitioner 'mine' answered 99 for topic 'topic'; allowed are -1 to 2; the default (adaptive) decides instead"
    ]
    assert reports.errors == [None]
