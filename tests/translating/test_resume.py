"""Output files that are interrupted anywhere and continued."""

import gzip

import pytest

from nmtalign.errors import UsageError
from nmtalign.translating.file_translation import ResumableOutput

TEXT = ["le renard\n", "\n", "un\rbateau \u2028\n", "\n", "é 🦊\n"]
N_BEST = ["0 ||| a ||| 1\n0 ||| b ||| 2\n", "1 |||  ||| 0\n", "2 ||| c ||| 1\n2 ||| d ||| 2\n", "3 |||  ||| 0\n"]
OPTIONS = {"beam": 3, "threads": 1}
ORIGIN = {"model_hash": "abc", "source_sha256": "1", "options": OPTIONS, "files_sha256": {}}


def begun(path, list_size=0, resume=False, **changes):
    """An open output, and the number of its entries."""
    file = ResumableOutput(path, list_size)
    try:
        return file, file.begin({**ORIGIN, **changes}, resume, lambda message: None, short=False)
    except UsageError:
        file.close()
        raise


def complete(path, outputs, list_size=0):
    """A run that writes the remaining entries; the number of those that were there."""
    file, done = begun(path, list_size, resume=True)
    for output in outputs[done:]:
        file.write(output.encode())
    file.finish()
    assert file.count() == len(outputs)
    return done


@pytest.mark.parametrize(
    ("outputs", "list_size"), [(TEXT, 0), (N_BEST, 2), (N_BEST, 3), ([], 2)], ids=["text", "full", "short", "empty"]
)
@pytest.mark.parametrize("name", ["out.fr", "out.fr.gz"])
def test_cut_off_at_any_byte_it_ends_the_same(tmp_path, outputs, list_size, name):
    whole, path = "".join(outputs).encode(), tmp_path / name
    for cut in range(len(whole) + 1):
        file, done = begun(path, list_size)
        assert done == 0
        file.write(whole[:cut])
        file.close()
        assert not path.exists()
        (tmp_path / f".{name}.1.partial").touch()  # of a run that was killed while it compressed the file
        done = complete(path, outputs, list_size)
        ends = sum(len("".join(outputs[:count]).encode()) <= cut for count in range(1, len(outputs) + 1))
        full = list_size in (0, outputs[ends - 1].count("\n") if ends else 0)
        assert done in ((ends,) if full else (ends, max(0, ends - 1)))  # a short last list may have gone on
        assert (gzip.decompress(path.read_bytes()) if name.endswith("gz") else path.read_bytes()) == whole
        assert [left.name for left in tmp_path.iterdir()] == [name]
        path.unlink()


def test_every_line_is_there_as_soon_as_it_is_written_and_an_empty_file_does_not_stay(tmp_path):
    file, _ = begun(tmp_path / "new" / "out.fr")
    file.close()
    assert list((tmp_path / "new").iterdir()) == []
    file, _ = begun(tmp_path / "new" / "out.fr")
    for count in range(1, 4):
        file.write(b"x\n")
        assert file.partial.read_bytes() == b"x\n" * count
    assert not file.path.exists()
    assert file.keep(2) == 2
    file.close()
    assert file.partial.read_bytes() == b"x\n" * 2


def test_only_a_run_with_the_same_origin_resumes(tmp_path):
    file, _ = begun(tmp_path / "out.fr")
    file.write(b"x\n")
    file.close()
    for changes, message in (
        ({"options": {"beam": 4}}, "was begun with options.beam = 3, and now it is 4; .* or leave out --resume"),
        ({"model_hash": "x"}, "was begun with model_hash = abc, and now it is x"),
        ({"files_sha256": {"lexicon": "12"}}, "was begun with files_sha256.lexicon = nothing, and now it is 12"),
    ):
        with pytest.raises(UsageError, match=message):
            begun(tmp_path / "out.fr", resume=True, **changes)
    file, done = begun(tmp_path / "out.fr", resume=True, options={"beam": 3, "threads": 2})
    file.close()
    (tmp_path / "out.fr.partial.json").write_text("[")
    with pytest.raises(UsageError, match="was begun with"):
        begun(tmp_path / "out.fr", resume=True)
    assert (done, (tmp_path / "out.fr.partial").read_text()) == (1, "x\n")
