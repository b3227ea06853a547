"""Random documents with markup, and a translator that shuffles, drops and repeats their words."""

import random
import re

import numpy as np

from nmtalign.text.markup import read_markup
from nmtalign.translating.documents import DocumentTexts
from nmtalign.translating.requests import Request
from nmtalign.translating.translator import Alternative, Translation

WORDS = ["the", "fox", "sees", "it.", "Boat,", "l'homme", "é", "猫が", "שלום", "a-b", "(no)", '"yes"', "3.5", "..."]
INLINE = ["b", "i", "a", "span", "em"]
BLOCKS = ["p", "div", "li", "td", "section"]
TAG = re.compile(r"<!--.*?-->|</?\w[^>]*>", re.DOTALL)


def translation_of(request, source, unknown, *n_best, pieces=1):
    """The translation of a line with these source tokens."""
    best, given = vars(n_best[0]), {"request": request, "source_tokens": tuple(source), "source_unknown": unknown}
    return Translation(**best, **given, n_best=n_best, pieces=pieces)


class ShufflingTranslator:
    """Translates each line by its own words, some of them moved, lost or repeated, with random links."""

    def __init__(self, chance):
        self._chance = chance

    def translate(self, line):
        source = line.split()
        target = [word for word in source for _ in range(self._chance.choice([0, 1, 1, 1, 1, 2]))]
        if self._chance.random() < 0.7:
            self._chance.shuffle(target)
        seed = self._chance.randrange(2**32)
        weights = np.random.default_rng(seed).dirichlet(np.full(len(source) + 1, 0.3), len(target) + 1)
        text = " ".join(target)
        best = Alternative(text, tuple(target), 0.0, 0.0, (0.0,), weights.astype(np.float32))
        return translation_of(Request(line), source, 0, best)


def translated(data, markup, translator):
    work = DocumentTexts([read_markup(data, markup, ("en", "fr"))])
    while lines := work.lines():
        for key, line in lines:
            work.add(key, translator.translate(line))
    return work.documents()[0]


class DocumentMaker:
    """Makes random documents; each placeholder occurs once."""

    def __init__(self, seed):
        self.chance = random.Random(seed)
        self._count = 0

    def number(self):
        self._count += 1
        return self._count

    def text(self, escape=True):
        pick, words = self.chance, []
        for _ in range(pick.randint(0, 5)):
            words.append(pick.choice(WORDS) if pick.random() < 0.85 else f"{{n{self.number()}}}")
        extra = pick.choice(["", "", "", "&amp;" if escape else "&", "&lt;" if escape else ""])
        return pick.choice(["", " ", "\n "]) + pick.choice([" ", "  "]).join([*words, extra]) + pick.choice(["", " "])

    def html(self, depth=3):
        pick, parts = self.chance, []
        for _ in range(pick.randint(1, 4)):
            kind = pick.choice(["text", "text", "inline", "inline", "block", "void", "comment", "hidden"])
            inner = self.html(depth - 1) if depth and kind in ("inline", "block") else self.text()
            name = pick.choice(BLOCKS if kind == "block" else INLINE)
            number = self.number()
            void = pick.choice([f'<img id="{number}">', "<br>", f"<wbr id={number}>", f"<hr id='{number}' />"])
            script = f"<script>if (a<b) '{number}</b>'</script>"
            hidden = pick.choice([f"<code>{number}()</code>", script, f"<pre> {number}\n</pre>"])
            others = {"text": inner, "void": void, "comment": f"<!-- {number} <b> -->", "hidden": hidden}
            parts.append(others.get(kind, f'<{name} id="{number}" title="a > b">{inner}</{name}>'))
        return "".join(parts)

    def codes(self, depth=3):
        pick, parts = self.chance, []
        for _ in range(pick.randint(1, 4)):
            number, inner = self.number(), self.codes(depth - 1) if depth else self.text()
            forms = [
                self.text(),
                f'<g id="{number}">{inner}</g>',
                f'<mrk mtype="x" mid="{number}">{inner}</mrk>',
                f'<x id="{number}"/>',
                f'<ph id="{number}">{{0}} the fox</ph>',
                f'<bpt id="{number}">&lt;b&gt;</bpt>{inner}<ept id="{number}">&lt;/b&gt;</ept>',
                f'<bx id="{number}"/>{self.text()}<g id="{number}_">the <ex id="{number}"/> fox</g>',
                f"&lt;i&gt;{inner}&lt;/i&gt;",
                f"<!-- {number} -->",
            ]
            parts.append(pick.choice(forms))
        return "".join(parts)

    def xliff(self):
        units = [f'<trans-unit id="{self.number()}"><source>{self.codes()}</source></trans-unit>\n' for _ in range(3)]
        return (
            '<xliff version="1.2" xmlns="urn:oasis:names:tc:xliff:document:1.2"><file source-language="en"><body>\n'
            f"{''.join(units)}</body></file></xliff>"
        )

    def cues(self, markup):
        blocks = ["WEBVTT - x\n\nNOTE the fox\nsees\n\nSTYLE\n::cue {}\n"] if markup == "vtt" else []
        for number in range(self.chance.randint(1, 6)):
            lines = [self.cue_line(markup) for _ in range(self.chance.randint(1, 3))]
            lines = [line for line in lines if line.strip()]
            mark = "." if markup == "vtt" else ","
            place = self.chance.choice(["", " align:left"])
            times = f"00:00:{number:02}{mark}000 --> 00:00:{number:02}{mark}900{place}"
            blocks.append("\n".join([str(number), times, *lines]) + "\n")
        return "\n".join(blocks)

    def cue_line(self, markup):
        text = " ".join(self.text(markup == "vtt").split())
        other = " ".join(self.text(markup == "vtt").split())
        tags = ["", "", f"<i>{other}</i>", f"<b><i>{other}</i> the</b>", "{\\an8}fox", "<v Bob>fox", "- "]
        tags += ["<b>the ", "fox</b> "]  # an element over several cues
        return f"{self.chance.choice(tags)}{text}"


def nesting(document):
    """The tags, each with the one that contains it, in order of the alphabet; None if they are not nested."""
    stack, found = [("", "")], []
    for name, attributes in re.findall(r"<(?!!)(/?\w+)([^>]*)>", document):
        if name[0] == "/":
            if stack.pop()[0] != name[1:]:
                return None
            continue
        found.append(((name, attributes), stack[-1]))
        if name not in ("img", "br", "hr", "wbr") and not attributes.endswith("/"):
            stack.append((name, attributes))
    return sorted(found) if len(stack) == 1 else None
