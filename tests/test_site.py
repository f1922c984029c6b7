"""The documentation site's sources: every page is in its contents, links lead on, and the references leave nothing out.

That Sphinx takes them without a warning is what `make docs` shows, in `make test-all`.
"""

from __future__ import annotations

import re
from importlib.metadata import version as distribution
from pathlib import Path

from docs.site import reference, sources
from forebay_proxy.config.values import SETTINGS
from forebay_proxy.metrics.catalog import METRICS
from tests.kit.paths import ROOT


def test_every_page_is_in_the_contents_once() -> None:
    listed = [page for pages in sources.CHAPTERS.values() for page in pages]
    assert len(listed) == len(set(listed))
    made = {*sources.pages(), *(f"reference/{page}" for page in reference.PAGES)}
    assert set(listed) == made - {"index"}


def test_links_lead_to_pages_or_to_the_repository(tmp_path: Path) -> None:
    document = ROOT / "docs" / "of-a-test.md"
    known = {"index": ROOT / "README.md", "design": ROOT / "docs" / "design.md"}
    text = (
        "[a](../README.md#limits) [b](design.md) [c](#here) [d](https://example.org/x) [e](../deploy) [f](../Makefile)"
    )
    assert written(tmp_path, text, document, known) == (
        "[a](index.md#limits) [b](design.md) [c](#here) [d](https://example.org/x) "
        f"[e]({sources.repository()}/tree/main/deploy) [f]({sources.repository()}/blob/main/Makefile)"
    )


def test_what_is_code_stays(tmp_path: Path) -> None:
    text = "```toml\nx = [1](design.md)\n```\n[a](design.md)\n"
    known = {"plan": ROOT / "docs" / "design.md"}
    made = written(tmp_path, text, ROOT / "docs" / "of-a-test.md", known)
    assert made == "```toml\nx = [1](design.md)\n```\n[a](plan.md)\n"


def test_a_picture_has_both_themes() -> None:
    index = sources.page_of(ROOT / "README.md", sources.pages())
    assert "<picture>" not in index
    assert "```{image} diagrams/overview-light.svg" in index
    assert "```{image} diagrams/overview-dark.svg" in index


def written(folder: Path, text: str, place: Path, known: dict[str, Path]) -> str:
    """`text` as a page, were it the document at `place`."""
    document = folder / "page.md"
    document.write_text(text)
    return sources.page_of(document, known, place.parent)


def test_settings_metrics_alerts_and_commands_are_all_there() -> None:
    settings = reference.settings()
    assert [name for name in SETTINGS if f"### `{name}`\n" not in settings] == []
    assert r"listener.name.\<name>." in settings, "as HTML it would not be seen"
    metrics = reference.metrics()
    assert [name for name in METRICS if f"**`{name}`**" not in metrics] == []
    rules = (ROOT / "deploy" / "prometheus" / "forebay.rules.yaml").read_text()
    alerts = reference.alerts()
    assert [line for line in re.findall(r"- alert: (\w+)", rules) if f"## {line}\n" not in alerts] == []
    assert "forebay_ready == 0" in alerts
    linked = {link.partition("#")[0] for link in re.findall(r"\]\(([^)]+)\)", alerts)}
    assert "../operating.md" in linked
    assert [link for link in linked if not (ROOT / "docs" / "site" / link).is_file()] == []
    commands = reference.commands()
    assert "### forebay clients\n" in commands
    assert "### forebay-pipeline audit\n" in commands
    assert commands.count("Usage: ") == commands.count("```text")


def test_a_version_has_a_folder() -> None:
    assert re.fullmatch(r"\d+\.\d+", sources.version())
    assert distribution("forebay").startswith(f"{sources.version()}.")


def test_the_sources_are_written(tmp_path: Path) -> None:
    folder = tmp_path / "source"
    folder.mkdir()
    (folder / "of-last-time.md").touch()
    sources.write(folder)
    assert not (folder / "of-last-time.md").exists()
    assert (folder / "diagrams" / "overview-dark.svg").exists()
    assert "reference/settings\n" in (folder / "index.md").read_text()
    assert (folder / "reference" / "settings.md").read_text() == reference.settings()
