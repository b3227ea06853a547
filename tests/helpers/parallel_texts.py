"""Small parallel texts, corpora of them, and the files of folders."""

from nmtalign.data.corpus import Corpus
from nmtalign.data.prepare import prepare
from nmtalign.settings.command_settings import PrepConfig


def write_pairs(folder, name, pairs):
    """Writes NAME.en and NAME.fr."""
    paths = folder / f"{name}.en", folder / f"{name}.fr"
    for number, path in enumerate(paths):
        path.write_bytes("".join(f"{pair[number]}\n" for pair in pairs).encode())
    return paths


def prepared(folder, pairs, dev=None, languages=("en", "fr"), **settings):
    """The corpus of these pairs, made in FOLDER/data with settings of `prep`."""
    texts, held_out = write_pairs(folder, "train", pairs), dev and write_pairs(folder, "dev", dev)
    prepare(texts, folder / "data", PrepConfig(**settings), languages, held_out)
    return Corpus.open(folder / "data")


def files_of(folder):
    """The content of each file in a folder, by name."""
    return {path.name: path.read_bytes() for path in folder.iterdir()}
