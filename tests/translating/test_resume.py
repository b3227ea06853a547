"""Output files that are interrupted anywhere and continued."""

import gzip
from pathlib import Path

import pytest

from nmtalign.errors import FormatError, ResourceError, UsageError
from nmtalign.translating.resume import ResumableOutput

TEXT = ["le renard\n", "\n", "un\rbateau \u2028\n", "\n", "é 🦊\n"]
N_BEST = ["0 ||| a ||| 1\n0 ||| b ||| 2\n", "1 |||  ||| 0\n", "2 ||| c ||| 1\n2 ||| d ||| 2\n", "3 |||  ||| 0\n"]
CASES = pytest.mark.parametrize(("outputs", "n_best"), [(TEXT, 0), (N_BEST, 2)], ids=["text", "n-best"])


def write(path: Path, outputs: list[str], n_best: int = 0, resume: bool = True) -> ResumableOutput:
    """A run that translates the remaining lines."""
    file = ResumableOutput(path, n_best)
    if resume:
        file.look_back()
    file.begin()
    for output in outputs[file.done :]:
        file.write(output.encode())
    file.finish()
    file.close()
    return file


@CASES
@pytest.mark.parametrize("name", ["out.fr.partial", "out.fr"])
def test_cut_off_at_any_byte_it_ends_the_same(tmp_path: Path, outputs: list[str], n_best: int, name: str) -> None:
    whole = "".join(outputs).encode()
    for cut in range(len(whole) + 1):
        (tmp_path / name).write_bytes(whole[:cut])
        file = write(tmp_path / "out.fr", outputs, n_best)
        assert (tmp_path / "out.fr").read_bytes() == whole
        assert [path.name for path in tmp_path.iterdir()] == ["out.fr"]
        complete = [len("".join(outputs[:count]).encode()) <= cut for count in range(1, len(outputs) + 1)]
        # A list of fewer than n_best lines may have gone on: the last one is done again.
        assert file.done in ((sum(complete),) if not n_best else (sum(complete), max(0, sum(complete) - 1)))
        (tmp_path / "out.fr").unlink()


def test_every_line_is_there_as_soon_as_it_is_written(tmp_path: Path) -> None:
    file = ResumableOutput(tmp_path / "new" / "out.fr")
    assert not file.begin()
    for count in range(1, 4):
        file.write(b"x\n")
        assert file.partial.read_bytes() == b"x\n" * count
    assert not file.path.exists()
    file.close()
    assert file.partial.read_bytes() == b"x\n" * 3


def test_an_empty_one_does_not_stay(tmp_path: Path) -> None:
    file = ResumableOutput(tmp_path / "out.fr")
    file.begin()
    file.close()
    assert list(tmp_path.iterdir()) == []


def test_an_older_one_is_kept_until_the_new_file_is_whole(tmp_path: Path) -> None:
    (tmp_path / "out.fr.partial").write_text("old\n")
    file = ResumableOutput(tmp_path / "out.fr")
    assert file.begin()
    file.write(b"new\n")
    assert (tmp_path / "out.fr.partial.old").read_text() == "old\n"
    file.finish()
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"out.fr": "new\n"}


def test_nothing_to_go_on_from(tmp_path: Path) -> None:
    file = write(tmp_path / "out.fr", TEXT)
    assert (file.done, file.found) == (0, None)
    assert (tmp_path / "out.fr").read_bytes() == "".join(TEXT).encode()


def test_compressed_files(tmp_path: Path) -> None:
    lines = [f"{number} {number**9}\n" for number in range(9000)]
    path = tmp_path / "out.fr.gz"
    write(path, lines, resume=False)
    whole = path.read_bytes()
    assert gzip.decompress(whole).decode() == "".join(lines)
    for found, kept, least in (("out.fr.gz", whole[: len(whole) // 2], 0), ("out.fr.gz.partial", b"0 0\n1 1\n2", 2)):
        (tmp_path / found).write_bytes(kept)
        file = write(path, lines)
        assert least <= file.done < 9000
        assert path.read_bytes() == whole
        assert [left.name for left in tmp_path.iterdir()] == ["out.fr.gz"]


def test_two_runs_do_not_write_the_same_file(tmp_path: Path) -> None:
    first, second = ResumableOutput(tmp_path / "out.fr"), ResumableOutput(tmp_path / "out.fr")
    first.begin()
    first.write(b"x\n")
    with pytest.raises(UsageError, match=r"out.fr.partial: another run is writing this file"):
        second.begin()
    first.finish()
    assert (tmp_path / "out.fr").read_text() == "x\n"


def test_a_run_that_begins_meanwhile_is_not_overwritten(tmp_path: Path) -> None:
    write(tmp_path / "out.fr", TEXT[:2])
    runs = ResumableOutput(tmp_path / "out.fr"), ResumableOutput(tmp_path / "out.fr")
    for run in runs:
        run.look_back()
    runs[0].begin()
    with pytest.raises(UsageError, match=r"out.fr.partial: another run is writing this file"):
        runs[1].begin()
    runs[0].close()
    with pytest.raises(UsageError, match=r"out.fr.partial: another run has written this file meanwhile"):
        runs[1].begin()
    assert (tmp_path / "out.fr.partial").read_text() == "".join(TEXT[:2])


@pytest.mark.parametrize("ended", ["finished", "killed"])
def test_lines_that_another_run_writes_meanwhile_are_neither_lost_nor_repeated(tmp_path: Path, ended: str) -> None:
    first, second = ResumableOutput(tmp_path / "out.fr"), ResumableOutput(tmp_path / "out.fr")
    first.begin()
    for output in TEXT[:3]:
        first.write(output.encode())
    second.look_back()
    assert second.done == 3
    first.write(TEXT[3].encode())
    if ended == "finished":
        first.finish()
    first.close()
    with pytest.raises(UsageError, match=r"out.fr.partial: another run has written this file meanwhile"):
        second.begin()
    left = tmp_path / ("out.fr" if ended == "finished" else "out.fr.partial")
    assert [path.name for path in tmp_path.iterdir()] == [left.name]
    assert left.read_bytes().decode() == "".join(TEXT[:4])


@pytest.mark.parametrize(
    "text", ["le renard\n", "1 ||| a ||| 1\n", "0 ||| a\n2 ||| b\n", "0 ||| a\n1 ||| b\n0 ||| c\n"]
)
def test_what_is_no_n_best_list_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "out.fr").write_text(text)
    with pytest.raises(FormatError, match=rf"out.fr: line {text.count(chr(10))}: not the n-best list of input line"):
        ResumableOutput(tmp_path / "out.fr", 3).look_back()
    assert (tmp_path / "out.fr").read_text() == text


def test_what_cannot_be_a_file(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is not a file that can be replaced"):
        ResumableOutput(tmp_path)
    (tmp_path / "plain").touch()
    with pytest.raises(ResourceError, match="cannot make the folder"):
        ResumableOutput(tmp_path / "plain" / "out.fr").begin()
    with pytest.raises(ValueError, match="is not open"):
        ResumableOutput(tmp_path / "out.fr").write(b"x\n")


@pytest.mark.parametrize("name", ["out.fr", "out.fr.gz"])
def test_a_link_stays_and_the_file_behind_it_keeps_its_mode(tmp_path: Path, name: str) -> None:
    there = tmp_path / "there"
    there.mkdir()
    (there / name).write_text("of before\n")
    (there / name).chmod(0o600)
    (tmp_path / "link.gz").symlink_to(there / name)
    file = ResumableOutput(tmp_path / "link.gz")
    file.begin()
    file.write(b"new\n")
    assert file.partial.parent == there
    assert file.partial.stat().st_mode & 0o777 == 0o600
    file.close()  # interrupted
    write(tmp_path / "link.gz", ["new\n", "newer\n"])
    assert (tmp_path / "link.gz").is_symlink()
    found = (there / name).read_bytes()
    assert (gzip.decompress(found) if name.endswith(".gz") else found) == b"new\nnewer\n"
    assert (there / name).stat().st_mode & 0o777 == 0o600
    assert [left.name for left in there.iterdir()] == [name]
