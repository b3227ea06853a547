"""Small parallel texts, corpora of them, and the files of folders."""

import nmtalign
from nmtalign.data.corpus import Corpus
from nmtalign.settings.command_settings import PrepConfig


def write_pairs(folder, name, pairs):
    """Writes NAME.en and NAME.fr."""
    paths = folder / f"{name}.en", folder / f"{name}.fr"
    for number, path in enumerate(paths):
        path.write_bytes("".join(f"{pair[number]}\n" for pair in pairs).encode())
    return paths


def prepare(train, folder, config, languages, dev=None, test=None, **options):
    """Prepares a corpus of two files with the settings of an object."""
    return nmtalign.prepare(*train, folder, config=config, languages=languages, dev=dev, test=test, **options)


def prepared(folder, pairs, dev=None, languages=("en", "fr"), **settings):
    """The corpus of these pairs, made in FOLDER/data with settings of `prep`."""
    texts, held_out = write_pairs(folder, "train", pairs), dev and write_pairs(folder, "dev", dev)
    prepare(texts, folder / "data", PrepConfig(**settings), languages, held_out)
    return Corpus.open(folder / "data")


def files_of(folder):
    """The content of each file in a folder, by name."""
    return {path.name: path.read_bytes() for path in folder.iterdir()}
