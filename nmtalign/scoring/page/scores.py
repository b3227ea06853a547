"""The scores of the whole text: the headline, one row a system, signatures, and Table 1."""

from collections.abc import Iterator, Sequence

from nmtalign.scoring.page.markup import NO_VALUE, apart, count, figure, row, section, sentences, table, tag, text
from nmtalign.scoring.report import Mark, Part, Report, Resampling, SystemReport, Test

TESTS: dict[Test, str] = {"bs": "paired bootstrap", "ar": "approximate randomisation"}
_SHORT = 20  # letters of a name that are kept in one line where there is room
_MARKS: dict[Mark, str] = {"winner": "★", "tie": "≈"}


def lower_is_better(metric: str) -> bool:
    """Whether a metric counts what is wrong."""
    return metric.upper().startswith("TER")


def metric_head(metric: str) -> str:
    """The metric's name and an arrow to its better end."""
    sign, words = ("↓", "lower is better") if lower_is_better(metric) else ("↑", "higher is better")
    arrow = tag("span", sign, aria_hidden="true", title=words, class_="arrow")
    return f"{text(metric)} {arrow}" + tag("span", f" ({words})", class_="sr")


def score_cell(part: Part, metric: int, resampling: Resampling | None, *, half: bool = True, drawn: str = "") -> str:
    """A figure with what is known of it: half width and mean, mark, a bar if one is given, interval, p-values."""
    value = part.values[metric]
    if value is None:
        return NO_VALUE
    interval = part.intervals[metric] if part.intervals else None
    mark = part.marks[metric] if part.marks else ""
    first = tag("span", figure(value), class_=f"value {mark}".strip())
    if half and interval:
        first += " " + tag("span", f"± {interval.half_width:.2f}", class_="half")
    first += marked(mark)
    small = []
    if interval:
        small += [f"mean {interval.mean:.2f}"] if half else []
        small.append(f"[{interval.low:.2f}, {interval.high:.2f}]")
    small += _p_values(part, metric, resampling.level if resampling else 0.0)
    lines = " ".join(tag("span", line) for line in small)
    return tag("div", first, class_="score") + drawn + (tag("div", lines, class_="small") if lines else "")


def marked(mark: Mark) -> str:
    """The sign of a mark, said in words to those who listen."""
    if not mark:
        return ""
    return tag("span", _MARKS[mark], class_=f"mark {mark}", title=mark, role="img", aria_label=mark)


def _p_values(part: Part, metric: int, level: float) -> Iterator[str]:
    several = len(part.p_values) > 1
    for test, values in part.p_values.items():
        value = values[metric]
        if value is not None:
            which = tag("sub", tag("abbr", test, title=TESTS[test])) if several else ""
            yield f"p{which} {value:.4f}{'*' if value < level else ''}"


def headline(report: Report) -> str:
    """What the first metric says in one sentence, and a card a system."""
    verdict = tag("p", _verdict(report), class_="verdict") if report.metrics else ""
    cards = [_card(report, system) for system in report.systems if report.metrics]
    return verdict + tag("ul", "".join(cards), class_="cards", role="list")


def _card(report: Report, system: SystemReport) -> str:
    whole = system.everything.whole
    lines = tag("div", apart(system.name), class_="name") + tag("div", text(report.metrics[0]), class_="metric")
    interval = whole.intervals[0] if whole.intervals else None
    half = tag("span", f"± {interval.half_width:.2f}", class_="half") if interval else ""
    mark = whole.marks[0] if whole.marks else ""
    word = tag("span", f"{_MARKS[mark]} {mark}", class_=f"badge {mark}") if mark else ""
    value = tag("span", figure(whole.values[0]), class_="big")
    return tag("li", lines + tag("div", value + half + word, class_="figures"))


def _verdict(report: Report) -> str:
    metric, scored = report.metrics[0], []
    for system in report.systems:
        value = system.everything.whole.values[0]
        if value is not None:
            scored.append((value, system))
    if not scored or len(report.systems) == 1:
        return ""
    choose = min if lower_is_better(metric) else max
    value, best = choose(scored, key=lambda pair: pair[0])
    marks = {system.name: system.everything.whole.marks for system in report.systems}
    named = f"{apart(best.name)} has the best {text(metric)}, {value:.2f}"
    if not any(marks.values()):
        return f"{named}; no test was made of whether the differences are significant."
    if marks[best.name] and marks[best.name][0] == "winner":
        return f"{named}, significantly better than every other system."
    tied = [name for name, given in marks.items() if given and given[0] == "tie" and name != best.name]
    others = ", ".join(map(apart, tied))
    return f"{named}, but not significantly better than {others}." if tied else f"{named}."


def scores(report: Report) -> str:
    """The table of systems and metrics, and what its signs mean."""
    ratios = _has_ratios(report)
    head = [tag("th", "System", scope="col")]
    head += [tag("th", metric_head(metric), scope="col") for metric in report.metrics]
    head += [tag("th", "Length ratio", scope="col")] if ratios else []
    rows = []
    for number, system in enumerate(report.systems):
        whole = system.everything.whole
        cells = [system_head(report, number)]
        cells += [_sortable(score_cell(whole, i, report.resampling), value) for i, value in enumerate(whole.values)]
        cells += [_sortable(figure(whole.length_ratio), whole.length_ratio)] if ratios else []
        rows.append(row(cells))
    number = report.systems[0].everything.whole.sentences if report.systems else 0
    caption = f"Corpus scores over {sentences(number)}"
    body = tag("tbody", "".join(rows))
    content = table("scores-table", caption, [row(head)], [body], class_="scores", data_sortable="")
    return section("scores", "Scores", content, legend(report))


def system_head(report: Report, number: int) -> str:
    """The head of a system's row; the first system is what the others are tested against."""
    baseline = " " + tag("span", "baseline", class_="tagged") if report.tests and number == 0 else ""
    name = report.systems[number].name
    return tag("th", apart(name) + baseline, scope="row", class_="short" if len(name) <= _SHORT else None)


def _sortable(content: str, value: float | None) -> str:
    return tag("td", content, data_value=None if value is None else repr(value))


def legend(report: Report) -> str:
    """What the signs mean, as far as the report has them."""
    wholes = [part for system in report.systems for part in _parts(system)]
    resampling = report.resampling or Resampling()
    terms = []
    if any(part.intervals for part in wholes):
        words = f"half the width of the 95% interval over {count(resampling.samples)} bootstrap samples"
        terms += [("±", words), ("[low, high]", "that interval; the mean is that of the samples")]
    if any(part.marks for part in wholes):
        by = f"significantly (p < {resampling.level:g}) by {'both tests' if len(report.tests) > 1 else 'the test'}"
        terms.append(("★ winner", f"better than every other system, {by}"))
        test = "some test" if len(report.tests) > 1 else "the test"
        terms.append(("≈ tie", f"no winner, but not shown to be worse than the best system by {test}"))
    if report.tests:
        tests = " and ".join(_test_words(test, resampling) for test in report.tests)
        against = f" against {apart(report.systems[0].name)}"
        terms.append(("p", f"of the difference{against}, by {tests}; * is below {resampling.level:g}"))
    items = "".join(tag("div", tag("dt", term) + tag("dd", words)) for term, words in terms)
    return tag("dl", items, class_="legend", id="signs") if items else ""


def _test_words(test: Test, resampling: Resampling) -> str:
    draws = f"{count(resampling.samples)} samples" if test == "bs" else f"{count(resampling.trials)} trials"
    return f"{TESTS[test]} ({test}, {draws})"


def _parts(system: SystemReport) -> Iterator[Part]:
    for each in (system.everything, system.no_unk):
        if each:
            yield each.whole
            for breakdown in each.breakdowns:
                yield from breakdown.parts


def _has_ratios(report: Report) -> bool:
    return any(system.everything.whole.length_ratio is not None for system in report.systems)


def table_one(report: Report) -> str:
    """The paper's Table 1: all sentences, and those without an unknown word, beside each other for every metric."""
    held = [system for system in report.systems if system.no_unk]
    if not held:
        return ""
    heads = [tag("th", metric_head(metric), scope="colgroup", colspan=2) for metric in report.metrics]
    ratios = _has_ratios(report)
    more = ["Length ratio", "Sentences"] if ratios else ["Sentences"]
    heads += [tag("th", name, scope="colgroup", colspan=2) for name in more]
    kinds = [tag("th", name, scope="col") for _ in heads for name in ("All", "No UNK")]
    rows = []
    for number, system in enumerate(report.systems):
        pair = [system.everything.whole, system.no_unk.whole if system.no_unk else None]
        cells = [_cell(part, i, report.resampling) for i in range(len(report.metrics)) for part in pair]
        cells += [tag("td", figure(part.length_ratio if part else None)) for part in pair if ratios]
        cells += [tag("td", count(part.sentences) if part else NO_VALUE) for part in pair]
        rows.append(row([system_head(report, number), *cells]))
    head = [row([tag("th", "System", scope="col", rowspan=2), *heads]), row(kinds)]
    content = table("table1-table", _sizes(held), head, [tag("tbody", "".join(rows))], class_="scores paired")
    return section("table1", "With and without unknown words", content)


def _cell(part: Part | None, metric: int, resampling: Resampling | None) -> str:
    return tag("td", score_cell(part, metric, resampling, half=False) if part else NO_VALUE)


def _sizes(systems: Sequence[SystemReport]) -> str:
    sizes = {(each.everything.whole.sentences, each.no_unk.whole.sentences) for each in systems if each.no_unk}
    if len(sizes) > 1:
        return "All sentences, and those with no unknown word in source and reference"
    ((everything, known),) = sizes
    share = f" ({100 * known / everything:.1f}%)" if everything else ""
    return f"All {sentences(everything)}, and the {count(known)}{share} with no unknown word in source and reference"
