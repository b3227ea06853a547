"""A hand-written report of `nmtalign score` with everything in it; no number of it occurs twice."""

from itertools import count

from nmtalign.scoring.differences import Difference, Segment
from nmtalign.scoring.report import Breakdown, Part, Report, Section, SystemReport
from nmtalign.scoring.resampling import Interval, Mark, Resampling
from nmtalign.scoring.words import UnknownRates, WordBreakdown, WordCounts, WordRow

METRICS = ("BLEU", "chrF2", "TER")
SIGNATURES = (
    "BLEU|nrefs:1|bs:1000|seed:12345|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0",
    "chrF2|nrefs:1|bs:1000|seed:12345|case:mixed|eff:yes|nc:6|nw:0|space:no|version:2.6.0",
    "TER|nrefs:1|bs:1000|seed:12345|case:lc|tok:tercom|norm:no|punct:yes|asian:no|version:2.6.0",
)
NAMES = ("rnnencdec-50", "rnnsearch-30", "rnnsearch-50")
LENGTHS = ("1-10", "11-20", "21-30", "31-40", "41-50", "51-60", "61-70", ">70")
SIZES = (412, 803, 712, 540, 301, 140, 61, 34)
BLEU = (
    (22.17, 24.91, 23.38, 19.46, 14.73, 10.85, 7.62, 5.14),
    (23.95, 27.64, 27.07, 25.71, 22.36, 17.92, 13.48, 9.83),
    (23.41, 28.26, 29.13, 28.87, 28.04, 27.59, 26.76, None),
)


def values(bleu: float | None) -> tuple[float | None, ...]:
    """The three metrics of a part with that BLEU."""
    return (None,) * 3 if bleu is None else (bleu, round(31.3 + bleu * 0.87, 2), round(91.7 - bleu * 1.23, 2))


def part(label: str, sentences: int, bleu: float | None, mark: Mark = "", p: float | None = None) -> Part:
    """Makes a part with intervals, and with p-values if they are given."""
    width = 0.3 + 14 / (sentences + 1) ** 0.5
    intervals = tuple(
        None if value is None else Interval(value - 0.03, value - 0.02 - width, value + 0.05 + width)
        for value in values(bleu)
    )
    return Part(
        label,
        sentences,
        values(bleu),
        None if bleu is None else 0.9 + bleu / 317,
        intervals,
        {} if p is None or bleu is None else {"bs": (p, p + 0.0011, p + 0.0402), "ar": (p + 0.0003, p + 0.0007, 0.6)},
        (mark, mark, ""),
    )


def system(number: int) -> SystemReport:
    """All figures of a system."""
    marks: list[Mark] = ["", "tie", "winner"]
    p = (None, 0.0021, 0.0009)[number]
    columns = zip(LENGTHS, SIZES, BLEU[number], strict=True)
    by_length = [part(label, size, bleu, marks[number], p) for label, size, bleu in columns]
    places = [part(f"{1 + 601 * i}-{601 * (i + 1)}", 601, BLEU[number][i] + 1.03) for i in range(5)]
    whole = part("all", 3003, (17.82, 26.75, 28.45)[number], marks[number], p)
    known = part("all", 1467, (26.71, 34.16, 36.15)[number], marks[number], p)
    cuts = (
        Breakdown("length", "by words of the source", "words", tuple(by_length)),
        Breakdown("place", "by place in the text", "lines", tuple(places)),
    )
    return SystemReport(NAMES[number], Section(whole, cuts), Section(known))


def words() -> tuple[WordBreakdown, ...]:
    """Counts by frequency and by place."""
    numbers = count(1)

    def row(label: str, size: int, share: float) -> WordRow:
        return WordRow(
            label,
            tuple(WordCounts(size, size + 7 * i + next(numbers), int(size * (share + i / 19))) for i in range(3)),
        )

    frequency = [("unknown", 1203, 0.04), ("1", 311, 0.18), ("2-9", 2140, 0.29), ("10-99", 9312, 0.41)]
    frequency += [("100-999", 15211, 0.52), (">999", 52019, 0.66)]
    places = [(f"{name} fifth", 16039, 0.7 - i / 21) for i, name in enumerate(("first", "second", "third", "fourth"))]
    return (
        WordBreakdown(
            "frequency", "words by frequency in training", "times seen", tuple(row(*each) for each in frequency)
        ),
        WordBreakdown("place", "words by place in the sentence", "place", tuple(row(*each) for each in places)),
    )


def segments(marked: str) -> tuple[Segment, ...]:
    """`word` in both and the reference, `+word` only here and right, `-word` only here and wrong, `~word` odd."""
    kinds = {"+": ("only", True), "-": ("only", False), "~": ("same", False)}
    pieces = []
    for number, piece in enumerate(marked.split("|")):
        kind, known = kinds.get(piece[0], ("same", True))
        pieces.append(Segment((" " if number else "") + piece.lstrip("+-~"), kind, known))
    return tuple(pieces)


def difference(line: int, source: str | None, reference: str, first: str, second: str, scores) -> Difference:
    """One sentence; the texts are those of `segments`."""
    both = segments(first), segments(second)
    texts = tuple("".join(segment.text for segment in each) for each in both)
    return Difference(line, source, (reference,), texts, scores, "chrF2", both)


HOSTILE = "</script><script>document.title='hit'</script><img src=x onerror=\"document.title='hit'\">"
DIFFERENCES = (
    difference(
        1187,
        "An admitting privilege is the right of a doctor to admit a patient to a hospital or a medical centre to carry "
        "out a diagnosis or a procedure, based on his status as a health care worker at a hospital.",
        "Le privilège d'admission est le droit d'un médecin d'admettre un patient dans un hôpital ou un centre médical "
        "pour y établir un diagnostic ou y pratiquer une intervention, selon son statut de soignant.",
        "Un privilège|-d'admettre|est le droit d'un médecin|~de reconnaître|un patient|-à l'hôpital|ou un centre "
        "médical|-de faire de diagnostic ou de prendre l'état de la santé.",
        "Un privilège|+d'admission|est le droit d'un médecin|+d'admettre|un patient|+dans un hôpital|ou un centre "
        "médical|+pour|-effectuer|+un diagnostic ou|-une procédure,|+selon son statut.",
        (38.41, 71.93),
    ),
    difference(
        42,
        "The mayor's car was parked in front of the old mill & nobody had seen it leave.",
        "La voiture du maire était garée devant le vieux moulin et personne ne l'avait vue partir.",
        "La voiture du maire était|+garée devant le vieux moulin|et|-nul|ne l'avait|-vu.",
        "La voiture du maire était|-laissée au moulin|et|+personne|ne l'avait|+vue partir.",
        (66.02, 49.57),
    ),
    difference(
        2890,
        "السيارة أمام البيت القديم",
        "המכונית ליד הבית",
        "המכונית|-מול|הבית",
        "+המכונית ליד|הבית \u202eabc",
        (51.2, 44.4),
    ),
    difference(7, HOSTILE, "x" * 400, f"+{HOSTILE}|-&amp;", "~<b>gras</b>\x00|-" + "y" * 300, (12.0, 11.0)),
)


def report() -> Report:
    """A report of three systems with all optional sections."""
    return Report(
        METRICS,
        SIGNATURES,
        tuple(map(system, range(3))),
        Resampling(),
        ("bs", "ar"),
        words(),
        UnknownRates(0.0213, 0.0187, (0.0, 0.0042, 0.0038)),
        DIFFERENCES,
    )
