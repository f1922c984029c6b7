"""Cipher suites by Java's names, which are IANA's, as in `ssl.cipher.suites`. For TLS 1.2 OpenSSL has names of its own.

    TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256            ECDHE-RSA-AES128-GCM-SHA256
    TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256    ECDHE-ECDSA-CHACHA20-POLY1305
    TLS_RSA_WITH_AES_256_CBC_SHA                     AES256-SHA
    TLS_AES_256_GCM_SHA384                           the same: TLS 1.3

In: a context that has its versions of TLS, and names. Out: it speaks these, and only those of its versions that they
are for. Before Python 3.15 suites of TLS 1.3 cannot be chosen one by one: there it is all or none of them. What cannot
be is a StartError.
"""

from __future__ import annotations

import re
import ssl
from typing import Final

from forebay_proxy.errors import StartError

_TLS_1_2: Final = re.compile(r"TLS_(ECDHE_ECDSA|ECDHE_RSA|DHE_RSA|RSA)_WITH_(\w+)")
_CIPHERS: Final = {
    "AES_256_GCM_SHA384": "AES256-GCM-SHA384",
    "AES_128_GCM_SHA256": "AES128-GCM-SHA256",
    "CHACHA20_POLY1305_SHA256": "CHACHA20-POLY1305",
    "AES_256_CBC_SHA384": "AES256-SHA384",
    "AES_256_CBC_SHA256": "AES256-SHA256",
    "AES_128_CBC_SHA256": "AES128-SHA256",
    "AES_256_CBC_SHA": "AES256-SHA",
    "AES_128_CBC_SHA": "AES128-SHA",
}


def choose(context: ssl.SSLContext, setting: str, names: tuple[str, ...]) -> None:
    """Let `context` speak these suites only, those named first first; no names: what OpenSSL thinks right."""
    if not names:
        return
    offered = [each["name"] for each in context.get_ciphers() if each["protocol"] == "TLSv1.3"]
    newer = [name for name in names if name in offered]
    older = [_of_openssl(setting, name) for name in names if name not in newer]
    _choose_newer(context, setting, newer, offered)
    if older:
        context.set_ciphers(":".join(older))
    versions = {ssl.TLSVersion.TLSv1_2: older, ssl.TLSVersion.TLSv1_3: newer}
    spoken = [version for version, suites in versions.items() if suites]
    least, most = max(context.minimum_version, spoken[0]), min(context.maximum_version, spoken[-1])
    if least > most:
        raise StartError(f"{setting}: none of them is for the versions in ssl.enabled.protocols")
    context.minimum_version, context.maximum_version = least, most


def _choose_newer(context: ssl.SSLContext, setting: str, names: list[str], offered: list[str]) -> None:
    if not names or set(names) == set(offered):
        return
    if (set_ciphersuites := getattr(context, "set_ciphersuites", None)) is None:
        raise StartError(
            f"{setting}: before Python 3.15 suites of TLS 1.3 are all used or none: name {', '.join(offered)}, or none "
            "of them, and clients and brokers speak TLS 1.2"
        )
    set_ciphersuites(":".join(names))


def _of_openssl(setting: str, name: str) -> str:
    """OpenSSL's name of a suite of TLS 1.2. Raises StartError where it has none."""
    found = _TLS_1_2.fullmatch(name)
    cipher = _CIPHERS.get(found[2]) if found is not None else None
    if found is None or cipher is None:
        raise StartError(_unknown(setting, name))
    exchange = "" if found[1] == "RSA" else found[1].replace("_", "-") + "-"
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).set_ciphers(exchange + cipher)
    except ssl.SSLError:  # a combination that nobody has defined, or that this OpenSSL was built without
        raise StartError(_unknown(setting, name)) from None
    return exchange + cipher


def _unknown(setting: str, name: str) -> str:
    return f"{setting}: {name} is no cipher suite that OpenSSL knows (Java's names, as TLS_AES_256_GCM_SHA384)"
