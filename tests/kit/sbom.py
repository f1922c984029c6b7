"""A bill of materials, completed by the page's libraries, which are no Python packages; and whether it names all that
Forebay requires, each with its version and licence, and nothing else.

    python -m tests.kit.sbom build/sbom/forebay.cdx.json        (`make sbom`)

What Forebay requires is read from the packages that are installed here, not by the tool that made the bill.
"""

from __future__ import annotations

import sys
from importlib.metadata import requires
from pathlib import Path
from typing import Any

import msgspec
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.kit.vendored import listed

OURS = canonicalize_name("forebay")


def required() -> set[str]:
    """The packages without which it does not run, and theirs."""
    found: set[str] = set()
    wanted = [Requirement(OURS)]
    while wanted:
        requirement = wanted.pop()
        name = canonicalize_name(requirement.name)
        if name in found:
            continue
        found.add(name)
        for needed in map(Requirement, requires(name) or ()):
            extras = ("", *requirement.extras)
            if needed.marker is None or any(needed.marker.evaluate({"extra": extra}) for extra in extras):
                wanted.append(needed)
    return found - {OURS}


def page_libraries() -> list[dict[str, Any]]:
    """As components of CycloneDX."""
    found = {each.package: each.licence for each in listed()}
    return [
        {
            "bom-ref": f"pkg:npm/{package}",
            "licenses": [{"license": {"id": licence}}],
            "name": package.rpartition("@")[0],
            "purl": f"pkg:npm/{package}",
            "type": "library",
            "version": package.rpartition("@")[2],
        }
        for package, licence in sorted(found.items())
    ]


def missing(bill: dict[str, Any]) -> list[str]:
    """What is wrong with it, a line each."""
    components = {canonicalize_name(each["name"]): each for each in bill["components"] if "npm" not in each["purl"]}
    wanted, ours = required(), bill["metadata"]["component"]
    return [
        *(f"{name} is not in it" for name in sorted(wanted - components.keys())),
        *(f"{name} is in it, and Forebay does not require it" for name in sorted(components.keys() - wanted - {OURS})),
        *(f"{name} has no version" for name, each in components.items() if not each.get("version")),
        *(f"{name} has no licence" for name, each in components.items() if not each.get("licenses")),
        *(["it is not Forebay's"] if canonicalize_name(ours["name"]) != OURS or not ours.get("version") else []),
        *(["it does not say who needs whom"] if len(bill["dependencies"]) < len(wanted) else []),
    ]


def main(path: str) -> None:
    bill = msgspec.json.decode(Path(path).read_bytes())
    if wrong := missing(bill):
        raise SystemExit("\n".join([f"{path}:", *wrong]))
    bill["components"] += page_libraries()
    Path(path).write_bytes(msgspec.json.format(msgspec.json.encode(bill)))
    print(path)


if __name__ == "__main__":
    main(sys.argv[1])
