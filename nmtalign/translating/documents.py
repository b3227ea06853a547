"""Translating documents with markup: their segments are translated, and links place the tags in the translations."""

import contextlib
import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import cast

import numpy as np
from numpy.typing import NDArray

from nmtalign.alignment.aligning import align
from nmtalign.alignment.placement import TagSpan, place
from nmtalign.alignment.word_aligner import load_aligner
from nmtalign.errors import InputError, UsageError
from nmtalign.text.languages import count_unspaced
from nmtalign.text.lines import reading, shown
from nmtalign.text.markup import MarkedText, read_markup, units_of
from nmtalign.text.tokenizer import WORD_START
from nmtalign.translating.file_translation import FileTranslation, InputRequest
from nmtalign.translating.translator import Translation, Translator

_LARGEST = 64 << 20  # bytes of a document, all of which is in memory; a small compressed file may contain more
Key = tuple[int, int]  # the number of a document, and the place of a segment in it
Unit = tuple[int, int]  # where a word begins and ends in a text
_BYTE = re.compile(r"<(?:0x)?(?:([89AB])|[0-9A-F])[0-9A-F]>")  # a token; with a group, not the first byte of a letter

_DECLARED = re.compile(  # in a page of HTML; Python and browsers know these encodings by these names
    rb"<(?:meta\s[^>]*?charset|\?xml[^>]*?encoding)\s*=\s*[\"']?\s*"
    rb"(iso-8859-\d+|us-ascii|windows-125\d|koi8-[ru]|shift_jis|euc-jp|euc-kr|gb2312|gbk|gb18030|big5)[\s\"'/>?;]",
    re.IGNORECASE,
)
_AS_BROWSERS = {"iso-8859-1": "windows-1252", "us-ascii": "windows-1252", "gb2312": "gbk"}


class DocumentTexts:
    """The texts of documents: `while lines := work.lines():`, `work.add` for each of these, then `work.documents()`.

    A translation that changes a placeholder is replaced by one of the text without placeholders, which the links place.
    The links are those of `aligner`, a folder of `nmtalign link`, else the attention gives them.
    """

    def __init__(self, documents: Iterable[Sequence[str | MarkedText]], aligner: str = "") -> None:
        self._documents, self._aligner = list(map(list, documents)), aligner
        self._to_link: dict[Key, tuple[MarkedText, Translation]] = {}
        parts = ((number, at, part) for number, own in enumerate(self._documents) for at, part in enumerate(own))
        self._waiting = {(number, at): part for number, at, part in parts if isinstance(part, MarkedText)}

    def lines(self) -> list[tuple[Key, str]]:
        """The texts that are to be translated, each with the number of its document and its place in it."""
        return [(key, segment.text) for key, segment in self._waiting.items()]

    def add(self, key: Key, translation: Translation) -> None:
        """Adds the translation of one of the `lines`."""
        segment = self._waiting.pop(key)
        bare = segment if segment.keeps_placeholders(translation.text) else segment.without_placeholders()
        if bare is not segment:
            self._waiting[key] = bare
        elif self._aligner and segment.marks:
            self._to_link[key] = segment, translation
        else:
            self._documents[key[0]][key[1]] = put_back(segment, translation)

    def documents(self) -> list[str]:
        """The translated documents."""
        lines = [(_words(segment.text), _words(translation.text)) for segment, translation in self._to_link.values()]
        records = align(load_aligner(Path(self._aligner)), lines) if lines else ()
        for ((number, at), pair), record in zip(self._to_link.items(), records, strict=True):
            self._documents[number][at] = put_back(*pair, record.weights[:-1, :-1])  # no rows if it is too long
        return ["".join(cast(list[str], parts)) for parts in self._documents]


def put_back(segment: MarkedText, translation: Translation, weights: NDArray[np.float32] | None = None) -> str:
    """The text of a translation with the marks of its segment, placed by the attention or by the given weights."""
    text = translation.text or segment.text
    if not segment.marks:
        return segment.put_back(text, [])
    units = units_of(text)
    if weights is None or len(weights) != len(units):
        weights = unit_weights(translation, units_of(segment.text), units)
    # Without spaces, a line ends before a letter that begins a token.
    parts = _overlap(translation.tokens, units) > 0.5
    inside: list[bool] = np.any(parts[1:] & parts[:-1], axis=1).tolist()
    glued = [False]
    for (_, stop), (start, _), within in zip(units, units[1:], inside, strict=False):
        opening = unicodedata.category(text[stop - 1]) in ("Ps", "Pi")
        free = text[start].isalnum() and count_unspaced(text[stop - 1 : start + 1]) and not (within or opening)
        glued.append(start == stop and not free)
    marks = zip(segment.spans(), segment.marks, strict=True)
    spans = [TagSpan(first, stop, mark.parent, mark.line, mark.cut) for (first, stop), mark in marks]
    return segment.put_back(text, place(spans, weights, glued))


def unit_weights(translation: Translation, source: Sequence[Unit], target: Sequence[Unit]) -> NDArray[np.float32]:
    """The attention weights between the words of both texts, (target, source), from those between tokens."""
    if translation.alignment is None:
        return np.zeros((len(target), len(source)), np.float32)
    rows, columns = _overlap(translation.tokens, target), _overlap(translation.source_tokens, source)
    rows /= np.maximum(rows.sum(1, keepdims=True), 1e-9)  # the mean over the tokens of a target word
    columns /= np.maximum(columns.sum(0), 1e-9)  # the sum over the tokens of a source word
    return np.asarray(rows @ translation.alignment[:-1, :-1] @ columns.T, np.float32)


def _overlap(tokens: Sequence[str], units: Sequence[Unit]) -> NDArray[np.float64]:
    """The number of characters that each word has in common with each token (words, tokens)."""
    found = [(token, _BYTE.fullmatch(token)) for token in tokens]
    sizes = [int(not byte[1]) if byte else len(token.lstrip(WORD_START)) for token, byte in found]
    ends, own = np.cumsum([0, *sizes]), np.cumsum([0, *(stop - start for start, stop in units)])
    ends = ends * (own[-1] / max(ends[-1], 1))  # a tokeniser may write some characters differently
    return np.asarray(np.maximum(np.minimum(own[1:, None], ends[1:]) - np.maximum(own[:-1, None], ends[:-1]), 0.0))


def encoding_of(page: bytes) -> str:
    """The encoding of a page of HTML: the one that it declares, unless it is UTF-8 with other letters than ASCII."""
    declared = _DECLARED.search(page, 0, 1024)
    names = [declared[1].decode().lower()] if declared else []
    for name in (*names, "utf-8") if page.isascii() else ("utf-8", *names):
        with contextlib.suppress(UnicodeDecodeError):
            page.decode(encoding := _AS_BROWSERS.get(name, name))
            return encoding
    return "utf-8"


def _words(text: str) -> str:
    return " ".join("".join(text[start:stop].split()) for start, stop in units_of(text))


class DocumentTranslation(FileTranslation):
    """Translates one document with markup; its lines are the texts in it."""

    def left(self) -> str:
        """Nothing: an interrupted document is translated again."""
        return ""

    def _translations(self, translator: Translator) -> Iterator[tuple[Translation, bytes]]:
        config, path = self._config, self._inputs.paths[0]
        if config.markup is None or not (translator.alignments or config.aligner):
            raise UsageError("this model has no attention to place the tags; give --set aligner=DIR of nmtalign link")
        with reading(path) as stream:
            if len(data := stream.read(_LARGEST + 1)) > _LARGEST:
                raise InputError(f"{shown(path)}: larger than {_LARGEST >> 20} MiB, decompressed; give a part of it")
        encoding = encoding_of(data) if config.markup == "html" else "utf-8"
        data = data if encoding == "utf-8" else data.decode(encoding).encode()
        try:
            languages = translator.loaded.source_language, translator.loaded.target_language
            work = DocumentTexts([read_markup(data, config.markup, languages)], config.aligner)
        except InputError as error:
            raise InputError(f"{shown(path)}: {error}") from None
        while lines := work.lines():
            size = len(data) // len(lines)
            requests = (
                InputRequest(text=text, place=shown(path), index=number, end=(number + 1) * size, valid=True)
                for number, (_, text) in enumerate(lines)
            )
            translations = translator.translate_numbered(requests, available=True)
            for (key, _), translation in zip(lines, translations, strict=True):
                work.add(key, translation)
                yield translation, b""
        self.rest = work.documents()[0].encode(encoding, "xmlcharrefreplace")
