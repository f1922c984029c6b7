"""Values that stand elsewhere: references to them, as Kafka's config providers have them.

    ${file:/run/secrets/kafka.properties:password}   a name in a .properties file
    ${dir:/run/secrets:password}                     a whole file of a folder, without the line's end
    ${env:KAFKA_PASSWORD}                            an environment variable

In: text with any number of references, and the environment. Out: the text with what they stand for in their place.
What cannot be resolved raises ValueError with words that follow a setting's name, and that hold none of the contents.
A mark that files begin with (BOM), as Windows' editors write it, is none of their text.
Files that others than their owner and group can read are refused: what they hold is no secret.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from forebay_proxy.config import properties

_PROVIDERS: Final = ("file", "dir", "env")
_REFERENCE: Final = re.compile(rf"\$\{{({'|'.join(_PROVIDERS)}):([^}}]*)\}}")
_BEGUN: Final = re.compile(r"\$\{([\w.-]+):")
"""What begins like one, of whichever provider."""
MAX_BYTES: Final = 1 << 20
"""Of a file that is read whole; a chain of certificates takes some kilobytes."""
MOST_SETTINGS: Final = 16 << 20
"""Characters of a file of settings."""


def is_reference(text: str) -> bool:
    """Whether the whole text is one reference, so that it gives nothing away itself."""
    return _REFERENCE.fullmatch(text) is not None


def files(text: str) -> tuple[str, ...]:
    """The files that references in the text refer to; those that are not well formed refer to none."""
    found = []
    for reference in _REFERENCE.finditer(text):
        path, _, key = reference[2].rpartition(":")
        if path and reference[1] != "env":
            found.append(os.path.join(path, key) if reference[1] == "dir" else path)
    return tuple(found)


def resolve(text: str, environ: Mapping[str, str]) -> str:
    """`text` with every reference replaced; what replaces one is not searched for others. Raises ValueError."""
    value = _REFERENCE.sub(lambda found: _value(found[1], found[2], environ), text)
    if any("\ud800" <= each <= "\udfff" for each in value):  # as which Python keeps other bytes; nobody can send them
        raise ValueError("is not UTF-8 text")
    return value


def refuse_others(text: str) -> None:
    """Raises ValueError for what begins like a reference and is none, which would stand for itself, as a password.

    What stands there may be a part of one, and is not said.
    """
    if (begun := _BEGUN.search(_REFERENCE.sub(" ", text))) is None:
        return
    if begun[1] in _PROVIDERS:
        raise ValueError(f"has a reference ${{{begun[1]}:… without a closing brace")
    known = f"{', '.join(_PROVIDERS[:-1])} and {_PROVIDERS[-1]}"
    raise ValueError(f"refers to a provider that is not known (by {known} a password with ${{ in it can be given, too)")


def _value(provider: str, argument: str, environ: Mapping[str, str]) -> str:
    if provider == "env":
        if argument not in environ:
            raise ValueError(f"refers to the environment variable {argument}, which is not set")
        return environ[argument]
    path, separator, key = argument.rpartition(":")
    if not separator or not path or not key:
        raise ValueError(f"has a reference that is not of the form ${{{provider}:path:key}}")
    if provider == "dir":
        if key != os.path.basename(key) or key in (".", ".."):
            raise ValueError(f"refers to {key}, which is not the name of a file in {path}")
        return read_private(Path(path, key)).removesuffix("\n").removesuffix("\r")
    try:
        found = properties.parse(read_private(Path(path)))
    except ValueError as error:
        raise ValueError(f"refers to {path}: {error}") from None
    if key not in found:
        raise ValueError(f"refers to {key} in {path}, which has no such name")
    return found[key]


def read_private(path: Path, max_bytes: int = MAX_BYTES) -> str:
    """A file's text. Raises ValueError where it cannot be read, where others can read or write it, or for no text."""
    try:
        with path.open("rb") as file:
            if public(os.fstat(file.fileno()).st_mode):
                raise ValueError(f"{path} can be read by others: chmod o-rwx {path}")
            data = file.read(max_bytes + 1)
        if len(data) > max_bytes:
            raise ValueError(f"{path} is larger than {max_bytes} bytes")
        return data.decode("utf-8-sig")
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise ValueError(f"{path} is not UTF-8 text") from None


def read_settings(path: str) -> str:
    """The text of a file of settings. Raises OSError, also for one that does not end, and UnicodeDecodeError."""
    with open(path, encoding="utf-8-sig") as file:
        text = file.read(MOST_SETTINGS + 1)
    if len(text) > MOST_SETTINGS:
        raise OSError(errno.EFBIG, f"it has more than {MOST_SETTINGS >> 20} MiB")
    return text


def public(mode: int) -> bool:
    """Whether a file of that mode is open to others than its owner and group."""
    return bool(mode & (stat.S_IROTH | stat.S_IWOTH))
