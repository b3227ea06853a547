"""Lines of the files that people have: compressed, UTF-16, damaged, hostile, or no text at all."""

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
from hypothesis import given
from hypothesis import strategies as st

from nmtalign.errors import InputError, UsageError
from nmtalign.text.lines import LONGEST_LINE, bare_name, decode_line, is_stream, read_lines, read_pairs

Pack = Callable[[bytes], bytes]
PACKS: list[Pack] = [bytes, gzip.compress, bz2.compress, lzma.compress, zstandard.compress]
MARKS = [("utf-8", b""), ("utf-8", b"\xef\xbb\xbf"), ("utf-16-le", b"\xff\xfe"), ("utf-16-be", b"\xfe\xff")]


def write(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


@pytest.mark.parametrize(
    ("content", "lines"),
    [
        (b"", []),
        (b"\xef\xbb\xbf", []),
        (b"\n", [""]),
        (b"one\ntwo\n", ["one", "two"]),
        (b"one\ntwo", ["one", "two"]),
        (b"one\r\ntwo\r\n", ["one", "two"]),
        (b"one\r\r\n", ["one\r"]),
        (b"a\rb\n", ["a\rb"]),
        ("a\u2028b\u0085c\x0bd\x1ce\0f\n".encode(), ["a\u2028b\u0085c\x0bd\x1ce\0f"]),
        (b"\xef\xbb\xbfone\n\xef\xbb\xbftwo\n", ["one", "\ufefftwo"]),
        (b"\n\n \n", ["", "", " "]),
        (b"\x1b[0ma\tb\tc\td\n", ["\x1b[0ma\tb\tc\td"]),
        (b"a\0b\0\nhello\n", ["a\0b\0", "hello"]),
        (b"word\0\nhello\0\n", ["word\0", "hello\0"]),
    ],
)
def test_only_the_newline_ends_a_line(tmp_path: Path, content: bytes, lines: list[str]) -> None:
    assert list(read_lines(write(tmp_path / "plain", content))) == lines
    assert list(read_lines(write(tmp_path / "packed.gz", gzip.compress(content)))) == lines


@pytest.mark.parametrize("pack", PACKS)
@pytest.mark.parametrize(("encoding", "mark"), MARKS)
def test_every_kind_of_file_is_the_same_text(tmp_path: Path, pack: Pack, encoding: str, mark: bytes) -> None:
    lines = [f"ligne {i} — été 😀 日本" for i in range(5_000)] + ["a\rb", "\x00 \u2028", "", "end"]
    content = pack(mark + "\r\n".join(lines).encode(encoding))
    for name in ("train.txt", "corpus.en-fr.en.gz", "no suffix", "-dash", "new\nline.zst"):
        assert list(read_lines(write(tmp_path / name, content))) == lines


@pytest.mark.parametrize("pack", PACKS[1:])
def test_compressed_parts_follow_each_other(tmp_path: Path, pack: Pack) -> None:
    content = pack(b"a\n") + bytes(100_000 if pack is not zstandard.compress else 0) + pack(b"b\n") + pack(b"")
    assert list(read_lines(write(tmp_path / "text", content))) == ["a", "b"]


def test_what_pzstd_has_compressed(tmp_path: Path) -> None:
    parts = [zstandard.compress(b"a\n" * 5), zstandard.compress(b"b\n")]
    content = b"".join(b"\x50\x2a\x4d\x18\4\0\0\0" + len(part).to_bytes(4, "little") + part for part in parts)
    assert list(read_lines(write(tmp_path / "text.zst", content))) == ["a"] * 5 + ["b"]
    with pytest.raises(InputError, match=r"bad: cannot read further: .*; is the file complete"):
        list(read_lines(write(tmp_path / "bad", content[:-1])))


@pytest.mark.parametrize("pack", PACKS[1:])
def test_a_damaged_archive_is_one_error_with_its_name(tmp_path: Path, pack: Pack) -> None:
    content = pack("".join(f"{i} {i * i}\n" for i in range(30_000)).encode())
    middle = len(content) // 2
    changed = content[:middle] + bytes(255 - byte for byte in content[middle : middle + 40]) + content[middle + 40 :]
    for bad in (content[:-1], content[:middle], content[:12], changed, content + b"more"):
        with pytest.raises(InputError, match=r"bad: (cannot read further: .*; is the file|line \d+: not UTF-8)"):
            list(read_lines(write(tmp_path / "bad", bad)))


@pytest.mark.parametrize("pack", PACKS[1:])
def test_a_bomb_is_refused_in_little_memory(tmp_path: Path, pack: Pack) -> None:
    path = write(tmp_path / "bomb", pack(bytes(40_000_000)))
    tracemalloc.start()
    with pytest.raises(InputError, match="line 1: longer than 4,194,304 bytes"):
        list(read_lines(path))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 15 * LONGEST_LINE


def test_a_dictionary_of_gigabytes_is_refused(tmp_path: Path) -> None:
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 0, "dict_size": 1 << 26}]
    content = bytearray(lzma.compress(b"a\n" * 10, filters=filters))
    assert list(read_lines(write(tmp_path / "large.xz", bytes(content)))) == ["a"] * 10
    filters[0]["dict_size"] = 1 << 28
    with pytest.raises(InputError, match=r"huge\.xz: cannot read further: "):
        list(read_lines(write(tmp_path / "huge.xz", lzma.compress(b"a\n" * 10, filters=filters))))


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_a_line_has_a_bound_and_no_more_of_it_is_read(tmp_path: Path, pack: Callable[[bytes], bytes]) -> None:
    long = write(tmp_path / "long", pack(b"one\n" + b"a " * (LONGEST_LINE * 6)))
    other = write(tmp_path / "other", b"one\ntwo\n")
    message = rf"{long}: line 2: longer than 4,194,304 bytes"
    lines = read_lines(long)
    assert next(lines) == "one"
    tracemalloc.start()
    with pytest.raises(InputError, match=message):
        next(lines)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 * LONGEST_LINE
    for pair in ((long, other), (other, long)):
        with pytest.raises(InputError, match=message):
            list(read_pairs(*pair))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"fine\nso far\nab\xff\n", r"line 3: not UTF-8 \(byte 0xff at column 3\); .*iconv -f WINDOWS-1252 -t UTF-8"),
        *((bad, "line 1: not UTF-8") for bad in (b"\xed\xa0\x80\n", b"\xc3", b"\xc3\n", b"\xff\xff")),
        *(
            (f"{text}\n".encode(encoding), f"is {encoding} without .* iconv -f {encoding} -t UTF-8")
            for text in ("hello", "Привет, мир!", "ПАПА", "да", "สวัสดี", "नमस्ते दुनिया", "3 мая", "தமிழ்", "你好", "\none")
            for encoding in ("UTF-16LE", "UTF-16BE", "UTF-32LE", "UTF-32BE")
        ),
        ("one".encode("utf-16-be"), "is UTF-16BE"),
        ("hello\n".encode("utf-16-le")[:-1], "is UTF-16LE"),  # as `head -1` cuts it off
        (("х" * 2047 + "🦊").encode("utf-16-le"), "is UTF-16LE"),
        *(
            (b"\xff\xfe" + "one\ntwo".encode("utf-16-le") + tail, "line 2: not UTF-8")  # half a character
            for tail in (b"\x3d\xd8", b"\x3d\xd8a\0\n\0", b"a")
        ),
    ],
)
def test_bytes_that_are_not_utf8_are_refused_by_line(tmp_path: Path, content: bytes, message: str) -> None:
    with pytest.raises(InputError, match=rf"train\.en: {message}"):
        list(read_lines(write(tmp_path / "train.en", content)))


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
        (zipped("Books.de-en.de"), "a zip archive; unpack it with unzip, then name the text files in it$"),
        (zipped(), "a zip archive"),
        (zipped("[Content_Types].xml", "word/document.xml"), "an office document; save it as plain text$"),
        (zipped("mimetype", "content.xml"), "an office document"),
        (tar(), "a tar archive; unpack it with tar -xf"),
        (gzip.compress(tar(), mtime=0), "a tar archive; unpack it with tar -xf"),
        (bz2.compress(bz2.compress(b"a")), "compressed twice; decompress it once"),
        (b"7z\xbc\xaf'\x1c\0\4", "packed"),
        (b"Rar!\x1a\7\0", "packed"),
        (b"%PDF-1.4\n%\xe2\xe3\n", "a PDF or office document"),
        (b"{\\rtf1\\ansi x}", "a PDF or office document"),
        (b"\x89HDF\r\n\x1a\n\0", "an HDF5 file"),
        (b"checksum\n" + bytes(503) + b"\x89HDF\r\n\x1a\n\0", "an HDF5 file"),
        (b"SQLite format 3\0\x10\0", "a database or table"),
        (b"PAR1\x15\4", "a database or table"),
        (b"\x89PNG\r\n\x1a\n\0", "an image"),
        (b"\0\0\0\x20ftypisom", "an image or a recording"),
        (b"\xff\xd8\xff\xe0\0\x10JFIF", "an image"),
        (b"\x04\x22\x4d\x18d@", "packed"),
        ("No. 1 猫\n".encode("iso2022_jp"), "ISO-2022; convert it to UTF-8"),
        ("고양이\n".encode("iso2022_kr"), "ISO-2022; convert it to UTF-8"),
        ("Hello\n".encode("utf-32"), "UTF-32; convert it to UTF-8"),
        ("\ufeffHello\n".encode("utf-32-be"), "UTF-32; convert it to UTF-8"),
    ],
)
def test_a_file_that_is_no_text_is_named(tmp_path: Path, content: bytes, message: str) -> None:
    for name in ("corpus.en", "corpus.en.gz"):
        with pytest.raises(InputError, match=f"{name}: is {message}"):
            list(read_lines(write(tmp_path / name, content)))


LIKE_OTHERS = ["PK is a name", "BZ", "BZhang", "Rar! 7z", "PAR1 MZ", "PAR1\tx", "Skriftyp", "II* MM", "GIF8"]


@pytest.mark.parametrize("line", [*LIKE_OTHERS, "IDs", "OggS", "\x1f"])
def test_text_that_begins_like_another_kind_is_text(tmp_path: Path, line: str) -> None:
    assert list(read_lines(write(tmp_path / "text", f"{line}\nx\n".encode()))) == [line, "x"]


@pytest.mark.parametrize(
    ("content", "answer"),
    [
        (b"a\r\nb", b"['a', 'b']"),
        (gzip.compress(b"a\nb\n", mtime=0), b"['a', 'b']"),
        (zipped("a.txt"), b"InputError: standard input: is a zip archive; unpack it"),
    ],
)
def test_standard_input(content: bytes, answer: bytes) -> None:
    code = "from nmtalign.text.lines import STDIN, read_lines; print(list(read_lines(STDIN)))"
    done = subprocess.run([sys.executable, "-c", code], input=content, capture_output=True, check=False)
    assert answer in done.stdout + done.stderr


def test_without_zstandard_the_error_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "zstandard", None)
    monkeypatch.setitem(sys.modules, "compression", None)
    path = write(tmp_path / "text.zst", zstandard.compress(b"a\n"))
    with pytest.raises(UsageError, match=r'text\.zst: .*pip install "nmtalign\[zst\]"'):
        list(read_lines(path))


def test_pairs(tmp_path: Path) -> None:
    source = write(tmp_path / "a.en", b"one\ntwo")
    target = write(tmp_path / "a.fr", b"un\ndeux\n")
    assert list(read_pairs(source, target)) == [("one", "un"), ("two", "deux")]
    assert [is_stream(path) for path in (source, tmp_path / "none", Path("/dev/null"))] == [False, False, True]


@pytest.mark.parametrize("short_first", [True, False])
def test_unequal_counts_name_the_first_missing_line(tmp_path: Path, short_first: bool) -> None:
    short = write(tmp_path / "short", b"x\n" * 3)
    long = write(tmp_path / "long", b"x\n" * 6 + b"\xff")
    with pytest.raises(InputError, match=r"short: has no line 4, but .*long has 7 lines"):
        list(read_pairs(*((short, long) if short_first else (long, short))))


@given(st.lists(st.text(alphabet=st.characters(exclude_characters="\n", exclude_categories=["Cs"]))))
def test_any_text_comes_back(lines: list[str]) -> None:
    for line in lines:
        raw = (line + "\n").encode()
        assert decode_line(Path("x"), 1, raw) == line.removesuffix("\r")


def test_the_name_without_the_ending_of_a_compressed_file() -> None:
    names = {"a.en.gz": "a.en", "a.xz": "a", "a.de.bz2": "a.de", "b/a.fr.zst": "b/a.fr", "a.en": "a.en", "gz": "gz"}
    assert {name: str(bare_name(Path(name))) for name in names} == names
