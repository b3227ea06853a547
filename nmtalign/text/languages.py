"""Names of languages: `German`, `deu` and `de_DE` mean `de`. The language in a file name. Scripts without spaces."""

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path

from nmtalign.errors import UsageError

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
# Han, kana, bopomofo, Thai, Lao, Tibetan, Burmese and Khmer letters: scripts that do not write spaces between words.
_UNSPACED_LETTERS = re.compile("[\u0e00-\u109f\u1780-\u17ff\u3041-\u312f\u3400-\u9fff\U00020000-\U0003ffff]")


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


def known_language(name: str) -> str:
    """The code of a language that is in the table, by its name or code; "" for any other text."""
    match = _WELL_FORMED.fullmatch(name.strip())
    return _CODES.get(match[1].lower(), "") if match else ""


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
    return (
        EXACT if parts == wanted_parts else NARROWER if wanted_parts < parts else WIDER if parts < wanted_parts else 0
    )


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


def has_no_spaces(language: str) -> bool:
    """Whether a language is written without spaces between words: Chinese, Japanese, Thai, Lao, Khmer, Burmese."""
    return main_language(language) in _UNSPACED


def word_count(line: str) -> int:
    """The number of words between spaces; two letters of scripts without spaces count as a word, too."""
    return len(line.split()) + count_unspaced(line) // 2


def count_unspaced(text: str) -> int:
    """The number of letters of scripts without spaces between words."""
    return len(_UNSPACED_LETTERS.findall(text))


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
