"""Public classes and functions say what they guarantee, take, return and raise.

A method needs no docstring of its own where another class declares it with one: a base class, or one of our Protocols
if the method's class has every member of it; nor where asyncio declares it.
"""

from __future__ import annotations

import ast
import asyncio
from collections.abc import Iterator
from typing import Final

from tests.kit.paths import ROOT
from tests.test_layout import PACKAGES

DECLARED_BY_ASYNCIO: Final = {
    f"asyncio.{base.__name__}": frozenset(dir(base))
    for base in (asyncio.Protocol, asyncio.BufferedProtocol, asyncio.Transport)
}
"""Base → its methods."""

FUNCTIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef)


class Class:
    """A class as its source declares it: bases and members by name, members that are only assigned to self included."""

    def __init__(self, module: str, node: ast.ClassDef, imported: dict[str, str]) -> None:
        names = [ast.unparse(base.value if isinstance(base, ast.Subscript) else base) for base in node.bases]
        self.bases = [imported.get(name, f"{module}.{name}") for name in names]
        self.methods: dict[str, ast.FunctionDef | ast.AsyncFunctionDef] = {}
        for item in node.body:
            if isinstance(item, FUNCTIONS):
                self.methods.setdefault(item.name, item)  # a property's getter comes before its setter
        declared = {ast.unparse(item.target) for item in node.body if isinstance(item, ast.AnnAssign)}
        assigned = {
            part.attr
            for part in ast.walk(node)
            if isinstance(part, ast.Attribute) and isinstance(part.ctx, ast.Store) and ast.unparse(part.value) == "self"
        }
        self.members = {*self.methods, *declared, *assigned}


def _modules() -> dict[str, ast.Module]:
    return {
        ".".join(path.relative_to(ROOT / folder).with_suffix("").parts): ast.parse(path.read_text())
        for folder, package in PACKAGES.items()
        for path in sorted((ROOT / folder / package).rglob("*.py"))
    }


def _classes(module: str, tree: ast.Module) -> Iterator[tuple[str, Class]]:
    imported = {name: name for name in DECLARED_BY_ASYNCIO}
    for item in tree.body:
        if isinstance(item, ast.ImportFrom):
            imported.update((alias.asname or alias.name, f"{item.module}.{alias.name}") for alias in item.names)
    for item in tree.body:
        if isinstance(item, ast.ClassDef):
            yield f"{module}.{item.name}", Class(module, item, imported)


MODULES: Final = _modules()
CLASSES: Final = {name: found for module, tree in MODULES.items() for name, found in _classes(module, tree)}


def lineage(of: Class) -> list[Class]:
    """The class and all of ours that it derives from."""
    return [of, *(above for base in of.bases if base in CLASSES for above in lineage(CLASSES[base]))]


def members(of: Class) -> set[str]:
    return set().union(*(found.members for found in lineage(of)))


PROTOCOLS: Final = [found for found in CLASSES.values() if "typing.Protocol" in found.bases]


def is_declared(method: str, of: Class) -> bool:
    """Whether another class, of which `of` is one by its bases or by what it has, has a docstring for the method."""
    line = lineage(of)
    if any(method in DECLARED_BY_ASYNCIO.get(base, ()) for found in line for base in found.bases):
        return True
    has = members(of)
    others = [*line[1:], *(protocol for protocol in PROTOCOLS if members(protocol) <= has)]
    return any(method in other.methods and ast.get_docstring(other.methods[method]) for other in others)


def silent() -> Iterator[str]:
    """Public names without the docstring that they need."""
    for module, tree in MODULES.items():
        for item in tree.body:
            if not isinstance(item, (ast.ClassDef, *FUNCTIONS)) or item.name.startswith("_"):
                continue
            name = f"{module}.{item.name}"
            if not ast.get_docstring(item):
                yield name
            if isinstance(item, ast.ClassDef):
                for method, node in CLASSES[name].methods.items():
                    needed = not method.startswith("_") and not is_declared(method, CLASSES[name])
                    if needed and not ast.get_docstring(node):
                        yield f"{name}.{method}"


def test_everything_public_has_a_docstring() -> None:
    assert sorted(silent()) == []


def test_a_docstring_says_it_itself() -> None:
    """None says "see the module"."""
    sent_away = [
        (module, getattr(node, "name", ""))
        for module, tree in MODULES.items()
        for node in ast.walk(tree)
        if isinstance(node, (ast.Module, ast.ClassDef, *FUNCTIONS))
        and "see the module" in " ".join((ast.get_docstring(node) or "").lower().split())
    ]
    assert sent_away == []
