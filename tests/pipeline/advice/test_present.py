"""The proxy's settings, as far as advice depends on them."""

from __future__ import annotations

from pathlib import Path

import pytest

from forebay_pipeline.advice.present import DEFAULTS, Present, read
from forebay_pipeline.errors import CannotRun
from forebay_proxy.config.values import SETTINGS


@pytest.mark.parametrize("name", DEFAULTS)
def test_defaults_are_the_proxys(name: str) -> None:
    assert DEFAULTS[name] == SETTINGS[name].default


def test_a_file_is_read_as_forebay_reads_it(tmp_path: Path) -> None:
    path = tmp_path / "forebay.toml"
    path.write_text('"topics.exclude" = "a, b*"\n"partitioner.rack.aware" = true\n[linger]\nms = 7\n')
    present = read(str(path))
    assert present.known
    assert present.patterns("topics.exclude") == ("a", "b*")
    assert present.text("partitioner.rack.aware") == "true"
    path.write_text('"partitioner.rack.aware" = "true"\n"linger.ms" = "7"\n')
    assert (read(str(path)).text("partitioner.rack.aware"), read(str(path)).number("linger.ms")) == ("true", 7)
    assert (present.number("linger.ms"), present.number("batch.size")) == (7, 16_384)


@pytest.mark.parametrize(
    ("written", "one"),
    [
        ("", None),
        ('"client.rack" = ""', None),
        ('"client.rack" = "a"', True),
        ('"client.rack" = "a"\n"client.racks" = {}', True),
        ('"client.rack" = "a"\n"client.racks" = { "10.1.0.0/16" = "a" }', False),
        ('"client.racks" = "10.1.0.0/16=a"', False),
        ('"client.rack" = "a"\n"listener.name.inside.client.rack" = "b"', False),
        ('"client.rack" = "a"\n[listener.name.inside]\n"client.rack" = "b"', False),
    ],
)
def test_whether_all_clients_are_in_one_rack(tmp_path: Path, written: str, one: bool | None) -> None:
    path = tmp_path / "forebay.toml"
    path.write_text(written)
    assert read(str(path)).one_rack is one
    assert Present().one_rack is None


def test_without_a_file_nothing_is_known() -> None:
    assert read(None) == Present()
    assert not Present().known
    assert (Present().text("moves"), Present().patterns("topics.move")) == ("on", ())


def test_what_cannot_be_read_is_said(tmp_path: Path) -> None:
    path = tmp_path / "forebay.toml"
    with pytest.raises(CannotRun, match="Cannot read"):
        read(str(path))
    for written in (
        '"linger.ms" = "5ms"',
        '"max.decompressed.bytes" = "64MiB"',
        "[linger]\nms = inf",
        f"[linger]\nms = 1{0:0400}",
    ):
        path.write_text(written)
        with pytest.raises(CannotRun, match=r"(linger\.ms|max\.decompressed\.bytes)=.+ is not a number"):
            read(str(path))
    path.write_text("=")
    with pytest.raises(CannotRun, match="is not TOML"):
        read(str(path))
