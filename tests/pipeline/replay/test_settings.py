"""The grid, and the settings of which it is made: the proxy's own names, defaults and bounds."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from forebay_pipeline.errors import CannotRun
from forebay_pipeline.replay import settings
from forebay_pipeline.replay.settings import (
    DEFAULT_GRID,
    NAMES,
    OTHERS,
    Simulated,
    read_grid,
    read_limits,
    read_present,
    taken,
    toml_value,
    variants,
)
from forebay_policies.builtin_partitioners import BUILT_IN
from forebay_proxy.config.settings import ALIASES, conflicts
from forebay_proxy.config.sources import Sources, load
from forebay_proxy.config.values import SETTINGS


def test_names_defaults_and_bounds_are_those_of_the_proxy() -> None:
    defaults = Simulated()
    for name in NAMES:
        setting = SETTINGS[name]
        assert getattr(defaults, setting.attribute) == setting.default, name
        if setting.bounds:
            least, greatest = setting.bounds
            read_grid([f"{name}={least},{greatest}"])
            for beyond in (least - 1, greatest + 1):
                with pytest.raises(CannotRun, match=rf"must be a whole number from {least} to {greatest}"):
                    read_grid([f"{name}={beyond}"])


@pytest.mark.parametrize("name", OTHERS)
def test_so_are_defaults_of_others(name: str) -> None:
    assert OTHERS[name] == SETTINGS[name].default


def test_a_grid_is_every_combination_after_the_present_settings() -> None:
    grid = read_grid(["partitioner=adaptive,uniform linger.ms=0,5", "batch.size=16384"])
    found = variants({"linger.ms": "5", "buffer.memory": "1000000"}, grid)

    assert [(each.settings.partitioner, each.settings.linger_ms) for each in found] == [
        ("adaptive", 5),
        ("adaptive", 0),
        ("uniform", 0),
        ("uniform", 5),
    ]
    assert all(each.settings.buffer_memory == 1_000_000 for each in found)
    assert found[0].named == {
        "partitioner": "adaptive",
        "linger.ms": "5",
        "batch.size": "16384",
        "buffer.memory": "1000000",
    }


def test_the_default_grid_is_one() -> None:
    assert len(variants({}, read_grid([DEFAULT_GRID]))) == 6


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("linger.ms", "'linger.ms' must be NAME=VALUE,VALUE…"),
        ("lingerms=5", "lingerms is not a setting that can be replayed; those are partitioner, .*linger.ms"),
        ("linger.ms=soon", "linger.ms=soon: must be a whole number from -1 to 60000"),
        ("linger.ms=", "linger.ms=: must be a whole number"),
        ("linger.ms=1,,2", "linger.ms=: must be a whole number"),
        ("linger.ms=1 linger.ms=2", "linger.ms is in the grid twice"),
        ("partitioner=random", "must be one of adaptive, expected_wait, uniform, sticky, round_robin"),
        ("partitioner.min.share=1.5", "must be a number from 0 to 1"),
        ("partitioner.adaptive.partitioning.enable=maybe", "must be true or false"),
        (
            "batch.size=524288",
            "batch.max.size=262144 with batch.size=524288: batch.max.size must be at least batch.size",
        ),
        ("batch.size=5000", "batch.size=5000: must be a multiple of batch.initial.size, 4096"),
        ("linger.ms=" + ",".join(map(str, range(1001))), "1,001 combinations; at most 1,000"),
    ],
)
def test_what_cannot_be_is_said(text: str, message: str) -> None:
    with pytest.raises(CannotRun, match=message):
        variants({}, read_grid([text]))


def test_the_present_settings_come_from_the_proxy_s_file_and_the_command_line(tmp_path: Path) -> None:
    file = tmp_path / "forebay.toml"
    file.write_text(
        '"bootstrap.servers" = ["a:9092"]\n[linger]\nms = 7\n["partitioner.adaptive"]\n"partitioning.enable" = false\n'
        "[batch]\nsize = 32768\n"
    )
    assert read_present(str(file), ["linger.ms=9"]) == {
        "linger.ms": "9",
        "partitioner.adaptive.partitioning.enable": "false",
        "batch.size": "32768",
    }


def test_what_forebay_would_refuse_beside_its_other_settings_is_not_tried(tmp_path: Path) -> None:
    """As its own checks have it. The present settings are what they are."""
    found = variants({"linger.ms": "9"}, read_grid(["linger.ms=-1,5,6 batch.max.size=262144,524288"]))
    assert taken(found, read_limits(None)) == found
    file = tmp_path / "forebay.toml"
    others = {"request.timeout.ms": 30_000, "delivery.timeout.ms": 30_005, "max.decompressed.bytes": 262_144}
    known = '"bootstrap.servers" = "kafka:9092"\n"listen" = "127.0.0.1:19092"\n'
    file.write_text(known + "".join(f'"{name}" = {value}\n' for name, value in others.items()))
    kept = taken(found, read_limits(str(file)))
    assert [(each.settings.linger_ms, each.settings.batch_max_size) for each in kept] == [
        (9, 262_144),
        (-1, 262_144),
        (5, 262_144),
    ]
    base = load(Sources(config=str(file)), BUILT_IN).settings
    for each in found[1:]:
        linger_ms, batch_max_size = each.settings.linger_ms, each.settings.batch_max_size
        tried = msgspec.structs.replace(base, linger_ms=linger_ms, batch_max_size=batch_max_size)
        assert (each in kept) is not any(conflicts(tried))
    file.write_text('"request.timeout.ms" = "30s"\n')
    with pytest.raises(CannotRun, match=r"request\.timeout\.ms=30s: must be a whole number"):
        read_limits(str(file))


def test_a_file_may_begin_with_the_mark_of_windows_editors(tmp_path: Path) -> None:
    file = tmp_path / "forebay.toml"
    file.write_text('\ufeff"linger.ms" = 7\n')
    assert read_present(str(file), []) == {"linger.ms": "7"}


def test_other_names_are_those_of_the_proxy(tmp_path: Path) -> None:
    assert settings.ALIASES == ALIASES
    file = tmp_path / "forebay.toml"
    file.write_text('"enable.adaptive.partitioning" = false\n')
    assert read_present(str(file), ["partition.availability.timeout.ms=5"]) == {
        "partitioner.adaptive.partitioning.enable": "false",
        "partitioner.availability.timeout.ms": "5",
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('"linger.ms" = "x"', "linger.ms=x"),
        ("=", "is not TOML"),
        ("x = " + 5000 * "9", "is not TOML: Exceeds the limit"),
    ],
)
def test_a_wrong_file_is_said_to_be_wrong(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "forebay.toml"
    file.write_text(text)
    with pytest.raises(CannotRun, match=message):
        read_present(str(file), [])
    with pytest.raises(CannotRun, match="Cannot read"):
        read_present(str(tmp_path / "none.toml"), [])


def test_values_are_written_as_toml_has_them() -> None:
    made = msgspec.convert({"partitioner": "uniform", "partitioner.min.share": 0.1}, Simulated)

    assert toml_value(made, "partitioner") == '"uniform"'
    assert toml_value(made, "partitioner.min.share") == "0.1"
    assert toml_value(made, "partitioner.adaptive.partitioning.enable") == "true"
    assert toml_value(made, "linger.ms") == "-1"
