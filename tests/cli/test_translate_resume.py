"""`nmtalign translate -o FILE`: the files after an interruption, and a resumed file with the same bytes."""

import gzip
import json
import os
import random
import shutil
import signal
import threading
import time
import zlib

import pytest
from helpers.commands import assert_same_lines

from nmtalign.text.lines import counted

WORDS = ["the", "fox", "sees", "a", "red", "boat", ".", "hedgehog"]
FORMATS = [(), ("--n-best", "3"), ("--set", "sample=true")]


def text_of(lines):
    """Lines of 0 to 9 words, the same at every call."""
    generator = random.Random(lines)
    texts = (" ".join(generator.choices(WORDS, k=generator.randrange(10))) for _ in range(lines))
    return "".join(f"{text}\n" for text in texts).encode()


@pytest.mark.parametrize("form", FORMATS, ids=lambda form: form[0].strip("-") if form else "text")
def test_a_file_that_was_cut_off_ends_the_same(random_model, tmp_path, inside, unfinished, form):
    # Batches of a few words, and with them windows: some are done, one is done in part, some are left.
    arguments = ("-m", random_model, "--beam", 3, "--set", "batch_size=8", *form, "-o", "out.fr", "in.en")
    (tmp_path / "in.en").write_bytes(text_of(40))
    assert inside(*arguments).returncode == 0
    whole = (tmp_path / "out.fr").read_text()
    (tmp_path / "out.fr").unlink()
    unfinished(*arguments)
    done = inside(*arguments, "--resume")
    assert done.returncode == 0, done.stderr
    assert_same_lines((tmp_path / "out.fr").read_text(), whole)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.en", "out.fr"]
    whole = (tmp_path / "out.fr").read_text()
    (tmp_path / "out.fr.partial.json").touch()  # by a run that was killed at its end
    done = inside(*arguments, "--resume")
    assert not (tmp_path / "out.fr.partial.json").exists()
    assert done.stderr == b"nmtalign: out.fr: already done: it contains 40 translations\n"
    os.utime(tmp_path / "in.en")  # the text may be another one
    done = inside(*arguments, "--resume")
    assert (done.returncode, b"40 translations, but in.en is newer; leave out --resume" in done.stderr) == (2, True)
    os.utime(tmp_path / "in.en", (0, 0))
    shutil.copytree(random_model, tmp_path / "copy")
    os.utime(tmp_path / "copy/best.safetensors")
    done = inside(*arguments, "--resume", "-m", "copy")
    assert (done.returncode, b"40 translations, but copy/best.safetensors is newer; leave" in done.stderr) == (2, True)
    assert (tmp_path / "out.fr").read_text() == whole


def test_a_resumed_file_has_to_fit(random_model, tmp_path, inside, unfinished):
    (tmp_path / "out.fr").write_text("a\nb\nc\n")
    arguments = ("-m", random_model, "--beam", 1, "-o", "out.fr")
    for more, code, message in (
        ((), 2, "out.fr: is complete, with 3 translations, but the input has 1; leave out --resume"),
        (("--n-best", 1, "--alignment", "soft"), 4, "line 1: not a line of an n-best list; give the same options"),
        (("-o", "/dev/null"), 2, "--resume needs an output file, and /dev/null is none"),
        (("-o", "-"), 2, "--resume needs an output file, and standard output is none"),
    ):
        done = inside(*arguments, "--resume", *more, text=b"the fox\n")
        assert (done.returncode, done.stdout) == (code, b"")
        assert message in done.stderr.decode()
        assert (tmp_path / "out.fr").read_text() == "a\nb\nc\n"
    (tmp_path / "in.en").write_text("the fox\na boat\n")
    (tmp_path / "other.en").write_text("the fox\na red boat\n")
    (tmp_path / "none.en").write_text("")
    unfinished(*arguments, "in.en")
    done = inside(*arguments, "--resume", "none.en")
    assert done.returncode == 3
    assert b"none.en: has 0 lines, and the output has 1; give the input that" in done.stderr
    done = inside(*arguments, "--resume", "--beam", 2, "in.en")
    assert (done.returncode, done.stderr.count(b"\n")) == (2, 1)
    assert b"out.fr.partial: was begun with options.beam = 1, and now it is 2; " in done.stderr
    done = inside(*arguments, "--resume", "--set", "batch_size=3", "other.en")
    assert b"warning: out.fr.partial: the input has changed; if its first 1 line did, leave out --resume" in done.stderr


def test_a_new_run_keeps_what_another_left_until_its_end(random_model, tmp_path, inside):
    (tmp_path / "out.fr").write_text("whole\n")
    (tmp_path / "out.fr.partial").write_text("long work\n")
    (tmp_path / "in.en").write_bytes(text_of(400))
    torn = gzip.compress(text_of(90))[:-30]
    (tmp_path / "in.gz").write_bytes(torn)
    complete = 400 + zlib.decompressobj(31).decompress(torn).count(b"\n")
    arguments = ("-m", random_model, "--beam", 1, "-o", "out.fr")
    done = inside(*arguments, "in.en", "in.gz")
    assert done.returncode == 3
    messages = done.stderr.decode().splitlines()
    assert messages[0].startswith("nmtalign: out.fr.partial existed; renamed to out.fr.partial.old")
    assert "in.gz: cannot read further" in messages[1]
    assert messages[1].endswith(f"; out.fr.partial contains {counted(complete, 'line')}; --resume continues after them")
    assert (tmp_path / "out.fr.partial").read_bytes().count(b"\n") == complete
    assert (tmp_path / "out.fr.partial.old").read_text() == "long work\n"
    assert (tmp_path / "out.fr").read_text() == "whole\n"
    (tmp_path / "in.gz").write_bytes(gzip.compress(text_of(90)))
    assert inside(*arguments, "--resume", "in.en", "in.gz").returncode == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.en", "in.gz", "out.fr"]
    resumed = (tmp_path / "out.fr").read_bytes()
    assert inside(*arguments, "in.en", "in.gz").returncode == 0
    assert (tmp_path / "out.fr").read_bytes() == resumed


@pytest.mark.parametrize(("text", "count"), [(b"fox\n\nfox\n", 3), (b"fox\nfox\n\n", 2)], ids=["full", "short"])
def test_a_short_last_list_of_an_interrupted_run_does_not_count(random_model, tmp_path, inside, text, count):
    (tmp_path / "in.gz").write_bytes(gzip.compress(text)[:-4])  # the error comes after the last line
    arguments = ("-m", random_model, "--beam", 2, "--n-best", 2, "-o", "out.fr", "in.gz")
    messages = f"; out.fr.partial contains {count} lines; --resume continues after them\n"
    assert inside(*arguments).stderr.decode().endswith(messages)
    (tmp_path / "in.gz").write_bytes(gzip.compress(text))
    assert f"after the {count} of an earlier run" in inside(*arguments, "--resume").stderr.decode()


def test_ended_by_sigterm_and_resumed_from_a_pipe(random_model, tmp_path, inside, process):
    arguments, text = ("-m", random_model, "--beam", 2, "--format", "json"), text_of(50)
    partial = tmp_path / "out.fr.partial"
    with process(*arguments, "-o", "out.fr", "-") as run:
        run.stdin.write(text)
        run.stdin.flush()  # and it stays open
        while not (partial.exists() and partial.stat().st_size):
            assert run.poll() is None
            time.sleep(0.01)
        run.send_signal(signal.SIGTERM)
        assert run.wait(timeout=250) == 143
        messages = run.stderr.read().decode()
    left = partial.read_bytes()
    assert left.endswith(b"\n")
    count = left.count(b"\n")
    rest = f"out.fr.partial contains {counted(count, 'line')}; --resume continues after them\n"
    assert messages == f"nmtalign: error: ended by SIGTERM; {rest}"
    assert [json.loads(line)["id"] for line in left.splitlines()] == list(range(count))
    os.mkfifo(tmp_path / "pipe")
    writer = threading.Thread(target=(tmp_path / "pipe").write_bytes, args=(text,))
    writer.start()
    done = inside(*arguments, "-o", "out.fr", "--resume", "pipe")
    writer.join(timeout=250)
    assert done.returncode == 0
    assert done.stderr.decode().startswith(f"nmtalign: {50 - count} lines after the {count} of an earlier run, ")
    assert inside(*arguments, "-o", "whole.fr", text=text).returncode == 0
    whole, resumed = ((tmp_path / name).read_text().splitlines() for name in ("whole.fr", "out.fr"))
    assert [json.loads(line)["translation"] for line in resumed] == [json.loads(line)["translation"] for line in whole]
