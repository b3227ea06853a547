"""Files that people have: compressed, UTF-16, damaged, hostile; recognised by their bytes, read in bounded memory."""

import bz2
import gzip
import io
import lzma
import subprocess
import sys
import tarfile
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard

from nmtalign.errors import InputError, UsageError
from nmtalign.text.lines import LONGEST_LINE, bare_name, read_lines

Pack = Callable[[bytes], bytes]


def zstd(data: bytes) -> bytes:
    return zstandard.compress(data)


PACKS: list[Pack] = [bytes, gzip.compress, bz2.compress, lzma.compress, zstd]
MARKS = [("utf-8", b""), ("utf-8", b"\xef\xbb\xbf"), ("utf-16-le", b"\xff\xfe"), ("utf-16-be", b"\xfe\xff")]


def write(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


@pytest.mark.parametrize("pack", PACKS)
@pytest.mark.parametrize(("encoding", "mark"), MARKS)
def test_every_kind_of_file_is_the_same_text(tmp_path: Path, pack: Pack, encoding: str, mark: bytes) -> None:
    lines = [f"ligne {i} — été 😀 日本" for i in range(20_000)] + ["a\rb", "\x00 \u2028", "", "end"]
    content = mark + "\r\n".join(lines).encode(encoding)
    for name in ("train.txt", "corpus.en-fr.en.gz", "no suffix", "-dash", "new\nline.zst"):
        assert list(read_lines(write(tmp_path / name, pack(content)))) == lines


@pytest.mark.parametrize("pack", PACKS[1:])
def test_compressed_parts_follow_each_other(tmp_path: Path, pack: Pack) -> None:
    content = pack(b"a\n") + bytes(100_000 if pack is not zstd else 0) + pack(b"b\n") + pack(b"")
    assert list(read_lines(write(tmp_path / "text", content))) == ["a", "b"]


@pytest.mark.parametrize("pack", PACKS[1:])
def test_a_damaged_archive_is_one_error_with_its_name(tmp_path: Path, pack: Pack) -> None:
    content = pack("".join(f"{i} {i * i}\n" for i in range(30_000)).encode())
    middle = len(content) // 2
    changed = content[:middle] + bytes(255 - byte for byte in content[middle : middle + 40]) + content[middle + 40 :]
    for bad in (content[:-1], content[:middle], content[:12], changed, content + b"more"):
        with pytest.raises(InputError, match=r"bad: (cannot read on: .*; is the file complete|line \d+: not UTF-8)"):
            list(read_lines(write(tmp_path / "bad", bad)))


@pytest.mark.parametrize("pack", PACKS[1:])
def test_a_bomb_is_refused_in_little_memory(tmp_path: Path, pack: Pack) -> None:
    path = write(tmp_path / "bomb", pack(bytes(300_000_000)))
    tracemalloc.start()
    with pytest.raises(InputError, match="line 1: longer than 4,194,304 bytes"):
        list(read_lines(path))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 25 * LONGEST_LINE


def test_a_dictionary_of_gigabytes_is_refused(tmp_path: Path) -> None:
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 0, "dict_size": 1 << 26}]
    content = bytearray(lzma.compress(b"a\n" * 10, filters=filters))
    assert list(read_lines(write(tmp_path / "large.xz", bytes(content)))) == ["a"] * 10
    filters[0]["dict_size"] = 1 << 28
    with pytest.raises(InputError, match=r"huge\.xz: cannot read on: "):
        list(read_lines(write(tmp_path / "huge.xz", lzma.compress(b"a\n" * 10, filters=filters))))


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_utf_16_without_a_mark_names_the_command_that_converts_it(tmp_path: Path, encoding: str) -> None:
    with pytest.raises(InputError, match=rf"bare: line 1: .*iconv -f {encoding.upper().replace('6-', '6')} -t UTF-8"):
        list(read_lines(write(tmp_path / "bare", "hello\n".encode(encoding))))


@pytest.mark.parametrize("tail", [b"\x3d\xd8", b"\x3d\xd8a\0\n\0", b"a"])
def test_half_a_character_of_utf_16_is_not_text(tmp_path: Path, tail: bytes) -> None:
    path = write(tmp_path / "half", b"\xff\xfe" + "one\ntwo".encode("utf-16-le") + tail)
    with pytest.raises(InputError, match="half: line 2: not UTF-8"):
        list(read_lines(path))


def test_latin_1_names_the_command_that_converts_it(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"l1: line 2: not UTF-8 .*iconv -f WINDOWS-1252 -t UTF-8"):
        list(read_lines(write(tmp_path / "l1", "un\nété\n".encode("latin-1"))))


def zipped(*names: str) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in names:
            archive.writestr(name, "a b c\n" * 1000)
    return stream.getvalue()


def tar() -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        archive.addfile(tarfile.TarInfo("corpus.en"), io.BytesIO(b""))
    return stream.getvalue()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            zipped("README", "x/", "Books.de-en.de", "LICENSE", "Books.de-en.en"),
            "a zip archive; unpack it .*: Books.de-en.de, Books.de-en.en$",
        ),
        (zipped(*(f"{i}.txt" for i in range(9))), r"a zip archive; unpack it .*: 0.txt, .*4.txt, \.\.\.$"),
        (zipped(), "a zip archive; unpack it with unzip, then name the text files in it$"),
        (zipped("a\n\x1b.txt")[:300], "a zip archive"),
        (zipped("[Content_Types].xml", "word/document.xml"), "an office document; save it as plain text$"),
        (zipped("mimetype", "content.xml"), "an office document"),
        (tar(), "a tar archive; unpack it with tar -xf"),
        (gzip.compress(tar(), mtime=0), "a tar archive; unpack it with tar -xf"),
        (b"7z\xbc\xaf'\x1c\0\4", "packed"),
        (b"Rar!\x1a\7\0", "packed"),
        (b"%PDF-1.4\n%\xe2\xe3\n", "a PDF or office document"),
        (b"{\\rtf1\\ansi x}", "a PDF or office document"),
        (b"\x89HDF\r\n\x1a\n\0", "an HDF5 file"),
        (b"checksum\n" + bytes(503) + b"\x89HDF\r\n\x1a\n\0", "an HDF5 file"),
        (b"SQLite format 3\0\x10\0", "a database or table"),
        (b"PAR1\x15\4", "a database or table"),
        (b"\x89PNG\r\n\x1a\n\0", "an image"),
        (b"\xff\xd8\xff\xe0\0\x10JFIF", "an image"),
        (b"\x04\x22\x4d\x18d@", "packed"),
    ],
)
def test_a_file_that_is_no_text_is_named(tmp_path: Path, content: bytes, message: str) -> None:
    for name in ("corpus.en", "corpus.en.gz"):
        with pytest.raises(InputError, match=f"{name}: is {message}"):
            list(read_lines(write(tmp_path / name, content)))


@pytest.mark.parametrize(
    "line", ["PK is a name", "BZ", "BZhang", "Rar! 7z", "PAR1 MZ", "II* MM", "GIF8", "IDs", "OggS", "\x1f"]
)
def test_text_that_begins_like_another_kind_is_text(tmp_path: Path, line: str) -> None:
    assert list(read_lines(write(tmp_path / "text", f"{line}\nx\n".encode()))) == [line, "x"]


def test_standard_input_that_is_an_archive_is_named() -> None:
    program = "from nmtalign.text.lines import STDIN, read_lines; list(read_lines(STDIN))"
    done = subprocess.run([sys.executable, "-c", program], input=zipped("a.txt"), capture_output=True, check=False)
    assert b"InputError: standard input: is a zip archive; unpack it" in done.stderr


def test_without_zstandard_the_error_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "zstandard", None)
    monkeypatch.setitem(sys.modules, "compression", None)
    path = write(tmp_path / "text.zst", zstd(b"a\n"))
    with pytest.raises(UsageError, match=r'text\.zst: .*pip install "nmtalign\[zst\]"'):
        list(read_lines(path))


@pytest.mark.parametrize(
    ("name", "bare"),
    [
        ("a.en.gz", "a.en"),
        ("a.xz", "a"),
        ("a.de.bz2", "a.de"),
        ("b/a.fr.zst", "b/a.fr"),
        ("a.en", "a.en"),
        ("gz", "gz"),
    ],
)
def test_the_name_without_the_ending_of_a_compressed_file(name: str, bare: str) -> None:
    assert bare_name(Path(name)) == Path(bare)
