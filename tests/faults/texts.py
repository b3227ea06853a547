"""Hostile text through every command that reads text.

Lines contain characters of all Unicode categories, control characters, bytes that are not UTF-8, markup of nmtalign's
own formats, very long words, and mixed line ends. A command that accepts the text writes as many lines as it has read,
and gives each line back as it was. One that refuses it reports one line without control characters, and exits with the
documented code.
"""

import json
import random
import sys
import unicodedata
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path

from faults.campaign import Part
from faults.processes import TRAIN, Workspace, run

_SIGNS = r"""<unk> </s> ||| 0-0 # ▁ @@ @-@ &quot; &amp;lt; <00> MULTI DOTDOTMULTI ' " \ $(id) `id` %s {0} --help - ../..
[bold] . ... Mr. 3,5 http://a.b/?c=d&e שלום مرحبا あ กำ"""
_CONTROL = "\0\7\b\t\v\f\r\x1c\x1d\x1e\x7f\x85\u200b\u200d\u2028\u2029\u202e\u2066\ufeff\ufffd\ufffe\U0010ffff"
_COMPOSED = ("e\u0301\u0301", "\U0001f468\u200d\U0001f469", "\U0001f1eb\U0001f1f7")
_ODD = (*_SIGNS.split(), *_CONTROL, *_COMPOSED, "\x1b[31m", " ||| ", " ", "  ", "\xa0", "\u3000")
_RAW = (b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xf8\x88\x80\x80\x80", b"\xc0\x80", b"\x80\x80", b"\xe2\x82")
_ENDS = (b"\n", b"\n", b"\n", b"\r\n", b"\r\r\n")
_LINES = 12


@cache
def _of_categories() -> dict[str, list[str]]:
    """The characters of each Unicode category, except half characters."""
    found: dict[str, list[str]] = {}
    for number in range(sys.maxunicode + 1):
        found.setdefault(unicodedata.category(chr(number)), []).append(chr(number))
    del found["Cs"]
    return found


def _word(chance: random.Random, words: list[str]) -> str:
    categories = _of_categories()
    kind = chance.random()
    if kind < 0.4:
        return chance.choice(words)
    if kind < 0.7:
        return chance.choice(_ODD)
    if kind < 0.99:
        return "".join(chance.choice(categories[chance.choice([*categories])]) for _ in range(chance.randint(1, 5)))
    return chance.choice("aé\u3042.") * 100_000


def hostile_lines(chance: random.Random, words: list[str], valid: bool, longest: int = 12) -> list[bytes]:
    """Lines without their ends; if `valid`, all bytes are UTF-8."""
    lines = []
    for _ in range(_LINES):
        line = " ".join(_word(chance, words) for _ in range(chance.randint(0, longest))).replace("\n", " ").encode()
        if chance.random() < 0.1:
            line = b" " * chance.randint(1, 50)
        if not valid and chance.random() < 0.5:
            at = chance.randint(0, len(line))
            line = line[:at] + chance.choice(_RAW) + line[at:]
        lines.append(line)
    return lines


def _joined(chance: random.Random, lines: list[bytes]) -> bytes:
    """A file of lines with mixed ends; the last line may have none."""
    text = b"".join(line.removesuffix(b"\r") + chance.choice(_ENDS) for line in lines)
    return text.removesuffix(b"\n") if lines[-1] and chance.random() < 0.2 else text


def _words(workspace: Workspace) -> list[str]:
    return (workspace.home / "train.en").read_text("utf-8").split()[:500]


def _counted(out: bytes, expected: int = _LINES) -> str:
    found = out.count(b"\n")
    return "" if found == expected else f"{found} lines of output for {expected} lines"


def _translate(workspace: Workspace, folder: Path, chance: random.Random) -> str:
    text = _joined(chance, hostile_lines(chance, _words(workspace), valid=False))
    options = chance.choice(("", " --replace-unk", " --n-best 2 --alignment hard", " --format json", " --tokenized"))
    ended = run(f"translate -q -m model --beam 2 --set max_length_ratio=1{options}", workspace.home, stdin=text)
    if ended.code or ended.fault():
        return ended.fault({0}) or f"refused: {ended.err!r}"
    lines = [line.removesuffix(b"\r").decode("utf-8", "replace") for line in text.split(b"\n")[:_LINES]]
    lines[0] = lines[0].removeprefix("\ufeff")
    if "json" in options:
        found = [json.loads(line)["source"] for line in ended.out.splitlines()]
        return "" if found == lines else "a line of JSON has another source"
    return "" if "n-best" in options else _counted(ended.out)


def _translate_json(workspace: Workspace, folder: Path, chance: random.Random) -> str:
    lines = [line.decode() for line in hostile_lines(chance, _words(workspace), valid=True)]
    objects = [{"text": line, "prefix": chance.choice(("", line[:20])), "id": line[:5]} for line in lines]
    text = "".join(f"{json.dumps(one, ensure_ascii=chance.random() < 0.5)}\n" for one in objects).encode()
    command = "translate -q -m model --beam 1 --set max_length_ratio=1 --set input_format=json --format json"
    ended = run(command, workspace.home, stdin=text)
    if ended.code or ended.fault():
        return ended.fault()
    found = [(one["source"], one["id"]) for one in map(json.loads, ended.out.splitlines())]
    return "" if found == [(one["text"], one["id"]) for one in objects] else "a line of JSON has another source or id"


def _n_best(workspace: Workspace, folder: Path, chance: random.Random) -> str:
    """An n-best list with hostile translations is rescored line by line."""
    translations = hostile_lines(chance, _words(workspace), valid=True)
    rows = [b"%d ||| %s ||| F= 1.0 ||| -1.0\n" % (number, line) for number, line in enumerate(translations)]
    (folder / "list").write_bytes(b"".join(rows))
    ended = run("translate -q a.en --n-best-list list -m model", folder)
    return ended.fault() or ("" if ended.code else _counted(ended.out))


def _prep(workspace: Workspace, folder: Path, chance: random.Random) -> str:
    for name in ("train.en", "train.fr"):
        lines = [*(folder / name).read_bytes().splitlines(), *hostile_lines(chance, _words(workspace), valid=True)]
        (folder / name).write_bytes(_joined(chance, lines))
    kind = chance.choice(("word", "bpe --size 300", "unigram --size 300", "bytes", "none"))
    ended = run(f"prep -q train.en train.fr --vocabulary {kind} -o data --set workers=1", folder)
    if ended.code or ended.fault():
        return ended.fault()
    described = run("info data", folder)
    if described.code or described.fault():
        return f"the corpus cannot be read: {described.err!r}"
    if chance.random() < 0.8:
        return ""
    return run(f"{TRAIN.replace('--max-updates 12', '--max-updates 1')} data -o trained", folder).fault({0})


def _align(workspace: Workspace, folder: Path, chance: random.Random) -> str:
    ended = run(f"align -q a.en a.fr -m {chance.choice(('model', 'aligner'))} --pharaoh -o new.h5", folder)
    if fault := ended.fault() or ("" if ended.code else _counted(ended.out)):
        return fault
    shown = run(f"export new.h5 -f {chance.choice(('json', 'pharaoh'))}", folder)
    return "" if ended.code else shown.fault({0}) or _counted(shown.out) or run("view new.h5", folder).fault()


def _score(workspace: Workspace, folder: Path, chance: random.Random) -> str:
    options = "--metrics bleu,chrf,ter --differences 3 --by-length --no-confidence --html page.html"
    ended = run(f"score -q a.fr -r a.en -s a.en {options}", folder)
    if ended.code or ended.fault():
        return ended.fault()
    page = (folder / "page.html").read_bytes()
    return "a control character in the page" if b"\x1b" in page or b"\0" in page else ""


def _lines(command: str, workspace: Workspace, folder: Path, chance: random.Random) -> str:
    """A command that prints a line for each pair."""
    ended = run(command, folder)
    return ended.fault() or ("" if ended.code else _counted(ended.out))


_ATTEMPTS: dict[str, Callable[[Workspace, Path, random.Random], str]] = {
    "translate": _translate,
    "translate JSON": _translate_json,
    "n-best lists": _n_best,
    "prep": _prep,
    "align": _align,
    "score-pairs": partial(_lines, "translate -q a.en --target a.fr -m model"),
    "score": _score,
    "link": partial(_lines, "link -q a.en a.fr -o linked --scores"),
}


def _attempt(name: str, workspace: Workspace, chance: random.Random) -> str:
    with workspace.copy("model", "aligner", "train.en", "train.fr") as folder:
        for text in ("a.en", "a.fr"):
            lines = hostile_lines(chance, _words(workspace), valid=name != "score" or chance.random() < 0.7)
            (folder / text).write_bytes(_joined(chance, lines))
        return _ATTEMPTS[name](workspace, folder, chance)


def parts(workspace: Workspace) -> Iterator[Part]:
    """One part for each command."""
    for name in _ATTEMPTS:
        yield Part(f"texts: {name}", partial(_attempt, name, workspace), full=100, quick=int(name != "link"))
