"""The page: one HTML text with everything in it, the same bytes for the same report."""

import base64
import hashlib
import re
from collections.abc import Mapping, Sequence
from importlib import resources
from string import Template

from nmtalign.scoring.page.about import about
from nmtalign.scoring.page.buckets import breakdowns
from nmtalign.scoring.page.markup import section, sentences, tag, text
from nmtalign.scoring.page.pictures import framed
from nmtalign.scoring.page.scores import TESTS, headline, scores, table_one
from nmtalign.scoring.page.sentences import Pictures, differences
from nmtalign.scoring.page.words import unknown_rates, word_tables
from nmtalign.scoring.report import Report

_SECTION = re.compile(r'<h2 id="([^"]+)-title">(.*?)</h2>')


def build_page(
    report: Report,
    *,
    title: str,
    figures: Sequence[tuple[str, str]] = (),
    pictures: Pictures | None = None,
    settings: Mapping[str, str] | None = None,
) -> str:
    """A report as one self-contained HTML page; `figures` are (caption, SVG), `settings` what the command was given.

    `pictures` are the attention of sentences as SVG: line, counted from 1, to (system, SVG). The page asks no network
    for anything, and its content security policy forbids it to. Raises UsageError for a picture that is no SVG.
    """
    body = "".join([
        scores(report),
        table_one(report),
        _figures(figures),
        breakdowns(report),
        word_tables(report),
        unknown_rates(report),
        differences(report, pictures or {}),
        about(report, settings or {}),
    ])  # fmt: skip
    script = _part("page.js")
    parts = {
        "title": text(title),
        "facts": _facts(report),
        "headline": headline(report),
        "contents": _contents(body),
        "body": body,
        "style": _part("page.css"),
        "script": script,
        "script_hash": _hash(script),
    }
    return Template(_part("page.html")).substitute(parts)


def _facts(report: Report) -> str:
    systems = f"{len(report.systems)} system{'' if len(report.systems) == 1 else 's'}"
    size = report.systems[0].everything.whole.sentences if report.systems else 0
    facts = [systems, sentences(size), ", ".join(map(text, report.metrics))]
    facts += [" and ".join(TESTS[test] for test in report.tests)] if report.tests else []
    return " · ".join(facts)


def _figures(figures: Sequence[tuple[str, str]]) -> str:
    drawn = [framed(svg, f"figure-{number}", caption, "plot") for number, (caption, svg) in enumerate(figures)]
    return section("figures", "Figures", tag("div", "".join(drawn), class_="plots")) if drawn else ""


def _contents(body: str) -> str:
    """A link to every section."""
    links = [tag("li", f'<a href="#{key}">{title}</a>') for key, title in _SECTION.findall(body)]
    return tag("ul", "".join(links), role="list")


def _part(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")


def _hash(script: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(script.encode()).digest()).decode("ascii")
