"""The sentences in which two systems differ most, side by side, with what differs in them and their attention."""

from collections.abc import Mapping, Sequence

from nmtalign.scoring.differences import Difference, Segment
from nmtalign.scoring.page.markup import apart, count, section, tag, text
from nmtalign.scoring.page.pictures import framed
from nmtalign.scoring.report import Report

Pictures = Mapping[int, Sequence[tuple[str, str]]]  # line -> (system, svg)

_KINDS = {  # (only in this text, in a reference) -> class and what it means
    (True, True): ("right", "only in this translation, and in a reference"),
    (True, False): ("wrong", "only in this translation, and in no reference"),
    (False, False): ("odd", "in both translations, but in no reference"),
}


def differences(report: Report, pictures: Pictures) -> str:
    """A section of its own, with what the colours mean, and the pictures of sentences that are not among them."""
    shown = [difference.line for difference in report.differences]
    others = [line for line in pictures if line not in shown and pictures[line]]
    pieces = []
    if report.differences:
        names = [apart(system.name) for system in report.systems[:2]]
        entries = [_entry(each, names, pictures.get(each.line, ())) for each in report.differences]
        lead = tag("p", f"Sentences in which {' and '.join(names)} differ most.", class_="lead")
        pieces.append(section("differences", "Most different sentences", lead, _key(), *entries))
    if others:
        attention = [_attention(line, pictures[line], f"Line {count(line)}: attention") for line in others]
        pieces.append(section("attention", "Attention", *attention))
    return "".join(pieces)


def _key() -> str:
    signs = [tag("li", tag("mark", words, class_=kind)) for kind, words in _KINDS.values()]
    return tag("ul", "".join(signs), class_="key", role="list", aria_label="What the colours mean")


def _entry(difference: Difference, names: Sequence[str], pictures: Sequence[tuple[str, str]]) -> str:
    key = f"line-{difference.line}"
    first, second = difference.scores
    apart_by = tag("span", f"{text(difference.metric)} {abs(first - second):.2f} apart", class_="muted")
    heading = tag("h3", f"Line {count(difference.line)} {apart_by}", id=key)
    given = [_block("Source", text(difference.source))] if difference.source is not None else []
    several = len(difference.references) > 1
    for number, reference in enumerate(difference.references, 1):
        given.append(_block(f"Reference {number}" if several else "Reference", text(reference)))
    inside = heading + tag("div", "".join(given), class_="texts") + tag("div", _pair(difference, names), class_="texts")
    if pictures:
        inside += _attention(difference.line, pictures, "Attention")
    return tag("article", inside, aria_labelledby=key)


def _pair(difference: Difference, names: Sequence[str]) -> str:
    """Both translations with their scores."""
    best, blocks = max(difference.scores), []
    tied = difference.scores[0] == difference.scores[1]
    for name, whole, segments, score in zip(
        names, difference.texts, difference.segments, difference.scores, strict=True
    ):
        better = " better" if score == best and not tied else ""
        figure = tag("span", f"{text(difference.metric)} {score:.2f}", class_=f"sentence-score{better}")
        blocks.append(_block(f"{name} {figure}", _coloured(whole, segments), "system"))
    return "".join(blocks)


def _block(title: str, content: str, kind: str | None = None) -> str:
    """A text under its name; of a language that the page does not know, in its own direction."""
    words = tag("p", content or tag("span", "(empty)", class_="none"), dir="auto", lang="", class_="words")
    return tag("div", tag("h4", title) + words, class_=kind)


def _coloured(whole: str, segments: Sequence[Segment]) -> str:
    return "".join(map(_segment, segments)) if segments else text(whole)


def _segment(segment: Segment) -> str:
    found = _KINDS.get((segment.kind == "only", segment.in_reference))
    if found is None:
        return text(segment.text)
    kind, words = found
    bare = segment.text.strip()
    before, _, after = segment.text.partition(bare) if bare else (segment.text, "", "")
    return text(before) + (tag("mark", text(bare), class_=kind, title=words) if bare else "") + text(after)


def _attention(line: int, pictures: Sequence[tuple[str, str]], title: str) -> str:
    figures = [framed(svg, f"attention-{line}-{i}", name, "attention") for i, (name, svg) in enumerate(pictures)]
    names = ", ".join(apart(name) for name, _ in pictures)
    return tag("details", tag("summary", f"{title} of {names}") + tag("div", "".join(figures), class_="attentions"))
