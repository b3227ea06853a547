"""Links of a sample text that count the words between spaces, made from its gold links, which count tokens."""

from nmtalign.sample.sample_corpus import write_sample


def write_raw_links(folder, pairs=60):
    """Writes a sample of raw texts into the folder; returns the files of its gold links, by tokens and by words."""
    write_sample(folder, pairs, 1, force=False)
    sides = [_words_of_tokens(folder, language) for language in ("en", "fr")]
    lines = []
    for line, source, target in zip((folder / "train.align").read_text().splitlines(), *sides, strict=True):
        links = (map(int, link.split("-")) for link in line.split())
        lines.append(" ".join(f"{i}-{j}" for i, j in sorted({(source[i], target[j]) for i, j in links})))
    by_words = folder / "words.links"
    by_words.write_text("".join(f"{line}\n" for line in lines))
    return folder / "train.align", by_words


def _words_of_tokens(folder, language):
    """Returns the word between spaces of each token of each line."""
    lines = []
    raw, tokenised = ((folder / f"train.{kind}{language}").read_text().splitlines() for kind in ("", "tok."))
    for line, tokens in zip(raw, tokenised, strict=True):
        words, rest, own = iter(line.split()), "", list[int]()
        for token in tokens.split():
            own.append(own[-1] if rest else len(set(own)))
            rest = (rest or next(words)).removeprefix(token)
        lines.append(own)
    return lines
