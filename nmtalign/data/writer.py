"""Writing the prepared corpus: all files in a hidden folder first, then each in its place, corpus.h5 last."""

import contextlib
import errno
import json
import os
import shutil
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path

import h5py
import numpy as np
import numpy.typing as npt

from nmtalign.data.corpus import CORPUS_FILE, FORMAT, FORMAT_VERSION, SIDES, SUMMARY_FILE, VOCABULARY_FILES
from nmtalign.data.spool import PairSpool
from nmtalign.data.summary import Summary
from nmtalign.files import atomic_text, make_folder, sha256_of
from nmtalign.text.tokenizer import MODEL_FILES, Tokenizers
from nmtalign.text.vocabulary import Vocabulary
from nmtalign.version import __version__

Vocabularies = tuple[Vocabulary, Vocabulary]
Tables = tuple[npt.NDArray[np.uint32], ...]
_NEW = "new"  # finished files, inside the work folder


def write_files(work: Path, tokenizers: Tokenizers, vocabularies: Vocabularies, summary: Summary) -> None:
    """Writes the tokeniser, the vocabularies and summary.json."""
    tokenizers.save(work / _NEW)
    for name, vocabulary in zip(VOCABULARY_FILES, vocabularies, strict=True):
        vocabulary.save(work / _NEW / name)
    with atomic_text(work / _NEW / SUMMARY_FILE) as stream:
        json.dump(summary.as_dict(), stream, ensure_ascii=False, indent=2)
        stream.write("\n")


def write_corpus(
    work: Path, tokenizers: Tokenizers, spools: Mapping[str, PairSpool], tables: Mapping[str, Tables], summary: Summary
) -> None:
    """Writes corpus.h5, after the files whose hashes it carries."""
    sizes = summary.source_vocabulary_size, summary.target_vocabulary_size
    content: dict[str, str] = {}
    with _disk_full(), h5py.File(work / _NEW / CORPUS_FILE, "w") as file:
        for name, spool in spools.items():
            sides = zip(SIDES, (spool.source, spool.target), tables[name], sizes, strict=True)
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
    with (work / _NEW / CORPUS_FILE).open("rb") as stream:
        os.fsync(stream.fileno())


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
    """A hidden folder inside `folder` for temporary files, on the same disk; it goes, whatever happens."""
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
    """Whether the process is there that a folder was left by (a killed one cannot clean up)."""
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return False
    except (OSError, ValueError):
        return True
    return True


@contextlib.contextmanager
def _disk_full() -> Iterator[None]:
    """HDF5 says in a long sentence that the disk is full: the usual error instead."""
    try:
        yield
    except (OSError, RuntimeError) as error:
        if "space left" in str(error):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)) from error
        raise
