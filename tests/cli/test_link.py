"""`nmtalign link` through real pipes: a line for each pair, resuming, new pairs, scores, and refusals."""

import contextlib
import json
import os
import shlex
import shutil
import signal
import subprocess
import tracemalloc

import pytest
from helpers.command_line import run_nmtalign
from helpers.parallel_texts import write_pairs

import nmtalign
from nmtalign.alignment import linking
from nmtalign.alignment.link_files import parse_links
from nmtalign.alignment.linking import LinkRun
from nmtalign.alignment.word_aligner import load_aligner
from nmtalign.errors import FormatError
from nmtalign.files import sha256_of
from nmtalign.model_directory import read_metadata
from nmtalign.sample.sample_corpus import write_sample
from nmtalign.settings.command_settings import LinkConfig

ODD = [("", "un mot"), ("a word", ""), ("", ""), ("cat " * 300, "chat " * 290), ("\u2028 x\x01 \u2581 y", "z")]


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bitext")
    write_sample(folder, 40, 1, force=False)
    for side, name in enumerate(("train.en", "train.fr")):
        with (folder / name).open("a", encoding="utf-8", newline="\n") as stream:
            stream.writelines(f"{pair[side]}\n" for pair in ODD)
    (folder / "nmtalign.toml").unlink()
    return folder


def link(folder, *arguments):
    variables = {"PYTHONWARNINGS": "error", "COLUMNS": "200"}
    return run_nmtalign("link", "--set", "threads=1", *arguments, cwd=folder, variables=variables)


@pytest.fixture(scope="module")
def linked(texts):
    """A folder in which `link` has made aligner/, and its output."""
    done = link(texts, "train.en", "train.fr", "--learn-from", "50", "--scores")
    assert done.returncode == 0, done.stderr.decode()
    said = done.stderr.decode().splitlines()
    assert said[0].endswith("; the aligner and lexicon.tsv are in aligner")
    assert said[1].endswith("nmtalign align NEW_SRC NEW_TGT -m aligner --pharaoh")
    return texts, done.stdout


def rows_of(output):
    return [line.split("\t") for line in output.decode().split("\n")[:-1]]


def test_each_pair_has_a_line_of_links_with_probabilities(linked):
    folder, output = linked
    rows, pairs = rows_of(output), list(zip(*(read(folder / name) for name in ("train.en", "train.fr")), strict=True))
    assert len(rows) == len(pairs) == 40 + len(ODD)
    assert [rows[place] for place, pair in enumerate(pairs) if not all(pair)] == [["", ""]] * 3
    for (links, scores), pair in zip(rows, pairs, strict=True):
        found = parse_links(links, "").sure
        assert all(i < len(pair[0].split(" ")) and j < len(pair[1].split(" ")) for i, j in found)
        assert len(found) == len(scores.split())
        assert all(0 <= float(score) <= 1 for score in scores.split())
    assert sum(len(links.split()) for links, _ in rows[:40]) > 100
    assert not (folder / "aligner" / "work").exists()


def read(path):
    return path.read_text(encoding="utf-8").split("\n")[:-1]


def test_a_complete_folder_prints_its_links_again(linked):
    folder, output = linked
    before = {path: path.stat().st_mtime_ns for path in (folder / "aligner").rglob("*")}
    for options, columns in (((), 1), (("--scores",), 2)):
        done = link(folder, "train.en", "train.fr", "--learn-from", "50", *options)
        assert rows_of(done.stdout) == [row[:columns] for row in rows_of(output)]
        assert b"already complete: 45 pairs" in done.stderr
    found = nmtalign.link(folder / "train.en", folder / "train.fr", folder / "aligner", learn_from=50)
    assert found.read_bytes() == output
    done = link(folder, "train.en", "train.fr", "--learn-from", "50", "-q")
    assert (done.returncode, done.stderr) == (0, b"")
    assert {path: path.stat().st_mtime_ns for path in (folder / "aligner").rglob("*")} == before


def test_what_a_copy_of_the_folder_lacks_is_made_again(linked, tmp_path):
    folder, output = linked
    copy = tmp_path / "its copy"
    shutil.copytree(folder / "aligner", copy)
    whole = {path: path.read_bytes() for path in copy.iterdir() if path.name != "link.json"}
    for path, content in whole.items():
        path.unlink()
        if path.name == "links.tsv":
            path.write_bytes(content[:-3])
        done = link(folder, "train.en", "train.fr", "--learn-from", "50", "--scores", "-o", copy)
        assert f"NEW_TGT -m '{copy}' --pharaoh".encode() in done.stderr
        assert (done.stdout, b"already complete" in done.stderr) == (output, False), done.stderr
        assert {path: path.read_bytes() for path in whole} == whole


def test_the_folder_aligns_other_pairs_in_both_directions(linked):
    folder, output = linked
    (folder / "new.en").write_text("The cat sleeps.\n\nThe old bank is large.\n")
    (folder / "new.fr").write_text("Le chat dort.\n\nLa vieille banque est grande.\n")
    done = run_nmtalign("align", "train.en", "train.fr", "-m", "aligner", "--scores", "-q", cwd=folder)
    assert done.stdout == output
    new = run_nmtalign("align", "new.en", "new.fr", "-m", "aligner", "--pharaoh", "-q", cwd=folder)
    assert (new.returncode, new.stdout.count(b"\n")) == (0, 3)
    pairs = list(zip(read(folder / "new.en"), read(folder / "new.fr"), strict=True))
    from_python = "".join(f"{record.pharaoh()}\n" for record in nmtalign.align(folder / "aligner", pairs))
    assert from_python.encode() == new.stdout
    described = run_nmtalign("info", "aligner", cwd=folder)
    assert b"word aligner" in described.stdout
    assert b"\nsource_vocabulary: " in described.stdout  # different words, as of a corpus; an alignment file counts all


def test_links_of_an_aligner_are_compared_with_gold_links_of_tokens(linked):
    folder, texts = linked[0], ("train.en", "train.fr")
    (folder / "gold").write_text((folder / "train.align").read_text() + "\n" * len(ODD))
    assert run_nmtalign("align", *texts, "-m", "aligner", "-o", "a.h5", cwd=folder).returncode == 0
    compared = run_nmtalign("aer", "a.h5", "gold", "-s", texts[0], "-t", texts[1], "--format=json", cwd=folder)
    assert b"counts the words between spaces; its links were converted" in compared.stderr
    assert "words-to-tokens" in json.loads(compared.stdout)["signature"]


@pytest.fixture(scope="module")
def whole(texts, tmp_path_factory):
    """The result of a run that was never interrupted."""
    return run_link(texts, tmp_path_factory.mktemp("whole") / "made")


def run_link(texts, folder, ends=lambda progress: False, learn_from=0):
    """The links in the folder and the hash of the aligner after a run, "" if it was interrupted."""

    def show(progress):
        if ends(progress):
            raise KeyboardInterrupt

    config = LinkConfig(threads=1, learn_from=learn_from)
    with contextlib.suppress(KeyboardInterrupt):
        nmtalign.link(texts / "train.en", texts / "train.fr", folder, show=show, config=config)
    return result(folder) if (folder / "links.tsv").exists() else ""


def result(folder):
    return (folder / "links.tsv").read_text() + sha256_of(folder / "aligner.safetensors")


@pytest.mark.parametrize("learn_from", [0, 20])
def test_a_run_that_is_interrupted_in_every_step_gives_the_same_links(texts, tmp_path, whole, learn_from):
    if learn_from:
        all_pairs, whole = whole, run_link(texts, tmp_path / "whole", learn_from=learn_from)
        assert whole.count("\n") == 45
        assert whole != all_pairs == run_link(texts, tmp_path / "all", learn_from=45)
    for step, share in ((1, 0.0), (2, 0.1), (2, 0.5), (2, 0.9), (3, 0.1)):

        def ends(progress, step=step, share=share):
            return progress.step == step and (progress.done or 0) >= share

        assert run_link(texts, tmp_path / "made", ends, learn_from) == ""
        assert not (tmp_path / "made" / "links.tsv").exists()
    assert run_link(texts, tmp_path / "made", learn_from=learn_from) == whole
    names = sorted(path.name for path in (tmp_path / "made").iterdir())
    assert names == ["aligner.safetensors", "lexicon.tsv", "link.json", "links.tsv"]
    aligner = tmp_path / "made/aligner.safetensors"
    aligner.write_bytes(aligner.read_bytes()[:-9])
    assert run_link(texts, tmp_path / "made", learn_from=learn_from) == whole


def test_an_interrupted_command_says_that_it_resumes(texts, here, monkeypatch):
    monkeypatch.setattr(LinkRun, "run", lambda run: signal.raise_signal(signal.SIGTERM))
    messages = "nmtalign: error: ended by SIGTERM; the same command resumes in made\n"
    assert here("link", texts / "train.en", texts / "train.fr", "-o", "made") == (143, "", messages)


def linked_words(folder, pairs, **settings):
    """The source words that a run has learned, and its links, for pairs of which each has a separate word."""
    folder.mkdir()
    for name in ("a.en", "a.fr"):
        (folder / name).write_text("".join(f"word{number}x the\n" for number in range(pairs)))
    links = nmtalign.link(folder / "a.en", folder / "a.fr", folder / "made", threads=1, **settings)
    return load_aligner(folder / "made")._words[0].names, [line.partition("\t")[0] for line in read(links)]


def test_it_learns_from_pairs_of_the_complete_text_and_links_all(tmp_path, monkeypatch):
    words, links = linked_words(tmp_path / "some", 100, learn_from=10)
    assert {*words} == {"the", *(f"word{10 * number}x" for number in range(10))}
    assert links == ["0-0 1-1"] * 100
    monkeypatch.setattr(linking, "MOST_CELLS", 4 * 25)
    words, links = linked_words(tmp_path / "limit", 100)
    assert {*words} == {"the", *(f"word{4 * number}x" for number in range(25))}
    assert links == ["0-0 1-1"] * 100


def test_pairs_that_are_not_learned_from_take_no_memory(tmp_path):
    for name in ("train.en", "train.fr"):
        (tmp_path / name).write_text("".join(f"{f'word{number}x ' * 5}\n" for number in range(12_000)))
    peaks = []
    for learn_from in (100, 12_000):
        tracemalloc.start()
        run_link(tmp_path, tmp_path / f"made{learn_from}", lambda progress: progress.step == 2, learn_from)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[0] < peaks[1] / 3


def test_tokenised_text_is_noticed(texts, tmp_path):
    made = []
    for name, options in (("given", ("--tokenized",)), ("noticed", ())):
        tokenised = [(f"{line} mr. x , {number}", f"{line} m. x , {number}") for number, line in enumerate("abcabc")]
        write_pairs(tmp_path, "a", tokenised)
        done = link(tmp_path, "a.en", "a.fr", "-o", name, "-q", *options)
        assert (done.returncode, done.stderr) == (0, b"")
        made.append((tmp_path / name / "aligner.safetensors").read_bytes())
    assert made[0] == made[1]
    assert b"mr." in made[0]
    raw = load_aligner(tmp_path / "noticed").tokenizers.source.tokenize("mr. x, b.")
    assert raw == ["mr.", "x", ",", "b", "."], "of a raw text only words of the tokenised one stay whole"
    for name, options, expected in (("raw", (), "False"), ("said", ("--tokenized",), "True")):
        free = link(texts, "train.en", "train.fr", "-o", tmp_path / name, "-q", *options)
        assert (free.returncode, free.stderr) == (0, b"")
        assert read_metadata(tmp_path / name / "aligner.safetensors")["tokenized"] == expected


def test_damaged_files_of_an_interrupted_run_are_refused(texts, tmp_path):
    made = tmp_path / "made"
    run_link(texts, made, lambda progress: (progress.done or 0) > 0.6)
    state, record = made / "work" / "learned.safetensors", made / "link.json"
    kept = {path: path.read_bytes() for path in (state, record)}
    changes = {
        state: [kept[state][:-7], b"", kept[state].replace(b"counts.0", b"counts.9")],
        record: [b"", b"{}", b"[]", kept[record].replace(b'"pairs": 45', b'"pairs": 0')],
    }
    changes[record].append(kept[record].replace(b'"settings": {', b'"settings": 1, "other": {'))
    for path, damaged in ((path, damaged) for path, all_damaged in changes.items() for damaged in all_damaged):
        path.write_bytes(damaged)
        with pytest.raises(FormatError, match=path.name):
            run_link(texts, made)
        path.write_bytes(kept[path])
    small = tmp_path / "small"
    small.mkdir()
    write_pairs(small, "train", [("one", "one"), ("two three", "two three")])
    assert not run_link(small, small / "made", lambda progress: (progress.done or 0) > 0.6)
    (small / "made" / "work" / state.name).write_bytes(kept[state])
    with pytest.raises(FormatError, match="does not fit the texts"):
        run_link(small, small / "made")


def test_pairs_that_are_too_long_get_an_empty_line_and_one_notice(texts, tmp_path):
    """The memory for a pair grows with the square of its longer side: 20,000 words and one took 9.7 GB."""
    odd = [(20_000, 1), (3_000, 3_000), (1, 2_901)]
    for side, language in enumerate(("en", "fr")):
        lines = read(texts / f"train.{language}")
        lines[1:1] = ["word " * pair[side] for pair in odd]
        (tmp_path / f"a.{language}").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    done = link(tmp_path, "a.en", "a.fr", "-o", "made", "--scores")
    assert done.returncode == 0, done.stderr.decode()
    found = done.stdout.decode().split("\n")
    assert found[1:4] == ["\t"] * 3
    assert sum(len(line) > 10 for line in found) >= 40
    notice = "a.en: line 2, 3, 4: no links, because a side has more than 2,900 words and marks (3 pairs); split them"
    assert done.stderr.decode().splitlines()[0] == f"nmtalign: warning: {notice}"
    assert done.stderr.count(b"no links") == 1
    again = run_nmtalign("align", "a.en", "a.fr", "-m", "made", "--scores", "-o", "a.h5", cwd=tmp_path)
    assert (again.returncode, again.stdout) == (0, done.stdout)
    assert again.stderr.count(b"a.en: line 2, 3, 4: no links") == 1
    pairs = list(zip(read(tmp_path / "a.en")[:3], read(tmp_path / "a.fr")[:3], strict=True))
    assert [record.empty() for record in nmtalign.align(tmp_path / "made", pairs[::-1])] == [True, True, False]
    (tmp_path / "made" / "links.tsv").unlink()  # the next run does not warn of the first line, which was another text's
    notes = list[str]()
    nmtalign.link(tmp_path / "a.en", tmp_path / "a.fr", tmp_path / "made", notify=notes.append)
    assert notes == [f"warning: {tmp_path / notice}"]


def test_texts_with_few_pairs_to_learn_from_are_warned_of(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).write_text(f"{'word ' * 101}\nword\n\n")
    notes = list[str]()
    nmtalign.link(tmp_path / "a", tmp_path / "b", tmp_path / "made", notify=notes.append)
    why = "the others have an empty side, or more than 100 words and marks on a side; split long ones into sentences"
    assert notes == [f"warning: {tmp_path / 'a'}: learning from only 1 of 3 pairs; {why}"]


@pytest.mark.parametrize(("line", "warned"), [("我喜欢红色的船。", True), ("我 喜欢 红色 的 船 。", False)])
def test_a_text_without_spaces_between_words_is_warned_of_once(tmp_path, line, warned):
    (tmp_path / "a").write_text(f"{line}\n" * 3, encoding="utf-8")  # a name without a language
    (tmp_path / "b").write_text("i like the red boat\n" * 3)
    notes: list[str] = []
    nmtalign.link(tmp_path / "a", tmp_path / "b", tmp_path / "made", threads=1, notify=notes.append)
    expected = f"warning: {tmp_path / 'a'}: has no spaces between words, so links join whole lines"
    assert [note.partition(";")[0] for note in notes] == [expected] * warned
    if warned and shutil.which("perl"):  # the command that the warning gives, in any locale; letters keep their marks
        command, text = shlex.split(notes[0].rpartition("with ")[2]), "我喜\nที่นี่\n".encode()
        made = subprocess.run(command, input=text, capture_output=True, env={"LC_ALL": "C", "PATH": os.environ["PATH"]})
        assert made.stdout.decode() == "我 喜\nที่ นี่\n"
