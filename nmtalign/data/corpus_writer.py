"""Writing the prepared corpus: all files in a hidden folder, then each moved to its place, corpus.h5 last."""

import contextlib
import filecmp
import itertools
import json
import os
import re
import shutil
import socket
from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from nmtalign.data.corpus import CORPUS_FILE, FORMAT, FORMAT_VERSION, SIDES, VOCABULARY_FILES, Corpus
from nmtalign.data.pair_spool import PairSpool, Summary
from nmtalign.data.screening import NO_TRANSLATION, RawText
from nmtalign.errors import FormatError, UsageError
from nmtalign.files import atomic_text, check_other, is_left_behind, lock, make_folder, sha256_of
from nmtalign.hdf5 import created, format_of, write_attributes
from nmtalign.settings.workspace import SUMMARY_FILE, stored_texts
from nmtalign.text.tokenizer import MODEL_FILES, TOKENIZER_FILE, Tokenizers
from nmtalign.text.vocabulary import Vocabulary
from nmtalign.version import __version__

Vocabularies = tuple[Vocabulary, Vocabulary]
Tables = tuple[npt.NDArray[np.uint32], ...]
# Attributes that differ if the text or its settings differ.
_IDENTITY = frozenset(("source_language", "target_language", "settings", "sha256", "content_sha256"))
_NEW = "new"  # finished files, inside the work folder
_LOCK = "lock"  # a file that the process with the work folder has locked


def write_files(work: Path, tokenizers: Tokenizers, vocabularies: Vocabularies, summary: Summary) -> None:
    """Writes the tokeniser, the vocabularies and summary.json."""
    tokenizers.save(work / _NEW)
    for name, vocabulary in zip(VOCABULARY_FILES, vocabularies, strict=True):
        vocabulary.save(work / _NEW / name)
    with atomic_text(work / _NEW / SUMMARY_FILE) as stream:
        text = json.dumps(summary.as_dict(), ensure_ascii=False, indent=2)
        stream.write(text.encode(errors="backslashreplace").decode() + "\n")  # a file name may have any bytes


def text_names(sets: Iterable[str], languages: tuple[str, str]) -> dict[str, tuple[str, str]]:
    """The names of the text files of sets in the folder of a corpus, such as dev.en and dev.fr."""
    usable = languages[0] != languages[1] and all(re.fullmatch(r"[\w-]{1,20}", one) for one in languages)
    first, second = languages if usable else SIDES
    return {name: (f"{name}.{first}", f"{name}.{second}") for name in sets}


def check_texts(folder: Path, names: Mapping[str, tuple[str, str]], inputs: Iterable[Path | None]) -> None:
    """Raises UsageError for a file in `folder` that would be replaced and is an input, or a text of no corpus there."""
    inputs, ours = tuple(inputs), stored_texts(folder)
    texts = itertools.chain.from_iterable(names.values())
    for name in (*texts, *VOCABULARY_FILES, *MODEL_FILES, TOKENIZER_FILE, SUMMARY_FILE, CORPUS_FILE):
        check_other(folder / name, inputs)
    for name, pair in names.items():
        for path in (folder / one for one in pair):
            if path.exists() and ours.get(name) != pair:
                raise UsageError(
                    f"{path}: would be replaced by the {name} set; rename it, or give another folder with -o"
                )


def write_texts(work: Path, names: Mapping[str, tuple[str, str]], raw: Mapping[str, RawText]) -> None:
    """Writes the text files of sets."""
    for name, pair in names.items():
        for path, one in zip(raw[name].paths, pair, strict=True):
            shutil.copyfile(path, work / _NEW / one)


def write_corpus(
    work: Path,
    tokenizers: Tokenizers,
    vocabularies: Vocabularies,
    spools: Mapping[str, PairSpool],
    tables: Mapping[str, Tables],
    summary: Summary,
) -> None:
    """Writes corpus.h5, after the files whose hashes it contains."""
    sizes = tuple(map(len, vocabularies))
    content: dict[str, str] = {}
    with created(work / _NEW / CORPUS_FILE) as file:
        for name, spool in spools.items():
            sides = zip(SIDES, spool.sides, tables[name], spool.elsewhere(vocabularies), sizes, strict=True)
            for side, part, table, elsewhere, size in sides:
                group = file.create_group(f"{name}/{side}")
                content[f"{name}/{side}"] = part.store(group, table, "u2" if size <= 1 << 16 else "u4")
                content[f"{name}/{side}/unknown"] = part.store_unknown(group, table, elsewhere)
        train = summary.splits["train"]
        spools["train"].store_lines(file["train"], train.pairs - train.dropped.get(NO_TRANSLATION, 0))
        hashes = {name: sha256_of(work / _NEW / name) for name in (*VOCABULARY_FILES, *tokenizers.files())}
        attributes = {
            "format": FORMAT,
            "format_version": FORMAT_VERSION,
            "nmtalign_version": __version__,
            "source_language": summary.source_language,
            "target_language": summary.target_language,
            "source_vocabulary_size": sizes[0],
            "target_vocabulary_size": sizes[1],
            "settings": json.dumps(summary.settings, sort_keys=True),
            "sha256": json.dumps(hashes, sort_keys=True),
            "content_sha256": json.dumps(content, sort_keys=True),
        }
        write_attributes(file, attributes)


def check_begun(folder: Path, languages: tuple[str, str], settings: Mapping[str, Any], sets: Iterable[str]) -> None:
    """Raises UsageError if `folder` has a corpus of other languages, settings or sets.

    This is known before the text is read; `check_same` compares the corpora themselves.
    """
    attributes = dict(zip(("source_language", "target_language"), languages, strict=True))
    _compare(folder, attributes | {"settings": json.dumps(settings, sort_keys=True)}, {*sets})


def check_same(work: Path, folder: Path) -> None:
    """Raises UsageError if the finished files would replace another corpus or other files.

    A corpus may be replaced by one with the same and further sets. A damaged corpus may be replaced.
    """
    new = Corpus.open(work / _NEW)
    if (folder / CORPUS_FILE).exists():
        _compare(folder, new.attributes, set(new.splits))
        return
    for path in sorted((work / _NEW).iterdir()):
        there = folder / path.name
        if path.name != CORPUS_FILE and there.exists() and not (there.is_file() and filecmp.cmp(path, there, False)):
            raise UsageError(
                f"{folder}: contains another {path.name}, which would be replaced; give another folder with -o, or "
                "--force"
            )


def _compare(folder: Path, attributes: Mapping[str, Any], sets: AbstractSet[str]) -> None:
    if not (folder / CORPUS_FILE).exists():
        return
    try:
        old = Corpus.open(folder)
    except FormatError:
        _check_is_corpus(folder / CORPUS_FILE)
        return
    missing = [name for name in old.splits if name not in sets]
    same = all(_held(name, old.attributes.get(name), value) for name, value in attributes.items() if name in _IDENTITY)
    if same and not missing:
        return
    pairs = ", ".join(f"{len(split):,} {name}" for name, split in old.splits.items())
    kind = "a corpus with more sets" if same else "a corpus of other text or settings"
    raise UsageError(
        f"{folder}: contains {kind} ({old.source_language}-{old.target_language}, pairs: {pairs}), which would be "
        "lost; give another folder with -o, or --force to replace it"
    )


def _held(name: str, old: Any, new: Any) -> bool:
    """Whether an attribute of the old corpus is also true of the new one."""
    if name != "content_sha256":
        return str(old) == str(new)
    return bool(json.loads(str(old)).items() <= json.loads(str(new)).items())


def _check_is_corpus(path: Path) -> None:
    """Raises UsageError for a readable HDF5 file that is no corpus."""
    if format_of(path) not in (FORMAT, None):
        kind = "another HDF5 file, or one of an earlier version"
        raise UsageError(f"{path}: is {kind}; give another folder with -o, or --force to replace it")


def publish(work: Path, folder: Path) -> None:
    """Puts the finished files in their places; corpus.h5, which names the hashes of the others, comes last."""
    names = {path.name for path in (work / _NEW).iterdir()}
    for name in sorted(names - {CORPUS_FILE}):
        (work / _NEW / name).replace(folder / name)
    (work / _NEW / CORPUS_FILE).replace(folder / CORPUS_FILE)
    for name in set(MODEL_FILES) - names:
        (folder / name).unlink(missing_ok=True)


@contextlib.contextmanager
def work_folder(folder: Path) -> Iterator[Path]:
    """Makes a hidden folder inside `folder` for temporary files; it is always removed at the end."""
    was_there = folder.exists()
    make_folder(folder)
    for left in folder.glob(".prep-*"):
        if is_left_behind(left / _LOCK):
            shutil.rmtree(left, ignore_errors=True)
    work = folder / f".prep-{socket.gethostname()}-{os.getpid()}"
    try:
        (work / _NEW).mkdir(parents=True)
        with (work / _LOCK).open("wb") as stream:
            lock(stream)
            yield work
    finally:
        shutil.rmtree(work, ignore_errors=True)
        if not was_there:
            with contextlib.suppress(OSError):  # a corpus is in it
                folder.rmdir()
