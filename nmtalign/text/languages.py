"""Languages: their names, and whether texts are in the language that a model or a corpus expects, and are raw text.

`German`, `deu` and `de_DE` mean `de`. Every text has many of the most frequent words of its language. So it is in the
language of that side whose vocabulary begins with its words. Names, numbers and words that are frequent on both sides
decide nothing.
"""

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import chain, islice
from pathlib import Path
from typing import TypeVar

import regex

from nmtalign.errors import UsageError
from nmtalign.text.lines import shown
from nmtalign.text.tokenizer import (
    UNK_ID,
    UNSPACED_LETTER,
    WORD_START,
    MosesWords,
    SentencePieces,
    TextBytes,
    Tokenizer,
    Tokenizers,
    Vocabularies,
    Vocabulary,
    bare,
    is_word,
)

# The code of a language in ISO 639-1, then those of ISO 639-2 and 639-3, and its English name.
_TABLE = """
af afr afrikaans; am amh amharic; ar ara arb arabic; az aze azerbaijani; be bel belarusian; bg bul bulgarian;
bn ben bengali; br bre breton; bs bos bosnian; ca cat catalan; cs ces cze czech; cy cym wel welsh; da dan danish;
de deu ger german; el ell gre greek; en eng english; eo epo esperanto; es spa spanish castilian; et est estonian;
eu eus baq basque; fa fas per pes persian farsi; fi fin finnish; fo fao faroese; fr fra fre french; fy fry frisian;
ga gle irish; gl glg galician; gu guj gujarati; ha hau hausa; he heb hebrew; hi hin hindi; hr hrv croatian;
hu hun hungarian; hy hye arm armenian; id ind indonesian; ig ibo igbo; is isl ice icelandic; it ita italian;
ja jpn japanese; ka kat geo georgian; kk kaz kazakh; km khm khmer; kn kan kannada; ko kor korean; ku kur kurdish;
ky kir kyrgyz; la lat latin; lb ltz luxembourgish; lo lao; lt lit lithuanian; lv lav latvian; mg mlg malagasy;
mi mri mao maori; mk mkd mac macedonian; ml mal malayalam; mn mon mongolian; mr mar marathi; ms msa may malay;
mt mlt maltese; my mya bur burmese; nb nob bokmal; ne nep nepali; nl nld dut dutch flemish; nn nno nynorsk;
no nor norwegian; oc oci occitan; pa pan punjabi; pl pol polish; ps pus pashto; pt por portuguese;
ro ron rum romanian; ru rus russian; sd snd sindhi; si sin sinhala; sk slk slo slovak; sl slv slovenian slovene;
so som somali; sq sqi alb albanian; sr srp serbian; sv swe swedish; sw swa swh swahili; ta tam tamil; te tel telugu;
tg tgk tajik; th tha thai; tk tuk turkmen; tl tgl tagalog; tr tur turkish; tt tat tatar; ug uig uyghur;
uk ukr ukrainian; ur urd urdu; uz uzb uzbek; vi vie vietnamese; wo wol wolof; xh xho xhosa; yi yid yiddish;
yo yor yoruba; zh zho chi cmn chinese mandarin; zu zul zulu
"""
_CODES = {name: names.split()[0] for names in _TABLE.split(";") for name in names.split()}
_NAMES = {
    code: next((name for name in names if len(name) > 3), names[-1]).capitalize()
    for code, *names in map(str.split, _TABLE.split(";"))
}
_UNSPACED = frozenset(("zh", "ja", "th", "lo", "km", "my", "yue", "wuu", "lzh", "bo", "dz"))
_DOTLESS_I = ("tr", "az")  # i and ı are different letters
_WELL_FORMED = re.compile(r"([a-z]{2,})(?:[-_][a-z0-9]{1,8})*", re.IGNORECASE)
# The script of Chinese in a region; the last two are codes of Windows.
_CHINESE = dict.fromkeys(("cn", "sg", "my", "chs"), "hans") | dict.fromkeys(("tw", "hk", "mo", "cht"), "hant")
EXACT, NARROWER, WIDER = 3, 2, 1  # how well a code fits; see `fit`
# Endings of file names that tell how the text is stored or was processed, or its role.
_PLAIN = re.compile(
    r"txt|text|tsv|csv|tab|tmx|jsonl?|xml|gz|xz|zst|bz2|zip|tok|tokenized|clean|cleaned|raw|bpe|bpe-?\d+k?|spm?|lc|tc"
    r"|lower|lowercased?|true|truecased?|norm|dedup|sorted|shuf|utf-?8|dat|data|out|hyp|ref|tmp|part|\d+"
)
_IN_NAME = re.compile(r"(?:^|[_-])([a-z]{2}|[a-z]{4,})(?:[-_][A-Z]{2})?$")
_WORD = re.compile("am|as|be|he|hi|id|is|it|la|mi|my|no|or|pa|si|so|to")  # in file names these are not languages
_LONG_WORD, _LONG_WORDS = 3, 5  # letters of one word, and of words on average, that segmented texts do not have
# Marks that end a sentence wherever they are: of Chinese and Japanese, Indic languages, Arabic, Urdu, Armenian,
# Amharic, Burmese and Khmer. The other marks end one only at the end of a word.
WIDE_ENDS = "。！？｡।॥؟۔։።፧။។"
SENTENCE_ENDS = f".!?…{WIDE_ENDS}"


def language_code(name: str) -> str:
    """The code of a language: `de` for `German`, `deu`, `ger`, `de_DE` and `de-AT`.

    A code that is not in the table stays as it is. Raises UsageError for what cannot be the code of a language.
    """
    match = _WELL_FORMED.fullmatch(name.strip())
    if not match:
        raise UsageError(f"{name!r} is not a language; give a code such as en, de or zh")
    return _CODES.get(match[1].lower(), name.strip())


def language_name(code: str) -> str:
    """The English name of a language, such as `German` for `de`; the code if it is not in the table."""
    return _NAMES.get(code, code)


def is_known(name: str) -> bool:
    """Whether a text is the name or the code of a language that is in the table."""
    return main_language(name) in _NAMES


@lru_cache(maxsize=1 << 12)
def _subtags(name: str) -> tuple[str, frozenset[str]]:
    """The code of a language and the other parts of its name, as in zh-Hant-TW; Chinese regions have a script."""
    bare = name.strip().lower()
    language, *rest = re.split("[-_]", bare) if _WELL_FORMED.fullmatch(bare) else (bare,)
    code = _CODES.get(language, language)
    scripts = [_CHINESE[part] for part in rest if part in _CHINESE and code == "zh"]
    return code, frozenset((*rest, *scripts))


def fit(found: str, wanted: str) -> int:
    """How well the code of a language in a file fits a wanted one; 0 if they are different languages.

    EXACT: the same, as zh-CN and zh_cn. NARROWER: the wanted code names fewer parts, as zh. WIDER: it names more parts,
    as zh-CN for zh. So en-GB does not fit en-US.
    """
    (code, parts), (other, wanted_parts) = _subtags(found), _subtags(wanted)
    if not code or code != other:
        return 0
    if parts == wanted_parts:
        return EXACT
    return NARROWER if wanted_parts < parts else WIDER if parts < wanted_parts else 0


def matched(found: Sequence[str], wanted: tuple[str, str], before: Sequence[str] = ("", "")) -> tuple[str, str]:
    """The codes of a file that fit two wanted languages best; "" where none does. They are never the same code.

    Among equals the code that was taken `before` wins, then the first.
    """

    def best(side: int, codes: Sequence[str]) -> str:
        code = max(codes, key=lambda one: (fit(one, wanted[side]), one == before[side]), default="")
        return code if fit(code, wanted[side]) else ""

    source, target = best(0, found), best(1, found)
    if source == target:  # the side that it fits better keeps it
        others = [code for code in found if code != source]
        if fit(source, wanted[0]) >= fit(target, wanted[1]):
            return source, best(1, others)
        return best(0, others), target
    return source, target


def suffix_language(path: Path) -> str:
    """The language that the name of a text file ends with, as in `train.en`, `corpus.de_DE.txt.gz` and `news-fr.txt`.

    "" if it ends with none: `.txt`, `.gz` and other endings that tell how a text is stored are not languages.
    """
    stem, dot, ending = path.name.rpartition(".")
    plain = False
    while dot and _PLAIN.fullmatch(ending.lower()):
        plain = True
        stem, dot, ending = stem.rpartition(".")
    match = _WELL_FORMED.fullmatch(ending)
    if dot and match and (match[1].lower() in _CODES or len(match[1]) <= 3):
        # As in `train.en-fr`; with an underscore the second part is a country: `pt_br`, `fr_ca`.
        two_languages = ending[match.end(1) :].startswith("-") and ending[match.end(1) + 1 :] in _CODES
        return "" if two_languages else language_code(ending).lower()
    found = _IN_NAME.search(ending) if plain and not dot else None
    return _CODES.get(found[1], "") if found and not _WORD.fullmatch(found[1]) else ""


def languages_in(path: Path) -> tuple[str, str]:
    """Both languages in the name of one file, as in `corpus.en-fr.tsv`; ("", "") if there are none."""
    match = re.search(r"\.([a-z]{2,3})-([a-z]{2,3})\.", path.name)
    found = tuple(_CODES.get(code, "") for code in match.groups()) if match else ()
    return (found[0], found[1]) if all(found) and found else ("", "")


def main_language(name: str) -> str:
    """The code of a language without its region and script: `zh` for `zh-TW`, `zho_Hant` and `Chinese`."""
    return _subtags(name)[0]


def lower_case(text: str, language: str) -> str:
    """The text in lower case; the Turkish I becomes ı, and İ becomes i."""
    return (text.replace("I", "ı").replace("İ", "i") if main_language(language) in _DOTLESS_I else text).lower()


def upper_case(text: str, language: str) -> str:
    """The text in capitals; the Turkish i becomes İ."""
    return (text.replace("i", "İ") if main_language(language) in _DOTLESS_I else text).upper()


def capitalised(text: str, language: str) -> str:
    """The text with a capital if it begins with a letter that has one at the start of a sentence; in Georgian none."""
    return ("İ" if text[:1] == "i" and main_language(language) in _DOTLESS_I else text[:1].title()) + text[1:]


def has_no_spaces(language: str) -> bool:
    """Whether a language has no spaces between words: Chinese, Japanese, Thai, Lao, Khmer, Burmese, Tibetan."""
    return main_language(language) in _UNSPACED


def word_count(line: str) -> int:
    """The number of words between spaces, but of text without spaces half the number of its letters."""
    return max(len(line.split()), count_unspaced(line) // 2)


def count_unspaced(text: str) -> int:
    """The number of letters of scripts without spaces between words."""
    return len(UNSPACED_LETTER.findall(text))


def in_unspaced_script(text: str) -> bool:
    """Whether at least half of the letters of a text belong to scripts that are written without spaces."""
    return 2 * count_unspaced(text) > max(sum(map(str.isalpha, text)), 1)


def is_unspaced(lines: Iterable[str]) -> bool:
    """Whether a text has no spaces between words.

    At least half of its letters belong to scripts that are written without them, and most lines are one word, or its
    words are longer than those of a segmented text, which have about two letters, or four in Thai and Khmer.
    """
    lines = [line for line in lines if not line.isspace()]
    text, words = "".join(lines), [len(line.split()) for line in lines]
    letters = sum(map(str.isalpha, text))
    whole = sum(count == 1 and len(line) > _LONG_WORD for count, line in zip(words, lines, strict=True))
    return in_unspaced_script(text) and (2 * whole > len(lines) or letters > _LONG_WORDS * sum(words))


T = TypeVar("T")
Notify = Callable[[str], object]
MOST_UNKNOWN = 0.4  # a larger share of unknown words is always reported
SAMPLE_WORDS = 400  # words by which a text is judged
_LINES = 100  # pairs by which two texts are judged
_ENOUGH, _FEW = 20, 5  # words that are needed to judge a text: few are enough if the names of the files agree
_FREQUENT = 200  # first words of a vocabulary, among which are those that every text has
# Share of the words of a text that are frequent on one side only, and how many times as many as on the other side.
_COMMON, _TIMES = 0.12, 4
_MORE_KNOWN = 0.5  # share of words that only the other side knows; it is enough even if none of them is frequent
_BYTE = 3.5  # minus the log-probability of a byte in an unknown language; in an unknown word of a known one, 1 more

# What another program leaves in a text: a pattern (\w of `regex` also means marks), and the least share of the lines.
SPACED_MARKS = "spaces before punctuation"
_ESCAPES, _TAGS = "escapes of Moses or XML", "HTML tags"
_TRACES = {
    _ESCAPES: (regex.compile(r"&(?:[A-Za-z]{2,8}|#[0-9]{1,5}|#x[0-9A-Fa-f]{1,5});|(?<=\w\s)@[-/]@(?=\s\w)"), 0.03),
    "pieces of words": (
        regex.compile(r"\w{1,20}@@(?=\s|$)|(?<!\S)▁\w{0,20}|\w{0,20}￭\w{0,20}|(?<=\w\s)##[^\W_]{1,20}"),
        0.03,
    ),
    _TAGS: (re.compile(r"</?(?:[abiup]|br|div|span|em|strong|li|img)\b[^<>]*>"), 0.05),
}
_IN_VOCABULARY = frozenset(("apos", "quot", "&apos;", "&quot;", "@", "@@", "@-@"))
# French writes spaces before ? ! : ; but no language does before these marks.
_SPACED, _JOINED = regex.compile(r"(?<=\w)\s[.,。，、](?=\s|$)"), regex.compile(r"\w[.,。，、](?=\s|$)")
_FEWEST, _FEWEST_SPACED = 3, 5  # lines

Traces = Mapping[str, str]  # the name of each trace: the name with examples, such as "escapes (&apos;)"


def traces(lines: Iterable[str], markup: bool = False) -> Traces:
    """What shows that a text is not raw; with `markup` also HTML tags, which a model may have to translate."""
    texts = [line for line in lines if line and not line.isspace()]
    found = {}
    for name, (pattern, share) in _TRACES.items():
        having = [line for line in texts if pattern.search(line)] if markup or name != _TAGS else []
        if len(having) >= max(_FEWEST, share * len(texts)):
            examples = Counter(match[0] for line in having[:100] for match in pattern.finditer(line))
            two = " ".join(one for one, _ in examples.most_common(2) if len(one) <= 25)
            found[name] = f"{name}{f' ({two})' if two else ''}"
    spaced, joined = (sum(mark.search(line) is not None for line in texts) for mark in (_SPACED, _JOINED))
    if spaced >= max(_FEWEST_SPACED, joined, 0.03 * len(texts)):
        found[SPACED_MARKS] = SPACED_MARKS
    return found


def not_raw(texts: Iterable[tuple[str, Traces]], instead: str = "") -> Iterator[str]:
    """Warnings that texts, (name, traces), are not raw: one for all texts that have the same traces.

    `instead` is what else to do with such a text.
    """
    groups: dict[tuple[str, ...], dict[str, Traces]] = {}
    for name, found in texts:
        groups.setdefault(tuple(found), {})[name] = found
    for kinds, group in groups.items():
        if kinds:
            what = " and ".join(next(iter(group.values())).values())
            yield f"warning: {' and '.join(group)}: not raw text, but text with {what}; give the raw text{instead}"


class _SideFit:
    """How well a text fits the tokeniser and the vocabulary of one side."""

    def __init__(self, language: str, tokenizer: Tokenizer, vocabulary: Vocabulary) -> None:
        self.language, self._tokenizer, self._vocabulary = language, tokenizer, vocabulary
        self.words = self.unknown = self.common = 0  # `words` and `unknown` of them have letters
        self.odds, self._scale = 0.0, math.log(len(vocabulary))  # of this language against an unknown one
        in_pieces = tokenizer.kind == SentencePieces.kind
        self._unspaced = in_pieces and has_no_spaces(language)
        start = WORD_START if in_pieces and not self._unspaced else ""
        first = (word.removeprefix(start) for word in vocabulary.words[2:_FREQUENT] if word.startswith(start))
        self.frequent = {word for word in first if len(word) > (not self._unspaced) and bare(word).isalpha()}

    def add(self, line: str) -> None:
        tokens = self._vocabulary.known_tokens(line, self._tokenizer.tokenize)
        words = list(filter(is_word, tokens))
        ranks = self._vocabulary.encode(words)
        self.words, self.unknown = self.words + len(words), self.unknown + ranks.count(UNK_ID)
        for size, rank in zip((len(word.lstrip(WORD_START).encode()) for word in words), ranks, strict=True):
            # By Zipf's law, the word on line r of K has a probability of about 1 / (r log K).
            self.odds += -size if rank == UNK_ID else _BYTE * size - math.log(rank * self._scale)
        parts = tokens if self._unspaced else self._tokenizer.words(tokens)
        self.common += sum(word in self.frequent for word in parts)

    @property
    def share(self) -> float:
        """The share of words that are unknown."""
        return self.unknown / max(self.words, 1)


class TextFit:
    """Compares a text with the side that should read it, and with the other side."""

    def __init__(
        self, tokenizers: Tokenizers, vocabularies: Vocabularies, side: int, tokenized: bool = False, raw: bool = True
    ) -> None:
        """`side` is that of the text's language, 0 the source, 1 the target; if not `raw`, it may be split in words."""
        self.kind = tokenizers.kind
        used = tokenizers.for_text(tokenized)
        languages = tokenizers.source_language, tokenizers.target_language
        sides = list(map(_SideFit, languages, (used.source, used.target), vocabularies))
        shared = sides[0].frequent & sides[1].frequent
        for one in sides:
            one.frequent -= shared
        self.own, self.other = sides[side], sides[1 - side]
        words = {word.removeprefix(WORD_START) for word in vocabularies[side].words[: 10 * _FREQUENT]}
        raw = raw and used.kind in (MosesWords.kind, SentencePieces.kind, TextBytes.kind)
        self._trained_raw = raw and _IN_VOCABULARY.isdisjoint(words)
        marks = {f"{WORD_START}.", f"{WORD_START},"} & {*vocabularies[side].words[:_FREQUENT]}
        # Moses words are the same without the spaces.
        self._joins_marks = used.kind == SentencePieces.kind and not marks
        self._lines = list[str]()
        self.words = 0

    def add(self, line: str) -> None:
        """Counts a line of the text."""
        self.words += word_count(line) if self.kind == SentencePieces.kind else len(line.split())
        self._lines.append(line)
        self.own.add(line)
        self.other.add(line)

    def fits_other(self, enough: int = _ENOUGH) -> bool:
        """Whether the text is clearly in the language of the other side."""
        return self.words >= enough and self._fits(self.other, self.own)

    def fits_own(self) -> bool:
        """Whether the text is clearly in the language of its side."""
        return self.words >= _FEW and self._fits(self.own, self.other)

    def _fits(self, side: _SideFit, other: _SideFit) -> bool:
        frequent = side.common >= max(1, _COMMON * self.words, _TIMES * other.common)
        return frequent or other.share - side.share > _MORE_KNOWN

    def traces(self) -> Traces:
        """What shows that the text is not raw; nothing if the training text was the same."""
        found = traces(self._lines) if self._trained_raw else {}
        return {name: text for name, text in found.items() if name != SPACED_MARKS or self._joins_marks}

    def evidence(self) -> str:
        """The numbers that show in which language the text is."""
        own, other = (f"{min(1, side.common / max(self.words, 1)):.0%}" for side in (self.own, self.other))
        return f"{own} of its words are frequent in {self.own.language}, {other} in {self.other.language}"


def check_lines(lines: Iterable[T], text: Callable[[T], str], name: str, fit: TextFit, notify: Notify) -> Iterator[T]:
    """Yields the lines; warns once if they are in the other language, not raw, or have many unknown words."""
    lines = iter(lines)
    for line in lines:
        yield line
        fit.add(text(line))
        if fit.words >= SAMPLE_WORDS:
            break
    _report([name], [fit], notify)
    yield from lines


def unknown_words(name: str, share: float, language: str) -> str:
    """The warning that many words of a text are unknown."""
    return (
        f"warning: {name}: {share:.0%} of the words with letters are unknown: is the text in "
        f"{language}, and tokenised and cased like the training text?"
    )


def other_language(name: str, fit: TextFit) -> str:
    """The warning that a text is in the language of the other side."""
    own = fit.own.language
    return f"warning: {name}: seems to be {fit.other.language}, not {own}: {fit.evidence()}; give a text in {own}"


def check_spaces(names: tuple[Path, Path], pairs: Sequence[tuple[str, str]], notify: Notify) -> None:
    """Warns of a text without spaces between words, given its first pairs: links of words cannot be found in it."""
    for name, lines in zip(names, zip(*pairs, strict=True), strict=False):
        if is_unspaced(lines):
            fix = r"with a segmenter first, or into letters, for example with perl -CSD -pe 's/\X(?=.)/$& /g'"
            problem = "has no spaces between words, so links join whole lines"
            notify(f"warning: {shown(name)}: {problem}; split it into words {fix}")


def check_pairs(
    pairs: Iterable[tuple[str, str]], names: tuple[Path, Path], fits: Sequence[TextFit], notify: Notify
) -> Iterator[tuple[str, str]]:
    """Yields the pairs of two texts, and reports if the texts are exchanged, or one of them is in the other language.

    It reads the first pairs before it yields one. Raises UsageError if both the names and the words of the files say
    that they are exchanged.
    """
    pairs = iter(pairs)
    first = list(islice(pairs, _LINES))
    for fit, lines in zip(fits, zip(*first, strict=True), strict=False):
        for line in lines:
            fit.add(line)
    problem, words_agree, names_agree = exchanged(names, fits)
    if words_agree and names_agree:
        raise UsageError(f"{problem}; give the two files in the other order")
    if problem:
        notify(f"warning: {problem}; if so, give the two files in the other order")
    else:
        _report(list(map(shown, names)), fits, notify)
    if fits[0].kind == "pieces":  # a word aligner knows only words between spaces
        check_spaces(names, first, notify)
    yield from chain(first, pairs)


def _report(names: Sequence[str], fits: Sequence[TextFit], notify: Notify) -> None:
    """Warns of texts that are not raw, are in the other language, or have many unknown words."""
    instead = ", or give --tokenized if these are the tokens of the model" if fits[0].kind == MosesWords.kind else ""
    for warning in not_raw([(name, fit.traces()) for name, fit in zip(names, fits, strict=True)], instead):
        notify(warning)
    for name, fit in zip(names, fits, strict=True):
        many = fit.own.share > MOST_UNKNOWN
        if fit.fits_other(1 if many else _ENOUGH):
            notify(other_language(name, fit))
        elif many:
            notify(unknown_words(name, fit.own.share, fit.own.language))


def exchanged(names: tuple[Path, Path], fits: Sequence[TextFit]) -> tuple[str, bool, bool]:
    """Why source and target seem to be exchanged ("" if they do not), by their words (bool), by their names (bool)."""
    languages = fits[0].own.language, fits[1].own.language
    found = suffix_language(names[0]), suffix_language(names[1])
    named = found == languages[::-1] != languages
    if any(fit.fits_own() for fit in fits) or languages[0] == languages[1]:
        return "", False, False
    worded = all(fit.fits_other(_FEW if named else _ENOUGH) for fit in fits)
    if not (named or worded):
        return "", False, False
    texts = f"{shown(names[0])} and {shown(names[1])}"
    problem = f"{texts} seem to be {languages[1]} and {languages[0]}, and {'-'.join(languages)} is expected"
    return f"{problem} ({fits[0].evidence()})" if worded else f"{problem}, by their names", worded, named
