"""Certificates and keys in PEM form, from a file or from a setting.

In: what a setting says. Out: PEM text. Java's own formats are refused with the command that converts them, and a file
with a private key that others can read is refused too. What is wrong is raised as StartError, one line for a person.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

from forebay_proxy.config.providers import MAX_BYTES, public
from forebay_proxy.errors import StartError

_JKS: Final = b"\xfe\xed\xfe\xed"
_DER_SEQUENCE: Final = b"\x30"
_BLOCK: Final = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----\s.*?-----END \1-----", re.DOTALL)


def read(setting: str, path: str, *, private: bool) -> str:
    """The text of a PEM file. `private`: it holds a key."""
    try:
        with Path(path).open("rb") as file:
            data = file.read(MAX_BYTES)
            if private and b"PRIVATE KEY" in data and public(os.fstat(file.fileno()).st_mode):
                raise StartError(f"{setting}: {path} holds a key and can be read by others: chmod o-rwx {path}")
    except OSError as error:
        raise StartError(f"{setting}: {path} cannot be read: {error.strerror or error}") from None
    bare = path.rsplit(".", 1)[0]
    kind = "" if private else "-nokeys "
    if data.startswith(_JKS):
        raise StartError(
            f"{setting}: {path} is a JKS file, and only PEM is read; convert it with: keytool -importkeystore "
            f"-srckeystore {path} -destkeystore {bare}.p12 -deststoretype PKCS12 && "
            f"openssl pkcs12 -in {bare}.p12 {kind}-out {bare}.pem"
        )
    if data.startswith(_DER_SEQUENCE):
        raise StartError(
            f"{setting}: {path} is a PKCS12 file, and only PEM is read; convert it with: "
            f"openssl pkcs12 -in {path} {kind}-out {bare}.pem"
        )
    return data.decode("utf-8", "replace")


def certificates(setting: str, text: str) -> str:
    """All certificates in the text, and nothing else of it. Where one is cut short, others may be missing: an error."""
    if len(_BLOCK.findall(text)) != text.count("-----BEGIN "):
        raise StartError(f"{setting}: it is cut short, or not all of it is in PEM form")
    found = [block[0] for block in _BLOCK.finditer(text) if block[1].endswith("CERTIFICATE")]
    if not found:
        raise StartError(f"{setting}: there is no certificate in PEM form in it")
    if not all(map(str.isascii, found)):
        raise StartError(f"{setting}: a certificate in it is damaged: it has characters that are not ASCII")
    return "\n".join(found) + "\n"


def private_key(setting: str, text: str) -> str:
    """The private key in the text."""
    found = [block[0] for block in _BLOCK.finditer(text) if block[1].endswith("PRIVATE KEY")]
    if len(found) != 1:
        raise StartError(f"{setting}: there must be one private key in PEM form in it, not {len(found)}")
    return found[0] + "\n"
