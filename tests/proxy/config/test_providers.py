"""References to values that stand elsewhere, and the files that are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from forebay_proxy.config.providers import MAX_BYTES, is_reference, read_settings, refuse_others, resolve


def private(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(0o600)
    return path


def test_each_provider(tmp_path: Path) -> None:
    private(tmp_path / "kafka.properties", "password=from a file\n")
    private(tmp_path / "password", "from a folder\n")
    text = f"a ${{file:{tmp_path}/kafka.properties:password}}, ${{dir:{tmp_path}:password}}, ${{env:PASSWORD}}."
    assert resolve(text, {"PASSWORD": "${env:X}"}) == "a from a file, from a folder, ${env:X}."


def test_a_mark_at_the_beginning_is_none_of_the_text(tmp_path: Path) -> None:
    private(tmp_path / "kafka.properties", "\ufeffpassword=from a file\n")
    private(tmp_path / "password", "\ufefffrom a folder\r\n")
    text = f"${{file:{tmp_path}/kafka.properties:password}}, ${{dir:{tmp_path}:password}}"
    assert resolve(text, {}) == "from a file, from a folder"
    assert read_settings(str(private(tmp_path / "forebay.toml", "\ufeffa = 1"))) == "a = 1"


@pytest.mark.parametrize("text", ["", "$", "${", "${vault:a:b}", "$env:A", "{env:A}", "plain"])
def test_what_is_no_reference_stays(text: str) -> None:
    assert resolve(text, {}) == text
    assert not is_reference(text)


@pytest.mark.parametrize("text", ["", "$", "${", "${canary}", "$env:A", "{env:A}", "a ${env:A}, ${dir:/a:b}", "a:b"])
def test_what_begins_like_no_reference_or_is_one_is_not_refused(text: str) -> None:
    refuse_others(text)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (
            "${vault:canary:token}",
            "refers to a provider that is not known (by file, dir and env a password with ${ in it can be given, too)",
        ),
        ("canary ${env:A} ${directory:/canary:y}", "refers to a provider that is not known"),
        ("${File:/canary:y}", "refers to a provider that is not known"),
        ("${env:canary", "has a reference ${env:… without a closing brace"),
        ("${env:A}${file:/canary:y", "has a reference ${file:… without a closing brace"),
    ],
)
def test_what_begins_like_a_reference_and_is_none_is_refused_and_not_shown(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=r"\w") as error:
        refuse_others(text)
    assert str(error.value).startswith(why)
    assert "canary" not in str(error.value)


def test_what_is_one_reference_gives_nothing_away() -> None:
    assert is_reference("${env:A}")
    assert not is_reference("${env:A} and more")
    assert not is_reference("${env:A}${env:B}")


@pytest.mark.parametrize(
    ("reference", "why"),
    [
        ("${env:NONE}", "environment variable NONE, which is not set"),
        ("${env:BYTES}", "is not UTF-8 text"),
        ("bytes\udcff", "is not UTF-8 text"),
        ("${file:DIR/none:a}", "DIR/none cannot be read: No such file"),
        ("${file:DIR/kafka.properties:none}", "refers to none in DIR/kafka.properties, which has no such name"),
        ("${file:only-a-path}", "not of the form ${file:path:key}"),
        ("${dir:DIR:../password}", "is not the name of a file"),
        ("${dir:DIR:..}", "is not the name of a file"),
        ("${dir:DIR:none}", "DIR/none cannot be read"),
        ("${dir:DIR:open}", "DIR/open can be read by others: chmod o-rwx DIR/open"),
        ("${file:DIR/open:a}", "DIR/open can be read by others: chmod o-rwx DIR/open"),
        ("${dir:DIR:large}", "is larger than"),
        ("${dir:DIR:bytes}", "is not UTF-8 text"),
        ("${file:DIR/broken:a}", "hexadecimal"),
    ],
)
def test_what_cannot_be_resolved_says_why_and_shows_nothing(tmp_path: Path, reference: str, why: str) -> None:
    private(tmp_path / "kafka.properties", "a=canary")
    private(tmp_path / "open", "a=canary").chmod(0o644)
    private(tmp_path / "large", "canary" * MAX_BYTES)
    private(tmp_path / "broken", "a=canary\\u1")
    private(tmp_path / "bytes", "").write_bytes(b"canary\xff")
    with pytest.raises(ValueError, match=r"\w") as error:
        resolve(reference.replace("DIR", str(tmp_path)), {"BYTES": "canary\udcff"})
    assert why.replace("DIR", str(tmp_path)) in str(error.value)
    assert "canary" not in str(error.value)


def test_a_group_may_read_it_as_kubernetes_mounts_it(tmp_path: Path) -> None:
    private(tmp_path / "password", "x").chmod(0o440)
    assert resolve(f"${{dir:{tmp_path}:password}}", {}) == "x"
