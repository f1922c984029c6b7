"""Documents and habits: links lead somewhere, diagrams are up to date, forms and hooks can be read, targets exist."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml

from docs.diagrams import overview
from forebay_policies import retry
from forebay_proxy.clients import handshakes
from forebay_proxy.metrics import admin_door
from forebay_proxy.realms import realms
from forebay_proxy.security import jwk_set, renewals
from tests.kit.paths import ROOT

SKIPPED = {".cache", ".git", ".venv", "build", "dist", "__pycache__"}
FENCE = re.compile(r"^( *)(```|~~~).*?^\1\2 *$", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"(`+)(?:(?!\1).)+?\1", re.DOTALL)
INLINE_LINK = re.compile(r"\]\(<?([^)\s>]+)>?\)")
REFERENCE = re.compile(r"^\[[^\]]+\]: +(\S+)", re.MULTILINE)
HTML_LINK = re.compile(r'(?:href|src|srcset)="([^"]+)"')
HEADING = re.compile(r"^#{1,6} +(.+?) *#*$", re.MULTILINE)
NUMBERS = {2: "two", 3: "three", 4: "four", 5: "five"}


def everything() -> Iterator[Path]:
    """The project's own files, and none that was fetched or built."""
    for folder, folders, names in os.walk(ROOT):
        folders[:] = sorted(set(folders) - SKIPPED)
        yield from (Path(folder, each) for each in sorted(names))


FILES = list(everything())
DOCUMENTS = [path for path in FILES if path.suffix == ".md"]
FORMS = [path for path in FILES if path.parent.name == "ISSUE_TEMPLATE" and path.name != "config.yml"]
TEXTS = [path for path in FILES if path.suffix in {".md", ".py", ".toml", ".yaml", ".yml", ".svg"}]


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def links(text: str) -> Iterator[str]:
    prose = FENCE.sub("", text)
    for pattern in (INLINE_LINK, REFERENCE, HTML_LINK):
        yield from pattern.findall(CODE.sub("``", prose))


def anchors(text: str) -> set[str]:
    """What GitHub makes of the headings: `## What's "new"?` → `whats-new`; the second one of a name gets `-1`."""
    made: set[str] = set()
    for heading in HEADING.findall(FENCE.sub("", text)):
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        slug = re.sub(r"[^\w\- ]", "", words).replace(" ", "-")
        made.add(next(each for each in (slug, *(f"{slug}-{n}" for n in range(1, 99))) if each not in made))
    return made


def broken(document: Path) -> list[str]:
    """The links of a document that lead nowhere; those to other sites are not followed."""
    wrong: list[str] = []
    for link in links(document.read_text()):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = document.parent / path if path else document
        if not target.exists() or (anchor and anchor not in anchors(target.read_text())):
            wrong.append(link)
    return wrong


@pytest.mark.parametrize("document", DOCUMENTS, ids=name)
def test_links_lead_somewhere(document: Path) -> None:
    assert broken(document) == []


def test_a_broken_link_is_found(tmp_path: Path) -> None:
    (tmp_path / "there.md").write_text("# Here & there\n\n```\n# no heading\n```\n## Here & there\n")
    document = tmp_path / "links.md"
    document.write_text(
        "[a](there.md) [b](there.md#here--there) [c](there.md#here--there-1) [d][e] <img src='x'> `[not](a-link)`\n"
        "```\n[nor](this)\n```\n[f](gone.md) [g](there.md#no-heading) [h](#nowhere) [i](https://example.org/x)\n\n"
        '[e]: lost.md\n<img src="lost.svg">\n'
    )
    assert broken(document) == ["gone.md", "there.md#no-heading", "#nowhere", "lost.md", "lost.svg"]


@pytest.mark.parametrize("document", DOCUMENTS, ids=name)
def test_each_document_says_what_it_is(document: Path) -> None:
    """One heading of the first level, on the first line; forms have none."""
    text = FENCE.sub("", document.read_text())
    titles = re.findall(r"^# ", text, re.MULTILINE)
    assert len(titles) == (0 if ".github" in document.parts else 1)
    assert not titles or text.startswith("# ")


def test_no_line_ends_in_a_space() -> None:
    assert [name(path) for path in TEXTS if re.search(r"[ \t]$", path.read_text(), re.MULTILINE)] == []


def test_files_end_in_one_newline() -> None:
    texts = {path: path.read_text() for path in TEXTS}
    assert [name(path) for path, text in texts.items() if text.strip() and not re.search(r"\S\n\Z", text)] == []


@pytest.mark.parametrize("theme", overview.THEMES)
def test_the_diagram_is_what_its_script_makes(theme: str) -> None:
    """Where this fails: python docs/diagrams/overview.py."""
    made = overview.render(overview.THEMES[theme])
    assert overview.path(theme).read_text() == made
    assert ElementTree.fromstring(made).tag == "{http://www.w3.org/2000/svg}svg"


def test_the_readme_shows_the_diagram() -> None:
    readme = (ROOT / "README.md").read_text()
    assert all(f"docs/diagrams/{overview.path(theme).name}" in readme for theme in overview.THEMES)


def load(path: str) -> Any:
    return yaml.safe_load((ROOT / path).read_text())


def test_hooks_call_the_pinned_tools_and_fetch_nothing() -> None:
    config = load(".pre-commit-config.yaml")
    assert [repository["repo"] for repository in config["repos"]] == ["local"]
    (hooks,) = (repository["hooks"] for repository in config["repos"])
    pins = {line.partition("==")[0] for line in (ROOT / "constraints.txt").read_text().splitlines()}
    for hook in hooks:
        assert hook["language"] == "system"
        folder, _, tool = hook["entry"].split()[0].rpartition("/")
        assert folder == ".venv/bin"
        assert {"lint-imports": "import-linter"}.get(tool, tool) in pins


def test_hooks_check_what_make_lint_checks() -> None:
    lint = re.search(r"^lint:.*\n((?:\t.+\n)+)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert lint
    tools = {hook["entry"].split()[0] for hook in load(".pre-commit-config.yaml")["repos"][0]["hooks"]}
    assert {tool.rpartition("/")[2] for tool in tools} == set(re.findall(r"\$\(BIN\)/([\w-]+)", lint[1]))


@pytest.mark.parametrize("form", FORMS, ids=name)
def test_issue_forms_have_what_github_wants(form: Path) -> None:
    fields = yaml.safe_load(form.read_text())
    assert {"name", "description", "body"} <= set(fields)
    ids = [field["id"] for field in fields["body"] if field["type"] != "markdown"]
    assert ids
    assert len(ids) == len(set(ids))
    assert all(field["attributes"].get("label") or field["type"] == "markdown" for field in fields["body"])


def test_the_version_is_the_same_everywhere() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    image = re.search(r"image: forebay:(\S+)", (ROOT / "deploy" / "kubernetes" / "sidecar.yaml").read_text())
    package = re.search(r'^__version__ = "(.+)"', (ROOT / "proxy/forebay_proxy/__init__.py").read_text(), re.MULTILINE)
    changelog = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert image
    assert package
    assert changelog
    assert {image[1], package[1], changelog[1]} == {version}


def test_the_readme_names_the_projects_issues() -> None:
    urls = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]
    assert f"]({urls['Issues']})" in (ROOT / "README.md").read_text()


def test_documents_name_targets_that_make_has() -> None:
    call = re.compile(r"(?:^|`)(?:[A-Z_]+=\S+ )*make ([a-z][a-z-]*)", re.MULTILINE)
    named = {target for path in DOCUMENTS for target in call.findall(path.read_text())}
    assert "demo" in named
    assert named - set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)) == set()


@pytest.mark.parametrize(
    ("document", "sentence"),
    [
        (
            "security.md",
            f"{handshakes.MAX_UNDER_WAY} under way and {handshakes.MAX_PENDING:,} pending in a worker, "
            f"{handshakes.TIMEOUT_S:g} s for each.",
        ),
        (
            "security.md",
            f"nothing came for {handshakes.TIMEOUT_S:g} s, or for {handshakes.GIVES_WAY_S:g} s while others waited",
        ),
        ("security.md", f"it counts again, every {realms.AGAIN_S:g} s at most."),
        ("security.md", f"a key that is not known, at most every {jwk_set.ASK_AGAIN_S:g} s."),
        ("security.md", f"{admin_door.MOST} connections stand there at once"),
        ("security.md", f"Every {renewals.LOOK_S:g} s Forebay looks where the files' links lead"),
        ("reliability.md", f"UNKNOWN_SERVER_ERROR is tried {NUMBERS[retry.SERVER_ERRORS]} times,"),
    ],
)
def test_bounds_are_what_the_documents_promise(document: str, sentence: str) -> None:
    assert sentence in " ".join((ROOT / "docs" / document).read_text().split())


def test_what_others_cost_is_what_was_measured() -> None:
    """docs/comparison.md has figures of bench f, which `make bench` measures anew."""
    text = (ROOT / "docs" / "performance.md").read_text()
    measured = text.partition("<!-- bench:f -->")[2].partition("<!-- /bench:f -->")[0]
    told = (ROOT / "docs" / "comparison.md").read_text().partition("<!-- of f -->")[2].partition("<!-- /of f -->")[0]
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in told.splitlines() if line.startswith("| ")
    ]
    assert len(rows) == 8
    for name, *figures in rows[2:]:
        (line,) = (line for line in measured.splitlines() if line.startswith(f"| {MEASURED_AS[name]} |"))
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        assert figures == [cells[2], cells[4], cells[5]]


def cells_of(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split("|")]


MEASURED_AS = {
    "a bare relay in Python": "a bare relay",
    "Forebay": "Forebay",
    "Envoy, passing bytes on": "envoy",
    "Kroxylicious, no filter": "kroxylicious",
    "Kroxylicious, transforming": "kroxylicious, transforming",
    "Shotover": "shotover",
}
