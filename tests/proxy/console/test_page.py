"""The page's files are what the package has, and run under a policy that lets nothing else in."""

from __future__ import annotations

import re

import aiohttp
import pytest

from forebay_proxy.console import page
from tests.kit import vendored
from tests.kit.event_loop import in_loop
from tests.proxy.console.seen import Seen
from tests.proxy.console.served import served

FILES = page.read()


def test_the_first_page_has_two_paths() -> None:
    assert FILES[""] == FILES["index.html"]


@pytest.mark.parametrize("directive", ["default-src 'none'", "script-src 'self'", "frame-ancestors 'none'"])
def test_the_policy(directive: str) -> None:
    assert directive in page.POLICY
    assert "unsafe" not in page.POLICY
    assert "http" not in page.POLICY


def test_libraries_are_those_that_are_listed_with_their_licences() -> None:
    listed = vendored.listed()
    assert {entry.file: vendored.digest(vendored.FOLDER / entry.file) for entry in listed} == {
        entry.file: entry.sha256 for entry in listed
    }
    assert {path.name for path in vendored.FOLDER.iterdir()} == {entry.file for entry in listed} | {vendored.LIST.name}
    licensed = {entry.package.partition("@")[0] for entry in listed if entry.file.endswith(".LICENSE.txt")}
    assert licensed == {"uplot", "htm", "preact"}


def test_nothing_of_the_page_is_elsewhere() -> None:
    for path, file in FILES.items():
        if path.startswith("vendor/"):
            continue
        text = "\n".join(line for line in file.body.decode().splitlines() if not line.lstrip().startswith("//"))
        addresses = re.findall(r"https?://[\w.]+", text)
        assert [address for address in addresses if address != "http://www.w3.org"] == [], path
        assert not re.search(r"<style|style=|javascript:|eval\(|innerHTML", text), path


@in_loop
async def test_every_file_is_served_with_its_type_and_the_policy() -> None:
    async with served(Seen()) as forebay, aiohttp.ClientSession() as session:
        for path, file in FILES.items():
            async with session.get(f"{forebay.url}/{path}") as response:
                assert response.status == 200
                assert await response.read() == file.body
                assert response.headers["Content-Type"] == file.type
                assert response.headers["Content-Security-Policy"] == page.POLICY
                etag = response.headers["ETag"]
            async with session.get(f"{forebay.url}/{path}", headers={"If-None-Match": etag}) as response:
                assert (response.status, await response.read()) == (304, b"")


@in_loop
async def test_nothing_else_of_the_disk_is() -> None:
    async with served(Seen()) as forebay:
        for path in ("/page.py", "/../page.py", "/%2e%2e/page.py", "/static/index.html"):
            assert (await forebay.get(path))[0] in (403, 404)
