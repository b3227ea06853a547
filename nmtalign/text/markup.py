"""Documents with markup: HTML, XLIFF 1.2 and 2, SRT and WebVTT.

A document is cut into segments of text. All between them stays as it is, character for character. The tags inside a
segment become marks: an element encloses a part of the text, and an empty mark is at a place of it. When the segment
has been translated, `MarkedText.put_back` writes each mark once, where the caller places it (`alignment.placement`).

Regular expressions find the tags of HTML by the rules of its standard, in linear time on any text, which html.parser
of Python 3.11 does not. lxml reads XLIFF. No library keeps every character of SRT and WebVTT, whose blocks are simple.
"""

import html
import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, chain, islice, pairwise, zip_longest
from typing import Any, Literal, NamedTuple, cast
from uuid import uuid4

import regex

from nmtalign.errors import InputError
from nmtalign.settings.command_settings import Markup
from nmtalign.text.languages import SENTENCE_ENDS, fit, main_language
from nmtalign.text.lines import BOM
from nmtalign.text.tokenizer import UNSPACED, is_word

_DEEPEST = 100  # elements inside each other
_LONGEST = 2000  # characters of a segment, because the memory for its links grows with their square
_MOST_CUES = 8  # over which one sentence extends

_TAG = re.compile(
    r"<!--(?:-?>|.*?(?:--!?>|\Z))|<!\[CDATA\[.*?(?:\]\]>|\Z)"
    r"|<(/?)([A-Za-z][^\s/>]*)((?:=\s*+(?:\"[^\"]*+(?:\"|\Z)|'[^']*+(?:'|\Z))|[^>])*+)(?:>|\Z)"
    r"|<(%|\?(?!\w+:))(?:[^<]|<(?![%?]))*?\4>"  # a template, or an instruction of XML; not a namespace of Word
    r"|<[!?/](?:[^>]*>|[^>]*\Z)",
    re.DOTALL,
)
# Tags inside text: those of subtitles, and HTML that XLIFF contains as text.
_TEXT_TAGS = r"</?[A-Za-z][^<>]*>|<\d[\d:.]*>|\{\\[^{}]*\}"
_TEXT_TAG = re.compile(f"({_TEXT_TAGS})")
# Addresses may touch the words of a language without spaces, quotation marks, and parentheses around them.
_IN_ADDRESS = r"[^\s<>\"()“”„«»\u3000-\u3030\uff01-\uff0f\uff1a-\uff20]"
_LETTER = rf"[^\W{UNSPACED}]"
_IN_NAME = rf"(?:{_LETTER}|-)"
_CONVERSION = r"(?:hh?|ll?|[Lqjzt])?[diouxXeEfFgGaAcCsSpn@]"
_PRINTF = rf"%(?:\d+\$|\(\w+\))?[-#0+]*+\d*(?:\.\d+)?{_CONVERSION}"
_PLACEHOLDER = re.compile(
    rf"(https?://(?:{_IN_ADDRESS}|\({_IN_ADDRESS}*\))+(?<![.,;:!?'’\]}}])"
    rf"|(?<!{_IN_NAME})(?<![.+])(?:{_IN_NAME}|[.+])+@{_IN_NAME}+(?:\.{_IN_NAME}+)+"
    r"|\{\{[^{}]*\}\}|\{%[^{}]*%\}|[$%]?\{[^{}\s]*\}|\$[A-Za-z_][A-Za-z_0-9]*|%%"
    rf"|%(?!{_CONVERSION}(?:%%|\w?{_PRINTF}))[A-Za-z_]\w*%|(?<!\d){_PRINTF}"  # %NAME%, but neither %d%% nor %dx%d
    r"|&(?:#\d+|#[xX][\da-fA-F]+|[A-Za-z]\w*);)"
)
_LETTERS = rf"(?:_|[^\s\p{{P}}\p{{S}}\u2000-\u206f{UNSPACED}])+"
_UNIT = regex.compile(
    rf"(?:{_PLACEHOLDER.pattern}|\d+(?:[.,:]\d+)+|(?:qu|[^\W\d_])['’](?=\w\w)|{_LETTERS}(?:['’-]{_LETTERS})*|\S)"
    r"\p{M}*",
    regex.IGNORECASE,
)
_OF_WORD = regex.compile(r"[\p{L}\p{M}\p{N}]")  # what isalnum() knows, and the marks of letters
_OF_SPACED_WORD = regex.compile(rf"(?![{UNSPACED}]){_OF_WORD.pattern}")
_CHUNK = re.compile(rf".{{1,2000}}(?:(?<=[{SENTENCE_ENDS}])\s+|\Z)|.{{1,2000}}\s|.{{1,2000}}", re.DOTALL)
_IN_WORDS = str.maketrans("", "", "\u00ad\u2060")  # soft hyphens and word joiners, which no translation needs
_SOFT = "\ue000"  # before the end of a line inside a cue
_CLOSING = ".,;:!?)]}…。，"
_SENTENCE_END = re.compile(rf"[{SENTENCE_ENDS}♪][\"'”’»)\]]*$")
_DASH = r"[ \t]*[-‐–—♪]+[ \t]*"  # before what another speaker says
_CUE_TAG = re.compile(rf"({_TEXT_TAGS}|(?:^|(?<=[>}}])){_DASH}|(?:(?<![ \t])[ \t]++)?♪[ \t]*|\r?\n)", re.MULTILINE)
_AT_EDGE = re.compile(r"((?:<[A-Za-z][^<>]*>)+)((?:[ \t]*\r?\n)+)?|(?<!\s)((?:[ \t]*\r?\n)+)((?:</[^<>]*>)+)")
_NEW_SPEAKER = re.compile(rf"{_DASH}|[ \t]*[\[(#>]")
_TIME, _LINE = r"(?m)^[ \t]*(?:\d+:)?\d+:\d+(?:[.,]\d+)?[ \t]*-->.*", r"(?!(?:\d+[ \t\r]*\n)?.*\d[ \t]*-->).*\S.*\n?"

_BLOCK = re.compile(
    "address|article|aside|base|blockquote|body|br|button|caption|center|col|colgroup|dd|details|dialog|dir|div|dl|dt"
    "|fieldset|figcaption|figure|footer|form|frame|frameset|h[1-6]|head|header|hgroup|hr|html|iframe|legend|li|link"
    "|listing|main|menu|meta|nav|noscript|ol|optgroup|option|p|param|plaintext|pre|search|section|select|source|summary"
    "|table|tbody|td|template|textarea|tfoot|th|thead|title|tr|track|ul|video|audio|xmp"
)
_INSIDE = re.compile("audio|br|button|iframe|link|meta|opt.*|param|select|source|template|textarea|title|track|video")
_LIST = re.compile("datalist|dir|dl|menu|ol|select|table|ul")
_ENTRY = re.compile("d[dt]|li|optgroup|option|t[dhr]|tbody|tfoot|thead")
_NEXT = {  # what an entry of a list or ruby without an end tag ends before, unless it is in another list
    **dict.fromkeys(("dd", "dt", "li", "option", "td", "th"), _ENTRY),
    "tr": re.compile("tr|tbody|tfoot|thead"),
    **dict.fromkeys(("rp", "rt"), re.compile("r[bpt]|ruby")),
}
_EMPTY = re.compile("area|base|br|col|embed|frame|hr|img|input|link|meta|param|source|track|wbr")
_RAW = re.compile("script|style|textarea|iframe|listing|xmp|noembed|noframes|plaintext")  # only their end tag counts
# Not translated.
_VERBATIM = re.compile(rf"{_RAW.pattern}|pre|code|kbd|samp|var|tt|sub|sup|rp|rt|svg|math|object|(.+:)?(ph|it|bpt|ept)")
_BESIDE_LINK = regex.compile(
    rf"(?<={_LETTER})(?:</a\s*><[a-z][^<>]*>|</[a-z]\w*\s*><a\s[^<>]*>)(?={_LETTER})", regex.IGNORECASE
)
_YES = re.compile(r"\stranslate\s*=\s*[\"']?yes", re.IGNORECASE)
_NESTED = 3  # elements that are translated inside others that are not
_LANGUAGE = re.compile(r"(\s(?:xml:)?lang\s*=\s*[\"']?)([\w-]+)", re.IGNORECASE)  # an attribute that states it
_ATTRIBUTE = re.compile(r"([^\s=/]+)(?:\s*=\s*(?:\"([^\"]*)\"?|'([^']*)'?|(\S+)))?|/")

Kind = Literal["text", "open", "close", "empty", "line", "break"]
_CODES: dict[str, Kind] = {  # elements of XLIFF without content, or whose content is not translated
    **dict.fromkeys(("bpt", "bx", "sc", "sm"), "open"),
    **dict.fromkeys(("ept", "ex", "ec", "em"), "close"),
}
_XLIFF_SEGMENTS = ".//*[local-name()='mrk' and @mtype='seg' and not(ancestor::*[@mtype='seg'])]"
_LINE_BREAK = re.compile(r"((?<!\s)[^\S\n]*+\n\s*)")
_escaped = partial(html.escape, quote=False)
# XML reads a carriage return as a line feed.
_ENCODE: dict[str, Callable[[str], str]] = {"srt": str, "xliff": lambda text: _escaped(text).replace("\r", "&#13;")}


class MarkupToken(NamedTuple):
    """A part of a document: text, a tag, the end of a line of subtitles, or what is between segments ("break").

    `raw` is how the document writes it. Opening and closing tags with the same `name` belong together.
    """

    kind: Kind
    raw: str
    name: str = ""  # begins with ":" for what is no tag for a parser: tags in text, and codes of XLIFF
    text: str = ""  # of kind "text"


@dataclass
class Mark:
    """An element that encloses characters `start` to `stop` of a segment, or an empty mark at `start`."""

    opening: str
    closing: str
    start: int
    stop: int
    parent: int  # the number of the mark that contains it, or -1
    line: bool = False
    cut: bool = False  # with a tag whose other tag is in another segment
    before: str = ""  # the characters of the text beside an empty mark
    after: str = ""


class MarkedText:
    """Text to translate, and its marks; parents come before their children."""

    def __init__(self, tokens: Sequence[MarkupToken], encode: Callable[[str], str]) -> None:
        self._tokens, self._encode = tokens, encode
        self.marks: list[Mark] = []
        self.text = self._blanks = ""  # the blanks since the last word or empty mark
        self._head: str | None = None
        self._spaced, self._last = False, cast(Mark | None, None)  # since the last word: blanks, and an empty mark
        self._read()
        self._tail = self._blanks
        texts = self.text, "\n".join(token.text for token in tokens)  # a tag may be all that divides 5 from %s
        self._placeholders = max((tuple(_PLACEHOLDER.findall(text)) for text in texts), key=len)
        self._tokens = tokens if self._placeholders else ()  # those of a large document take much memory

    def spans(self) -> list[tuple[int, int]]:
        """The first unit that each mark encloses, and the one behind the last; both are equal for an empty one."""
        starts, stops = zip(*units_of(self.text), strict=True)
        firsts = (bisect_right(stops, mark.start) for mark in self.marks)
        lasts = (bisect_left(starts, mark.stop) if mark.start < mark.stop else 0 for mark in self.marks)
        return [(first, max(first, last)) for first, last in zip(firsts, lasts, strict=True)]

    def keeps_placeholders(self, text: str) -> bool:
        """Whether a translation has the placeholders of the text, in their order."""
        return not self._placeholders or self._placeholders == tuple(_PLACEHOLDER.findall(text))

    def without_placeholders(self) -> "MarkedText":
        """The same segment with an empty mark for each placeholder that has no tag inside; itself if there is none."""
        tokens = [part for token in self._tokens for part in _split(token, _PLACEHOLDER, self._encode)]
        return MarkedText(tokens, self._encode) if len(tokens) > len(self._tokens) else self

    def has_words(self) -> bool:
        """Whether there is something to translate, and still is when the placeholders have been taken out."""
        bare = self.without_placeholders()  # `%sa@b.org` without `%s` is an address
        return is_word(_PLACEHOLDER.sub("", self.text)) and (bare is self or bare.has_words())

    def put_back(self, text: str, ranges: Sequence[tuple[int, int]]) -> str:
        """A translation with the marks; `ranges` are the units of the translation that each mark encloses."""
        units, children = units_of(text), dict[int, list[int]]()
        for number, mark in enumerate(self.marks):
            children.setdefault(mark.parent, []).append(number)

        def inside(parent: int, low: int, high: int) -> str:
            done, place, waiting = "", low, list[tuple[Mark, str]]()

            def gap(place: int) -> str:
                between = text[units[place - 1][1] : units[place][0]] if low < place < high else ""
                marks, waiting[:] = waiting[:], []
                before = text[units[place - 1][1] - 1] if place > low else ""
                after = text[units[place][0]] if place < high else ""
                return _spaced(marks, between, before, after) if marks else between

            def plain(place: int, stop: int) -> str:
                return gap(place) + self._encode(text[units[place][0] : units[stop - 1][1]]) if place < stop else ""

            for number in sorted(children.get(parent, ()), key=lambda number: (*ranges[number], number)):
                mark, (first, last) = self.marks[number], ranges[number]
                done += plain(place, first)
                content = mark.opening + inside(number, first, last) + mark.closing
                if first < last:
                    done += gap(first) + content
                else:
                    waiting.append((mark, content))
                place = last
            return done + plain(place, high) + gap(high)

        done = inside(-1, 0, len(units))
        if any(mark.line for mark in self.marks):  # a blank line would end a cue
            blank = rf"(\A|\n) *(?:{_SOFT}\r?\n *)+|{_SOFT}\r?\n *(?=\r?\n|\Z)"
            done = re.sub(blank, r"\1", done).replace(_SOFT, "")
        return self._encode(self._head or "") + done + self._encode(self._tail)

    def _read(self) -> None:
        """Makes the text and the marks of the tokens."""
        tokens, partners = self._tokens, _partners(self._tokens)
        words = [0, *accumulate(len(token.text.split()) for token in tokens)]
        parents, place, merged = [-1], 0, (0, -1)  # the number of marks and the parent, for the next empty mark
        while place < len(tokens):
            token, partner, start = tokens[place], partners.get(place, -1), len(self.text)
            if token.kind == "text":
                self._add(token.text)
            elif partner > place and words[partner] > words[place]:
                self.marks.append(Mark(token.raw, tokens[partner].raw, start, start, parents[-1]))
                parents.append(len(self.marks) - 1)
            elif 0 <= partner < place:
                self.marks[parents.pop()].stop = start
            else:  # without text inside, or without its other tag
                first, place = place, max(place, partner)
                self._head = self._blanks if self._head is None else self._head
                if self._last is None or len(self._last.opening) > _LONGEST or merged != (len(self.marks), parents[-1]):
                    self._last = Mark("", "", start, start, parents[-1], before=self._blanks[:1] or self.text[-1:])
                    self.marks.append(self._last)
                    self._blanks = ""
                raw = "".join(each.raw for each in tokens[first : place + 1])
                raw = _SOFT + raw if token.kind == "line" and raw.isspace() else raw
                self._last.opening += self._encode(self._blanks) + raw
                self._last.line |= token.kind == "line"
                self._last.cut |= partner < 0 and token.kind in ("open", "close")
                self._blanks, self._spaced = "", self._spaced or self._last.line
                merged = len(self.marks), parents[-1]
            place += 1

    def _add(self, text: str) -> None:
        """Adds text with one space for each run of blanks."""
        words = " ".join(text.translate(_IN_WORDS).split())
        self._add_blanks(text[: len(text) - len(text.lstrip())])
        if words:
            # The blank before an empty mark is not one before a closing sign behind it. Words do not touch without it,
            # but for a place to break a word.
            last, spaced = self._last, self._spaced
            if last is not None and not (last.after or last.line):
                last.after = words[0]
                touches = last.opening[:4].lower() != "<wbr" and _OF_WORD.match(self.text[-1:]) and words[0].isalnum()
                spaced = bool(touches) or (spaced and words[0] not in _CLOSING)
            self._head = self._blanks if self._head is None else self._head
            self.text += (" " if self.text and spaced else "") + words
            self._blanks, self._spaced, self._last = "", False, None
            self._add_blanks(text[len(text.rstrip()) :])

    def _add_blanks(self, blanks: str) -> None:
        self._blanks += blanks
        self._spaced |= blanks != ""
        if self._last is not None:
            self._last.after = self._last.after or blanks[:1]


def units_of(text: str) -> list[tuple[int, int]]:
    """Where the words and signs of a text begin and end; a letter of Chinese or another unspaced script is a word."""
    return [found.span() for found in _UNIT.finditer(text)]


def _spaced(marks: Sequence[tuple[Mark, str]], between: str, left: str, right: str) -> str:
    """Empty marks at one place, with blanks around them as in the source; `left` and `right` are beside them."""
    done = marks[0][1]
    for (one, _), (other, text) in pairwise(marks):
        done += (" " if one.after.isspace() or other.before.isspace() else "") + text
    # A placeholder touches letters of Chinese or another unspaced script, but not words of the translation instead.
    of_word = _OF_WORD if done[0] == "<" else _OF_SPACED_WORD
    before, after = marks[0][0].before, marks[-1][0].after
    if any(mark.line for mark, _ in marks):  # beside the end of a line no blank is needed
        blank = " " if left and before.isspace() and not re.match(rf"[\s{_SOFT}]", done) else ""
        return blank + done + (" " if right and after.isspace() and not done[-1].isspace() else "")
    if left and right:
        blank = " " if before.isspace() else "" if of_word.match(before) or after.isspace() else between
        end = " " if after.isspace() and right.isalnum() else between
        return blank + done + ("" if (blank and of_word.match(after)) or done[-1].isspace() else end)
    # A blank replaces a sign that was beside the marks in the source and is not beside them now.
    own, beside, edge = (before, left, done[0]) if left else (after, right, done[-1])
    touches = _OF_WORD.match(own) and (of_word.match(own) or not of_word.match(beside))
    blank = " " if own and own != beside and not touches and not edge.isspace() else ""
    return blank + done if left else done + blank


def _partners(tokens: Sequence[MarkupToken]) -> dict[int, int]:
    """The places of opening tags and of the closing tags that belong to them, both ways.

    A tag whose name begins with ":" has no partner outside another kind of tag that is still open. No tag of a cue has
    a partner in another cue, so that the cues stay in their order.
    """
    partners, stack = dict[int, int](), list[int]()
    for place, token in enumerate(tokens):
        if token.kind == "line" and not token.raw.isspace():
            stack.clear()
        if token.kind == "open" and len(stack) < _DEEPEST:
            stack.append(place)
        for depth in reversed(range(len(stack))) if token.kind == "close" else ():
            other = tokens[stack[depth]].name
            if other == token.name:
                partners |= {place: stack[depth], stack[depth]: place}
                del stack[depth:]
            if other == token.name or (token.name[0] == ":" and other[0] != ":"):
                break
    return partners


def read_markup(data: bytes, markup: Markup, languages: tuple[str, str] = ("", "")) -> list[str | MarkedText]:
    """The segments of a document, and what is between them; HTML and XLIFF state the languages of both texts.

    Raises InputError for text that is not UTF-8, XLIFF of other languages, and for what is no XLIFF or no subtitles.
    """
    encode = _ENCODE.get(markup, _escaped)
    parts, own = list[str | MarkedText](), list[MarkupToken]()
    if markup == "xliff":
        tokens = _xliff(data, languages)
    else:
        parts.append("\ufeff" * data.startswith(BOM))
        try:
            text = data.removeprefix(BOM).decode("utf-8")
        except UnicodeDecodeError as error:
            line = 1 + error.object.count(b"\n", 0, error.start)
            fix = "convert the file to UTF-8, for example: iconv -f WINDOWS-1252 -t UTF-8"
            raise InputError(f"line {line}: not UTF-8 (byte 0x{error.object[error.start]:02x}); {fix}") from None
        tokens = _tags(text, languages) if markup == "html" else _subtitles(text, markup)
    size = 0
    for token in chain(tokens, [MarkupToken("break", "")]):
        chunks = _CHUNK.findall(token.text) if len(token.text) > _LONGEST else []
        for part in [MarkupToken("text", encode(chunk), text=chunk) for chunk in chunks] or [token]:
            size += len(part.text)
            if part.kind == "break" or size > _LONGEST:
                segment = MarkedText([piece for each in own for piece in _split(each, _TEXT_TAG, encode)], encode)
                parts.append(segment if segment.has_words() else "".join(each.raw for each in own))
                own, size = [], len(part.text)
            if part.kind == "break":
                parts.append(part.raw)
            else:
                own.append(part)
    return parts


def first_texts(page: str) -> str:
    """The text at the beginning of a page of HTML, which is enough to recognise its language."""
    texts = (token.text for token in _tags(page) if token.kind == "text" and not token.text.isspace())
    return "\n".join(islice(texts, 1000))


def _split(token: MarkupToken, pattern: re.Pattern[str], encode: Callable[[str], str]) -> list[MarkupToken]:
    """Text in parts: tags and placeholders that the pattern finds, and what is between."""
    parts = pattern.split(token.text) if token.kind == "text" else []
    if len(parts) < 2:
        return [token]
    tags = [_text_tag(part, encode(part)) for part in parts[1::2]]
    texts = [MarkupToken("text", encode(part), text=part) for part in parts[::2]]
    return [one for pair in zip_longest(texts, tags) for one in pair if one is not None]


def _text_tag(tag: str, raw: str) -> MarkupToken:
    """A tag in text, or a placeholder."""
    name = "".join(re.findall(r"^</?(\w*)", tag)).lower()
    if tag.isspace():
        return MarkupToken("line", raw)
    if tag[0] != "<" or tag[1].isdigit() or tag.endswith("/>") or _EMPTY.fullmatch(name):
        return MarkupToken("empty", raw)
    return MarkupToken("close" if tag[1] == "/" else "open", raw, f":<{name}")


def _tags(text: str, languages: tuple[str, str] = ("", ""), nested: int = 0) -> Iterator[MarkupToken]:
    """The tags of HTML or of the content of an element of XLIFF, and the text between them."""
    place, hides = 0, ""  # an annotation of XLIFF 2 whose text is not translated
    while place < len(text):
        tag = _TAG.search(text, place)
        start = tag.start() if tag else len(text)
        if part := text[place:start]:
            yield MarkupToken("empty", part) if hides else MarkupToken("text", part, text=html.unescape(part))
        if tag is None:
            break
        place, name, attributes = tag.end(), (tag[2] or "").lower(), _ATTRIBUTE.findall(tag[3] or "")
        own = {key.lower(): "".join(value) for key, *value in attributes}
        code, key = _CODES.get(name.rpartition(":")[2]), own.get("rid") or own.get("startref") or own.get("id")
        hidden = own.get("translate", "").lower() == "no" or own.get("mtype") == "protected"
        kind: Kind = "close" if tag[1] else "open"
        if not name or _EMPTY.fullmatch(name) or (attributes and not attributes[-1][0]):
            kind = "empty"
        elif kind == "open" and (_VERBATIM.fullmatch(name) or hidden or "notranslate" in own.get("class", "").split()):
            kind, place = "empty", _end_of(text, place, len(text), name)
            for first, stop in _translated(text, tag.end(), place) if hidden and nested < _NESTED else ():
                yield MarkupToken("break", text[start:first])
                yield from _tags(text[first:stop], languages, nested + 1)
                kind, start = "break", stop
        if kind == "empty" and code and key:
            kind, name = code, f":{key}"
            if hidden or name == hides:
                hides = name if hidden else ""
        raw = text[start:place]
        if place == tag.end() and languages[1] and ("lang" in own or "xml:lang" in own):
            raw = _LANGUAGE.sub(lambda one: one[1] + (languages[1] if fit(one[2], languages[0]) else one[2]), raw)
        yield MarkupToken("break" if _BLOCK.fullmatch(name) else kind, raw, name)
        if kind == "close" and _BESIDE_LINK.match(text, start):  # entries of a menu, and not parts of one word
            yield MarkupToken("break", "")


def _translated(text: str, place: int, stop: int) -> Iterator[tuple[int, int]]:
    """Where elements with translate="yes" begin and end, inside an element that is not translated."""
    for tag in _TAG.finditer(text, place, stop):
        if tag.start() >= place and not tag[1] and _YES.search(tag[3] or ""):
            place = _end_of(text, tag.end(), stop, tag[2].lower())
            yield tag.start(), place


def _end_of(text: str, place: int, stop: int, name: str) -> int:
    """The end of an element, at most `stop`; one inside a line ends before the next block at the latest."""
    if _RAW.fullmatch(name):
        end = re.compile(rf"</{name}(?=[\s/>])[^>]*>", re.IGNORECASE).search(text, place, stop)
        return end.end() if end else stop
    depth, following = 1, _NEXT.get(name)
    in_line = name == "p" or not _BLOCK.fullmatch(name)
    for found in _TAG.finditer(text, place, stop):
        other, closes = (found[2] or "").lower(), found[1] == "/"
        if depth == 1 and other == name and closes:
            return found.end()
        is_outer = in_line and _BLOCK.fullmatch(other) and not _INSIDE.fullmatch(other)
        if is_outer or (depth == 1 and following and following.fullmatch(other)):
            return found.start()
        if _LIST.fullmatch(other) if following else other == name:
            depth += -1 if closes else not found[3].endswith("/")
        if not depth:
            return found.start()
    return stop


def _xliff_root(data: bytes, languages: tuple[str, str]) -> Any:
    """The XML of a document, with the language of the translation."""
    from lxml import etree

    # What reads the file has made UTF-8 of UTF-16.
    data = re.sub(rb"""\A(<\?xml[^>]*?)encoding\s*=\s*["']utf-?16\w*["']""", rb"\1", data, count=1, flags=re.IGNORECASE)
    try:
        root = etree.fromstring(data, etree.XMLParser(resolve_entities=False, no_network=True))
    except etree.XMLSyntaxError as error:
        raise InputError(f"not XML: {error.msg}") from None
    dtd = root.getroottree().docinfo.internalDTD
    if etree.QName(root).localname != "xliff" or (dtd is not None and any(True for _ in dtd.iterentities())):
        raise InputError("not XLIFF 1.2 or 2, or it defines entities, which are not read")
    for one in root.iter("{*}xliff", "{*}file"):
        for names in (("srcLang", "trgLang"), ("source-language", "target-language")):
            if names[0] in one.attrib and all(languages):
                one.set(names[1], one.get(names[1], languages[1]))
                for name, language in zip(names, languages, strict=True):
                    if main_language(stated := one.get(name)) != main_language(language):
                        raise InputError(f"its {name} is {stated}, and the model's is {language}; give another model")
    return root


def _xliff(data: bytes, languages: tuple[str, str]) -> Iterator[MarkupToken]:
    """The document with a translation of each source, unless its target has text already."""
    from lxml import etree

    root = _xliff_root(data, languages)
    hole, contents = uuid4().hex, list[tuple[str, bool]]()
    for unit in list(root.iter("{*}trans-unit", "{*}segment")):
        source, target = unit.find("{*}source"), unit.find("{*}target")
        filled = target is not None and target.xpath("string()").strip()
        if source is None or filled or source.xpath("ancestor-or-self::*/@translate")[-1:] == ["no"]:
            continue
        copied = next(unit.iterchildren("{*}seg-source"), source)
        if target is None:
            target = etree.SubElement(unit, etree.QName(etree.QName(source).namespace, "target"))
            copied.addnext(target)
            copied.tail, target.tail = unit.text, copied.tail
        if etree.QName(unit).localname == "segment":
            unit.set("state", "translated")
            unit.attrib.pop("subState", None)  # it belongs to the old state
        else:
            target.attrib.update({"state": "translated", "state-qualifier": "mt-suggestion"})
        keeps = source.xpath("ancestor-or-self::*/@xml:space")[-1:] == ["preserve"]
        target[:], target.text = deepcopy(copied)[:], copied.text
        for part in target.xpath(_XLIFF_SEGMENTS) or [target]:
            content = etree.tostring(part, encoding="unicode", with_tail=False)
            contents.append((content.partition(">")[2].rpartition("</")[0], keeps))
            part[:], part.text = [], hole
    declared, end = b"<?xml" in data[:8], "\n" if data.endswith(b"\n") else ""  # as the document has them
    written = etree.tostring(root.getroottree(), encoding="utf-8", xml_declaration=declared).decode() + end
    literals = written.split(hole)
    for literal, (content, keeps) in zip(literals, [*contents, ("", False)], strict=True):
        yield MarkupToken("break", literal)
        for token in _tags(content):
            for one in _split(token, _LINE_BREAK, _ENCODE["xliff"]) if keeps else [token]:
                yield one._replace(kind="break") if one.kind == "line" else one


def _subtitles(text: str, markup: Markup) -> Iterator[MarkupToken]:
    """The cues; those over which a sentence extends are in one segment, with the ends of their lines as marks."""
    if "\r" in text and "\n" not in text:
        raise InputError("its lines end with CR and no LF; convert them, for example with tr '\\r' '\\n'")
    if text.strip() and not (re.search(_TIME, text) or text.startswith("WEBVTT")):
        raise InputError(f"not {markup}: it has no times, such as 00:00:01.000 --> 00:00:02.000")
    place = size = 0
    # In SRT a blank line is inside a cue if no other cue comes next, in WebVTT if it has blanks.
    blank, decode = (r"(?:[ \t\r]*\n)*", str) if markup == "srt" else (r"(?:[ \t]+\r?\n)*", html.unescape)
    for cue in re.finditer(rf"{_TIME}\n{blank}({_LINE}(?:{blank}{_LINE})*)", text):
        payload = cue[1].rstrip("\r\n")
        parts = [text[place : cue.start(1)], *re.split(rf"(\r?\n(?={_DASH}|<v[ .])|\r?\n\s*\n)", payload)]
        place = cue.start(1) + len(payload)
        for number, (before, part) in enumerate(zip(parts[::2], parts[1::2], strict=True)):
            size = 0 if number else size  # within a cue each part begins a sentence
            words = _TEXT_TAG.sub("", part).strip()
            joined = 0 < size < _MOST_CUES and words and not _NEW_SPEAKER.match(words)
            yield MarkupToken("line" if joined else "break", before)
            # If it is translated, the end of a line at the edge of a tag moves outside.
            own = _AT_EDGE.sub(r"\2\1\4\3", part) if is_word(_PLACEHOLDER.sub("", words)) else part
            for each in _split(MarkupToken("text", own, text=own), _CUE_TAG, str):
                yield each._replace(text=decode(each.text))
            size = 0 if not words or _SENTENCE_END.search(words) else size * bool(joined) + 1
    yield MarkupToken("break", text[place:])
