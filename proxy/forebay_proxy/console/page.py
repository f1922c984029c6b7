"""The page's own files, from the package: HTML, CSS, and JavaScript modules as they are, without a build step.

In: a path below `/`. Out: the file with its type, an ETag and the policy under which browsers run it: nothing from
anywhere else, no inline script or style, in nobody's frame. Only files that were there at the start are served.
"""

from __future__ import annotations

import hashlib
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Final, NamedTuple

from aiohttp import web

POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS: Final = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-cache",
}
TYPES: Final = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
}
START: Final = "index.html"


class File(NamedTuple):
    """A file as it is served."""

    body: bytes
    type: str
    etag: str


def read() -> dict[str, File]:
    """Path below `/` → file; the first page has the path `` too."""
    found: dict[str, File] = {}
    _read(files("forebay_proxy.console").joinpath("static"), "", found)
    found[""] = found[START]
    return found


def _read(folder: Traversable, prefix: str, found: dict[str, File]) -> None:
    for entry in folder.iterdir():
        path = prefix + entry.name
        if entry.is_dir():
            _read(entry, f"{path}/", found)
        elif (suffix := entry.name[entry.name.rfind(".") :]) in TYPES:
            body = entry.read_bytes()
            found[path] = File(body, TYPES[suffix], f'"{hashlib.sha256(body).hexdigest()[:16]}"')


def answer(request: web.Request, file: File) -> web.Response:
    """The file, or that it is as the browser has it."""
    headers = {**HEADERS, "ETag": file.etag}
    if request.headers.get("If-None-Match") == file.etag:
        return web.Response(status=304, headers=headers)
    return web.Response(body=file.body, headers={**headers, "Content-Type": file.type})
