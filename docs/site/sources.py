"""What the documentation site is built from: `python -m docs.site.sources FOLDER` (`make docs`);
`--version` prints the name of the folder that this version's pages go to.

In: README.md, the pages of docs/, the changelog; settings, metrics, alerts and commands as the project has them. Out:
FOLDER with index.md, a page for each of them, and those of reference/, which stand nowhere else and so are never out of
date.

Links between pages stay; those to other files of the project lead to its repository.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import tomllib
from pathlib import Path
from typing import Any, Final

from docs.site import reference

ROOT: Final = Path(__file__).resolve().parents[2]

CHAPTERS: Final = {
    "Running it": (
        "rollout",
        "monitoring",
        "operating",
        "kubernetes",
        "balancers",
        "rolling-brokers",
        "security",
        "recipes",
        "quotas",
        "troubleshooting",
    ),
    "What it does": ("partitioners", "metadata", "old-clients", "reliability", "performance", "comparison"),
    "Journal and pipeline": ("journal", "pipeline", "audit", "replay"),
    "Reference": tuple(f"reference/{page}" for page in reference.PAGES),
    "The project": ("design", "api", "dependencies", "threat-model", "changelog", "contributing", "security-policy"),
}
"""Every page but the first: the site's table of contents."""

ELSEWHERE: Final = {
    "index": "README.md",
    "changelog": "CHANGELOG.md",
    "contributing": "CONTRIBUTING.md",
    "security-policy": "SECURITY.md",
}
"""Pages that do not come from docs/."""

_FENCE: Final = re.compile(r"^( *)(```|~~~).*?^\1\2 *$", re.MULTILINE | re.DOTALL)
_LINK: Final = re.compile(r"(\]\(<?)([^)\s>]+)(>?\))")
_PICTURE: Final = re.compile(
    r'<picture>\s*<source [^>]*srcset="([^"]+)">\s*<img alt="([^"]+)" src="([^"]+)">\s*</picture>'
)


def pages() -> dict[str, Path]:
    """Name of a page → the document that it is made of."""
    found = {path.stem: path for path in sorted((ROOT / "docs").glob("*.md")) if path.stem != "plan"}
    return found | {page: ROOT / path for page, path in ELSEWHERE.items()}


def page_of(document: Path, known: dict[str, Path], folder: Path | None = None) -> str:
    """The page as Sphinx is to have it: links that lead somewhere from there, pictures for both themes.

    Links are relative to `folder`, which is where the document is.
    """
    names = {path: page for page, path in known.items()}
    folder = folder or document.parent

    def lead(link: str) -> str:
        path, mark, anchor = link.partition("#")
        if not path or re.match(r"[a-z]+:", link):
            return link
        target = Path(os.path.normpath(folder / path))
        if target in names:
            return f"{names[target]}.md{mark}{anchor}"
        return f"{repository()}/{'tree' if target.is_dir() else 'blob'}/main/{target.relative_to(ROOT)}{mark}{anchor}"

    def picture(found: re.Match[str]) -> str:
        dark, alt, light = found.groups()
        themes = (("only-light", light), ("only-dark", dark))
        images = (
            f"```{{image}} {path.removeprefix('docs/')}\n:alt: {alt}\n:class: {theme}\n```" for theme, path in themes
        )
        return "\n\n".join(images)

    def prose(text: str) -> str:
        return _PICTURE.sub(picture, _LINK.sub(lambda link: link[1] + lead(link[2]) + link[3], text))

    text = document.read_text()
    made: list[str] = []
    end = 0
    for fence in _FENCE.finditer(text):
        made += [prose(text[end : fence.start()]), fence[0]]
        end = fence.end()
    return "".join([*made, prose(text[end:])])


def repository() -> str:
    return str(_project()["urls"]["Repository"])


def version() -> str:
    """The folder of this version's pages: X.Y, as patch releases change no documentation but to mend it."""
    return ".".join(str(_project()["version"]).split(".")[:2])


def _project() -> dict[str, Any]:
    project: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return project


def contents() -> str:
    """The tables of contents that the first page has, unseen."""
    return "\n".join(
        "\n".join(("```{toctree}", ":hidden:", f":caption: {chapter}", "", *chapter_pages, "```", ""))
        for chapter, chapter_pages in CHAPTERS.items()
    )


def write(folder: Path) -> None:
    """Make `folder` anew."""
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "reference").mkdir(parents=True)
    known = pages()
    for page, document in known.items():
        (folder / f"{page}.md").write_text(page_of(document, known))
    with (folder / "index.md").open("a") as index:
        index.write(f"\n{contents()}")
    for page, made in reference.PAGES.items():
        (folder / "reference" / f"{page}.md").write_text(made())
    for picture in (*ROOT.glob("docs/*/*.svg"), *ROOT.glob("docs/*/*.png")):
        copied = folder / picture.relative_to(ROOT / "docs")
        copied.parent.mkdir(exist_ok=True)
        shutil.copyfile(picture, copied)


if __name__ == "__main__":
    if sys.argv[1] == "--version":
        print(version())
    else:
        write(Path(sys.argv[1]))
