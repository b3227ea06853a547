"""What it takes to get the figures again: signatures, seeds, settings, versions."""

import importlib.metadata
from collections.abc import Mapping

from nmtalign.scoring.page.markup import count, section, tag, text
from nmtalign.scoring.page.scores import TESTS
from nmtalign.scoring.report import Report
from nmtalign.version import __version__


def about(report: Report, settings: Mapping[str, str]) -> str:
    """The last section of the page."""
    versions = {"nmtalign": __version__, "sacreBLEU": importlib.metadata.version("sacrebleu")}
    facts = {**_resampling(report), **settings, **versions}
    return section("about", "How to get these figures again", _signatures(report), _list(facts))


def _signatures(report: Report) -> str:
    items = []
    for number, (metric, signature) in enumerate(zip(report.metrics, report.signatures, strict=True)):
        key = f"signature-{number}"
        copy = tag(
            "button", "Copy", type="button", hidden=True, data_copies=key, aria_label=f"Copy {metric}'s signature"
        )
        items.append(tag("div", tag("dt", text(metric)) + tag("dd", tag("code", text(signature), id=key) + copy)))
    return tag("h3", "Signatures") + tag("dl", "".join(items), class_="signatures") if items else ""


def _resampling(report: Report) -> dict[str, str]:
    drawn = report.resampling
    if drawn is None:
        return {}
    facts = {"Bootstrap samples": count(drawn.samples)}
    if report.tests:
        facts["Tests"] = ", ".join(f"{TESTS[test]} ({test})" for test in report.tests)
    if "ar" in report.tests:
        facts["Trials of approximate randomisation"] = count(drawn.trials)
    return {**facts, "Seed": str(drawn.seed), "Level of significance": f"{drawn.level:g}"}


def _list(facts: Mapping[str, str]) -> str:
    items = [tag("div", tag("dt", text(name)) + tag("dd", text(value), dir="auto")) for name, value in facts.items()]
    return tag("h3", "Settings") + tag("dl", "".join(items), class_="facts")
