"""TLS contexts, for both sides: built from settings, and tried before anybody uses them.

In: TlsSettings. Out: an ssl.SSLContext, new each time: a context that is in use is never changed, since one that was
given a key that does not match fails every handshake from then on. What a person must mend is raised as StartError.
`explain` says in one line why a handshake failed, `is_tls` whether the other side speaks TLS where we do not.
"""

from __future__ import annotations

import math
import os
import ssl
from dataclasses import dataclass
from typing import Final

from forebay_proxy.config.secret import Secret
from forebay_proxy.config.settings import Settings
from forebay_proxy.errors import StartError
from forebay_proxy.security import cipher_suites, pem
from forebay_proxy.security.der import certificate
from forebay_proxy.security.expiry import expiry, in_der

VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
SHUTDOWN_S: Final = 120.0
"""For so long a peer may read what was written before our farewell, and answer that. Then the rest is dropped."""


@dataclass(frozen=True)
class TlsSettings:
    """Settings of one side; `prefix` stands before their names (`listener.name.external.`). Empty text: not set.

    The stores are given by path or as PEM text; `enabled_protocols` are keys of VERSIONS, `cipher_suites` Java's names.
    """

    enabled_protocols: tuple[str, ...]
    truststore_location: str = ""
    truststore_certificates: str = ""
    keystore_location: str = ""
    keystore_certificate_chain: str = ""
    keystore_key: Secret = Secret("")  # noqa: RUF009  (it does not change)
    key_password: Secret = Secret("")  # noqa: RUF009
    cipher_suites: tuple[str, ...] = ()
    prefix: str = ""

    @property
    def has_keystore(self) -> bool:
        """Whether there is a certificate of our own."""
        return bool(self.keystore_location or self.keystore_certificate_chain)


class TlsContext(ssl.SSLContext):
    """A context that knows whom its own certificate is for, when that expires, and the first of its chain.

    In seconds since 1970; inf: it has none.
    """

    own_subject: bytes = b""
    """In DER form; empty: it has none."""

    own_expires_at: float = math.inf
    expires_at: float = math.inf
    """Of whichever is the first: not every client needs each of a chain."""


def client_context(tls: TlsSettings, *, verify_name: bool) -> TlsContext:
    """For connections that we open: the peer's certificate must be signed by the truststore (empty: the system's).

    `verify_name`: and must be valid for the host name that is given with each connection.
    """
    context = _context(ssl.PROTOCOL_TLS_CLIENT, tls)
    context.check_hostname = verify_name
    _trust(context, tls)
    if tls.has_keystore:
        _present(context, tls)
    return context


def brokers_context(settings: Settings) -> TlsContext:
    """For connections to brokers, as Kafka's client settings `ssl.…` have it."""
    stores = TlsSettings(
        settings.ssl_enabled_protocols,
        settings.ssl_truststore_location,
        settings.ssl_truststore_certificates,
        settings.ssl_keystore_location,
        settings.ssl_keystore_certificate_chain,
        settings.ssl_keystore_key,
        settings.ssl_key_password,
        settings.ssl_cipher_suites,
    )
    return client_context(stores, verify_name=settings.ssl_endpoint_identification_algorithm == "https")


def server_context(tls: TlsSettings, client_auth: str) -> TlsContext:
    """For connections that we accept. `client_auth`: none, requested (a bad one is refused) or required."""
    context = _context(ssl.PROTOCOL_TLS_SERVER, tls)
    # Workers share no keys, so a ticket of one is nothing to another; with EC keys it would save nothing either.
    context.options |= ssl.OP_NO_TICKET
    context.num_tickets = 0
    if not tls.has_keystore:
        raise StartError(f"{tls.prefix}ssl.keystore.location: a listener with TLS needs a certificate")
    _present(context, tls)
    if client_auth != "none":
        _trust(context, tls)
        context.verify_mode = ssl.CERT_OPTIONAL if client_auth == "requested" else ssl.CERT_REQUIRED
    return context


def _context(protocol: ssl._SSLMethod, tls: TlsSettings) -> TlsContext:
    context = TlsContext(protocol)
    versions = sorted(VERSIONS[name] for name in tls.enabled_protocols)
    context.minimum_version, context.maximum_version = versions[0], versions[-1]
    cipher_suites.choose(context, f"{tls.prefix}ssl.cipher.suites", tls.cipher_suites)
    return context


def _trust(context: ssl.SSLContext, tls: TlsSettings) -> None:
    setting = f"{tls.prefix}ssl.truststore.certificates"
    text = tls.truststore_certificates
    if tls.truststore_location:
        setting = f"{tls.prefix}ssl.truststore.location"
        text = pem.read(setting, tls.truststore_location, private=False)
    elif not text:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
        return
    try:
        context.load_verify_locations(cadata=pem.certificates(setting, text))
    except (ssl.SSLError, ValueError) as error:
        raise StartError(f"{setting}: its certificates cannot be read: {_words(error)}") from None


def _present(context: TlsContext, tls: TlsSettings) -> None:
    """Load the certificate chain and its key, and try both in a handshake with ourselves."""
    setting = f"{tls.prefix}ssl.keystore.location"
    if tls.keystore_location:
        both = pem.read(setting, tls.keystore_location, private=True)
        text = pem.certificates(setting, both) + pem.private_key(setting, both)
    else:
        setting = f"{tls.prefix}ssl.keystore.certificate.chain"
        text = pem.certificates(setting, tls.keystore_certificate_chain)
        text += pem.private_key(f"{tls.prefix}ssl.keystore.key", tls.keystore_key.reveal())
    serves = context.protocol is ssl.PROTOCOL_TLS_SERVER
    trial = context if serves else ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        for each in {trial, context}:
            _load(each, text, tls.key_password)
        _shake_hands(trial)
        own, *_ = chain = in_der(text)
        context.own_subject = certificate(own).subject.whole
        context.own_expires_at, *_ = expires_at = [expiry(each) for each in chain]
        context.expires_at = min(expires_at)
    except (ssl.SSLError, ValueError) as error:
        if isinstance(error, ssl.SSLError) and error.reason == "NO_SHARED_CIPHER":
            setting, why = f"{tls.prefix}ssl.cipher.suites", "none of them is for the certificate's kind of key"
        elif "ENCRYPTED" in text and not tls.key_password:
            why = f"the key is encrypted: set {tls.prefix}ssl.key.password"
        elif "ENCRYPTED" in text and "PEM lib" in str(error):  # which is all that OpenSSL says, of damage, too
            why = f"{tls.prefix}ssl.key.password does not open the key, or what is there is damaged"
        else:
            why = f"the certificate and its key do not work together: {_words(error)}"
        raise StartError(f"{setting}: {why}") from None


def _load(context: ssl.SSLContext, text: str, password: Secret) -> None:
    """OpenSSL reads files only: one in memory, that is gone when this returns."""
    memory = os.memfd_create("pem", os.MFD_CLOEXEC)
    try:
        os.write(memory, text.encode())
        # Without a function of ours OpenSSL would ask at the terminal.
        context.load_cert_chain(f"/proc/self/fd/{memory}", password=password.reveal)
    finally:
        os.close(memory)


def _shake_hands(server: ssl.SSLContext) -> None:
    """Connect to ourselves, in memory. Raises ssl.SSLError where the server's certificate cannot serve."""
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname, client.verify_mode = False, ssl.CERT_NONE
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [client.wrap_bio(back, there), server.wrap_bio(there, back, server_side=True)]
    while ends:
        for end in list(ends):
            try:
                end.do_handshake()
                ends.remove(end)
            except ssl.SSLWantReadError:
                pass


def is_tls(data: bytes) -> bool:
    """Whether a connection's first bytes are those of TLS: of an alert, such as whoever speaks without it is sent."""
    return data[:2] in (b"\x15\x03", b"\x16\x03")


def explain(error: OSError) -> str:
    """One line for a person: what failed, and what it may come from."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"TLS: the certificate is not accepted: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        alert = (error.reason or "").partition("_ALERT_")[2]
        if alert:  # OpenSSL names the version that had it first, not the one that is spoken
            return f"TLS: the other side refuses: {alert.replace('_', ' ').lower()}"
        no_tls = error.reason in ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE")
        return f"TLS: {_words(error)}{' (does that port speak TLS?)' if no_tls else ''}"
    return error.strerror or str(error)


def _words(error: ssl.SSLError | ValueError) -> str:
    reason = error.reason if isinstance(error, ssl.SSLError) else None
    return (reason or str(error)).replace("_", " ").lower()
