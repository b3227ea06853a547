import os
import signal
import subprocess
import sys

import pytest

from nmtalign.data.pipeline import blocks_of, tokenize_chunk, tokenize_pairs
from nmtalign.errors import InputError, ResourceError
from nmtalign.text.tokenizer import SpacedWords, Tokenizers

SPACED = Tokenizers.spaced("en", "fr")


class Deadly(SpacedWords):
    """Ends the process that it is sent to."""

    def __reduce__(self):
        return os._exit, (1,)


def blocks(count, size=10):
    for number in range(count):
        yield [(f"a{number} b{line}", f"x{number}") for line in range(size)]


def plain(chunk):
    """A chunk that can be compared."""
    sides = [(side.words(), side.ids.tolist(), side.lengths.tolist()) for side in (chunk.source, chunk.target)]
    return (chunk.kept, *sides, chunk.dropped["empty"], chunk.dropped["too long"])


def test_a_chunk_keeps_what_fits():
    pairs = [("a b", "x"), ("a b c", "x"), ("", "x"), ("c", "y z")]
    chunk = tokenize_chunk(SPACED, 2, pairs)
    assert plain(chunk) == ([0, 3], (["a", "b", "c"], [0, 1, 2], [2, 1]), (["x", "y", "z"], [0, 1, 2], [1, 2]), 1, 1)
    whole = tokenize_chunk(SPACED, None, pairs)
    assert plain(whole)[:2] == ([0, 1, 2, 3], (["a", "b", "c"], [0, 1, 0, 1, 2, 2], [2, 3, 0, 1]))
    assert whole.dropped == {}
    assert plain(tokenize_chunk(SPACED, 2, [])) == ([], ([], [], []), ([], [], []), 0, 0)


def test_processes_give_the_same_in_the_same_order():
    alone, together = (list(tokenize_pairs(SPACED, 0, blocks(30), workers)) for workers in (1, 2))
    assert [*map(plain, alone)] == [*map(plain, together)]
    assert [chunk.source.words()[0] for chunk in together] == [f"a{number}" for number in range(30)]


def test_spaces_are_counted_in_all_lines_at_first_then_in_a_few():
    moses = Tokenizers.moses("en", "fr")
    for workers in (1, 2):
        lines = iter([[("a", "b;")] * 20] * 12)
        chunks = list(tokenize_pairs(moses, 0, lines, workers, spacing=True))
        assert [chunk.spacing["a", ";", ""] for chunk in chunks] == [20] * 4 + [2] * 8
        assert not any(chunk.spacing for chunk in tokenize_pairs(moses, 0, blocks(12), workers))


def test_a_block_has_fewer_pairs_if_they_are_long(monkeypatch):
    monkeypatch.setattr("nmtalign.data.pipeline.CHUNK", 3)
    monkeypatch.setattr("nmtalign.data.pipeline._CHARACTERS", 10)
    pairs = [("a", "b")] * 4 + [("a" * 8, "b"), ("", "b" * 50), ("a", "")]
    assert [*blocks_of(pairs)] == [pairs[:3], pairs[3:4], pairs[4:5], pairs[5:6], pairs[6:]]


def test_no_more_is_read_than_is_in_flight():
    read = 0

    def counted():
        nonlocal read
        for block in blocks(100):
            read += 1
            yield block

    stream = tokenize_pairs(SPACED, 0, counted(), 2)
    next(stream)
    assert read <= 16
    stream.close()


def test_an_error_of_the_text_ends_the_processes():

    def torn():
        yield from blocks(12)
        raise InputError("line 121")

    with pytest.raises(InputError, match="line 121"):
        list(tokenize_pairs(SPACED, 0, torn(), 2))


def test_a_process_that_was_killed_is_reported():
    with pytest.raises(ResourceError, match="a process of prep was killed"):
        list(tokenize_pairs(Tokenizers(Deadly(), SpacedWords()), 0, blocks(50), 2))


def test_processes_end_with_the_one_that_started_them():
    code = (
        "import time\nfrom nmtalign.data.pipeline import process_pool\n"
        "with process_pool(2) as pool:\n"
        "    print(pool.submit(abs, -1).result(), flush=True)\n"
        "    pool.submit(time.sleep, 600).result()\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout.readline() == b"1\n"
        process.send_signal(signal.SIGKILL)  # a signal that no process can handle
        # The processes also have the pipe open: it ends when the last of them has ended.
        assert process.communicate()[0] == b""


def test_processes_do_not_run_the_script_of_the_user(tmp_path):
    """A script without `if __name__ == "__main__"` ran again in each process, and "was killed (out of memory?)"."""
    (script := tmp_path / "script.py").write_text(
        "from nmtalign.data.pipeline import process_pool\n"
        "with process_pool(2) as pool:\n"
        "    print(list(pool.map(abs, [-1, 2])))\n"
    )
    assert subprocess.check_output([sys.executable, script], text=True) == "[1, 2]\n"


def test_an_error_while_a_process_sends_a_result_ends_the_pool():
    code = (
        "from multiprocessing.connection import wait\nfrom nmtalign.data.pipeline import process_pool\n"
        "with process_pool(1) as pool:\n"
        "    pool.submit(bytes, 1 << 26)\n"  # far more than a pipe takes at once
        "    wait([pool._result_queue._reader])\n"
        "    raise SystemExit(7)\n"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=100, check=False).returncode == 7


def test_ctrl_c_while_a_process_starts_reaches_only_the_caller():
    code = (
        "import os, signal, time\nfrom nmtalign.data.pipeline import process_pool\n"
        "signal.signal(signal.SIGINT, lambda *_: print('Ctrl-C', flush=True))\n"
        "with process_pool(1) as pool:\n"
        "    found = pool.submit(abs, -1)\n"
        "    for _ in range(10):\n"
        "        time.sleep(0.02)\n"
        "        os.killpg(0, signal.SIGINT)\n"
        "    print(found.result())\n"
    )
    options = {"capture_output": True, "text": True, "start_new_session": True}
    done = subprocess.run([sys.executable, "-c", code], **options, check=True)
    assert (done.stdout, done.stderr) == ("Ctrl-C\n" * 10 + "1\n", "")
