"""PEM is read; everything else is refused in words that help."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from forebay_proxy.errors import StartError
from forebay_proxy.security import pem
from tests.kit.certificates import Authority


def test_certificates_and_key_are_found_among_other_text(tmp_path: Path) -> None:
    text = "Bag Attributes\n" + Authority(tmp_path).issue("a", "a.example").read_text() + "more\n"
    assert pem.certificates("s", text).count("BEGIN CERTIFICATE") == 2
    assert "PRIVATE KEY" not in pem.certificates("s", text)
    assert pem.private_key("s", text).startswith("-----BEGIN PRIVATE KEY-----")
    assert "CERTIFICATE" not in pem.private_key("s", text)


@pytest.mark.parametrize(
    ("data", "private", "why"),
    [
        (b"\xfe\xed\xfe\xed\0\0\0\2", False, "keytool -importkeystore -srckeystore DIR/store.jks"),
        (b"\x30\x82\x01\x02", True, "openssl pkcs12 -in DIR/store.jks -out DIR/store.pem"),
        (b"\x30\x82\x01\x02", False, "openssl pkcs12 -in DIR/store.jks -nokeys -out DIR/store.pem"),
    ],
)
def test_javas_formats_are_refused_with_the_command_that_converts_them(
    tmp_path: Path, data: bytes, private: bool, why: str
) -> None:
    path = tmp_path / "store.jks"
    path.write_bytes(data)
    path.chmod(0o600)
    with pytest.raises(StartError, match=re.escape(why.replace("DIR", str(tmp_path)))) as error:
        pem.read("ssl.keystore.location", str(path), private=private)
    assert "\n" not in str(error.value)


def test_a_key_that_others_can_read_is_refused(tmp_path: Path) -> None:
    path = Authority(tmp_path).issue("a", "a.example", private=False)
    with pytest.raises(StartError, match="can be read by others: chmod"):
        pem.read("ssl.keystore.location", str(path), private=True)
    assert pem.read("ssl.truststore.location", str(path), private=False)


def test_a_file_without_a_key_may_be_read_by_others(tmp_path: Path) -> None:
    path = Authority(tmp_path).pem
    path.chmod(0o644)
    text = pem.read("ssl.keystore.location", str(path), private=True)
    with pytest.raises(StartError, match="there must be one private key in PEM form in it, not 0"):
        pem.private_key("ssl.keystore.location", text)


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(StartError, match=r"ssl\.x: there is no certificate in PEM form in it"):
        pem.certificates("ssl.x", "-----BEGIN PRIVATE KEY-----\n-----END PRIVATE KEY-----")
    with pytest.raises(StartError, match="one private key in PEM form in it, not 0"):
        pem.private_key("ssl.x", "")
    with pytest.raises(StartError, match="cannot be read: Is a directory"):
        pem.read("ssl.x", str(tmp_path), private=False)
