"""The report as one HTML page that needs nothing else: no network, no scripts, styles and plots in it.

In: what is Known. Out: HTML. What others wrote (names of topics, client ids, messages) is text in it, whatever it
holds: jinja2 escapes it, and the page forbids scripts and everything from elsewhere.
"""

from __future__ import annotations

import jinja2
from markupsafe import Markup

from forebay_pipeline.partitions import tables
from forebay_pipeline.partitions.measures import instant
from forebay_pipeline.report.sections import Known, headlines, sections


def page(known: Known) -> str:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("forebay_pipeline.report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    # matplotlib escapes the text that it draws.
    environment.filters.update(instant=instant, drawn=Markup, number="{:,}".format)
    return environment.get_template("report.html").render(
        summary=known.summary,
        headlines=list(headlines(known)),
        warnings=list(tables.warnings(known.summary)),
        sections=list(sections(known)),
    )
