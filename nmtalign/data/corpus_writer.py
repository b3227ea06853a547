"""Writing the prepared corpus: all files in a hidden folder, then each moved to its place, corpus.h5 last."""

import contextlib
import errno
import filecmp
import json
import os
import shutil
import socket
from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import numpy.typing as npt

from nmtalign.data.corpus import CORPUS_FILE, FORMAT, FORMAT_VERSION, SIDES, SUMMARY_FILE, VOCABULARY_FILES, Corpus
from nmtalign.data.pair_spool import PairSpool, Summary
from nmtalign.errors import FormatError, UsageError
from nmtalign.files import atomic_text, make_folder, sha256_of
from nmtalign.hdf5 import USER_BLOCK, seal
from nmtalign.text.tokenizer import MODEL_FILES, Tokenizers
from nmtalign.text.vocabulary import Vocabulary
from nmtalign.version import __version__

Vocabularies = tuple[Vocabulary, Vocabulary]
Tables = tuple[npt.NDArray[np.uint32], ...]
# Attributes that differ if the text or its settings differ.
_IDENTITY = frozenset(("source_language", "target_language", "settings", "sha256", "content_sha256"))
_NEW = "new"  # finished files, inside the work folder


def write_files(work: Path, tokenizers: Tokenizers, vocabularies: Vocabularies, summary: Summary) -> None:
    """Writes the tokeniser, the vocabularies and summary.json."""
    tokenizers.save(work / _NEW)
    for name, vocabulary in zip(VOCABULARY_FILES, vocabularies, strict=True):
        vocabulary.save(work / _NEW / name)
    with atomic_text(work / _NEW / SUMMARY_FILE) as stream:
        stream.write(json.dumps(summary.as_dict(), ensure_ascii=False, indent=2) + "\n")


def write_corpus(
    work: Path, tokenizers: Tokenizers, spools: Mapping[str, PairSpool], tables: Mapping[str, Tables], summary: Summary
) -> None:
    """Writes corpus.h5, after the files whose hashes it contains."""
    sizes = summary.source_vocabulary_size, summary.target_vocabulary_size
    content: dict[str, str] = {}
    with _disk_full(), h5py.File(work / _NEW / CORPUS_FILE, "w", userblock_size=USER_BLOCK) as file:
        for name, spool in spools.items():
            sides = zip(SIDES, spool.sides, tables[name], sizes, strict=True)
            for side, part, table, size in sides:
                group = file.create_group(f"{name}/{side}")
                content[f"{name}/{side}"] = part.store(group, table, "u2" if size <= 1 << 16 else "u4")
        spools["train"].store_lines(file["train"], summary.splits["train"].pairs)
        hashes = {name: sha256_of(work / _NEW / name) for name in (*VOCABULARY_FILES, *tokenizers.files())}
        file.attrs.update(
            format=FORMAT,
            format_version=FORMAT_VERSION,
            nmtalign_version=__version__,
            source_language=summary.source_language,
            target_language=summary.target_language,
            source_vocabulary_size=sizes[0],
            target_vocabulary_size=sizes[1],
            settings=json.dumps(summary.settings, sort_keys=True),
            sha256=json.dumps(hashes, sort_keys=True),
            content_sha256=json.dumps(content, sort_keys=True),
        )
    seal(work / _NEW / CORPUS_FILE)
    with (work / _NEW / CORPUS_FILE).open("rb") as stream:
        os.fsync(stream.fileno())


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
    with contextlib.suppress(OSError, RuntimeError), h5py.File(path, "r") as file:
        if file.attrs.get("format") != FORMAT:
            raise UsageError(f"{path}: is another HDF5 file; give another folder with -o, or --force to replace it")


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
    host = socket.gethostname()
    for left in folder.glob(f".prep-{host}-*"):
        if not _runs(left.name.rpartition("-")[2]):
            shutil.rmtree(left, ignore_errors=True)
    work = folder / f".prep-{host}-{os.getpid()}"
    try:
        (work / _NEW).mkdir(parents=True)
        yield work
    finally:
        shutil.rmtree(work, ignore_errors=True)
        if not was_there:
            with contextlib.suppress(OSError):  # a corpus is in it
                folder.rmdir()


def _runs(pid: str) -> bool:
    """Whether the process that made a folder still runs; a killed one leaves its folder behind."""
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return False
    except (OSError, ValueError):
        return True
    return True


@contextlib.contextmanager
def _disk_full() -> Iterator[None]:
    """Replaces HDF5's long message about a full disk by the usual error."""
    try:
        yield
    except (OSError, RuntimeError) as error:
        if "space left" in str(error):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)) from error
        raise
