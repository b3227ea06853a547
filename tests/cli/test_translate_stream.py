"""`nmtalign translate` between real pipes: single lines are translated at once, and it can be ended at any moment."""

import contextlib
import os
import pty
import random
import signal
import threading
from pathlib import Path

import pytest


def pipes(process):
    return process.stdin, process.stdout, process.stderr


def test_a_line_that_is_too_long_ends_the_run_after_the_lines_before_it(doubtful_model, process):
    arguments = ("-m", doubtful_model, "--beam", 1, "--set")
    for form, line in (("text", b"a boat\n"), ("json", b'{"text": "a boat"}\n')):
        with process(*arguments, f"input_format={form}") as child:
            out, err = child.communicate(line * 3 + b"a" * (5 << 20))
            assert child.returncode == 3
            assert out.count(b"\n") == 3
            assert b"standard input: line 4: longer than 4,194,304 bytes" in err


def test_a_parent_that_waits_for_its_answers(doubtful_model, process):
    parts = [b"the fox\n", b"\n", b"a boat\n\n", b"\xff\n", b"a\r\n", *[b"sees a fox .\n" * 3] * 4, b" \t\n" * 9]
    arguments = ("-m", doubtful_model, "--beam", 2, "--threads", 2, "--replace-unk")
    with process(*arguments, variables={"LC_ALL": "C", "PYTHONIOENCODING": "ascii"}) as child:
        stdin, stdout, stderr = pipes(child)
        in_flight, generator = 0, random.Random(3)
        for part in parts:
            stdin.write(part)
            stdin.flush()
            in_flight += part.count(b"\n")
            for _ in range(generator.randint(0, in_flight)):
                assert stdout.readline().endswith(b"\n")  # it would wait here for ever
                in_flight -= 1
        for _ in range(in_flight):
            assert stdout.readline().endswith(b"\n")
        stdin.write("hérisson".encode())
        stdin.close()
        last = stdout.read().decode()
        assert last.count("\n") == 1
        assert "hérisson" in last  # UTF-8 in any locale
        reported = stderr.read().decode().splitlines()
        assert child.wait(timeout=250) == 0
    assert reported[0] == "nmtalign: standard input: line 5: not UTF-8; the bytes that are not became U+FFFD"
    assert reported[1].startswith("nmtalign: 28 lines, ")
    assert reported[1].endswith("% of the source words are unknown")


def test_a_reader_that_goes_away_ends_it_quietly(random_model, process):
    with process("-m", random_model, "--beam", 1, "--threads", 2) as child:
        stdin, stdout, stderr = pipes(child)
        stdin.write(b"the fox\n" * 10)
        stdin.flush()
        stdout.readline()
        stdout.close()
        # stdin stays open: the thread that reads it must not keep the program from ending.
        stdin.write(b"the fox\n" * 2000)
        stdin.flush()
        assert child.wait(timeout=250) == 0
        assert stderr.read() == b""


def test_ctrl_c_leaves_complete_lines(random_model, process, inside):
    text = b"the fox sees a red boat .\na boat\n\n" * 20000
    with process("-m", random_model, "--beam", 4, "--threads", 2) as child:
        stdin, stdout, stderr = pipes(child)

        def write():
            with contextlib.suppress(BrokenPipeError):  # it has ended
                stdin.write(text)

        writer = threading.Thread(target=write)
        writer.start()
        out = b"".join(stdout.readline() for _ in range(50))
        child.send_signal(signal.SIGINT)
        out += stdout.read()
        assert child.wait(timeout=250) == 130
        reported = stderr.read().decode()
        writer.join(timeout=250)
        with contextlib.suppress(BrokenPipeError):
            stdin.close()
    assert out.endswith(b"\n")
    lines = out.count(b"\n")
    assert 50 <= lines < 60000
    assert reported == f"nmtalign: error: interrupted after {lines:,} lines\n"
    three = inside("-m", random_model, "--beam", 4, text=text[: text.index(b"\n\n") + 2]).stdout
    assert out == (three * 20000)[: len(out)]


def test_progress_on_a_terminal(random_model, tmp_path, process):
    """Also tests that an output which is not a regular file, here /dev/null, is written to and not replaced."""
    (tmp_path / "in.en").write_bytes(b"the fox sees a red boat .\n" * 200)
    terminal, child_side = pty.openpty()
    arguments = ("-m", random_model, "--beam", 1, "--set", "batch_size=100", "in.en", "-o", "/dev/null")
    with process(*arguments, stderr=child_side, variables={"TERM": "xterm", "COLUMNS": "100"}) as child:
        os.close(child_side)
        shown = b""
        with contextlib.suppress(OSError):  # the other side has been closed
            while part := os.read(terminal, 65536):
                shown += part
        assert child.wait(timeout=250) == 0
        assert child.stdout.read() == b""
    os.close(terminal)
    text = shown.decode()
    assert "words/s" in text
    assert "0:00:" in text  # time left
    assert "nmtalign: 200 lines, 1,400 source words in " in text
    assert Path("/dev/null").is_char_device()


def test_a_command_finishes_if_its_messages_cannot_be_written(random_model, tmp_path, process):
    """The command finishes its work, although its messages cannot be written."""
    (tmp_path / "in.en").write_bytes(b"the fox \xff\n" * 200)
    with process("-m", random_model, "--beam", 1, "in.en") as child:
        _, stdout, stderr = pipes(child)
        stderr.close()
        assert stdout.read().count(b"\n") == 200
        assert child.wait(timeout=250) == 0
    with process("-m", random_model, "--beam", 0, "in.en") as child:
        pipes(child)[2].close()
        assert child.wait(timeout=250) == 2


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="streams have no names here")
def test_a_stream_that_is_given_by_name_is_written_to(random_model, tmp_path, process):
    """The stream may be redirected to a file: neither the file nor, as root, the named stream is replaced."""
    for name in ("/proc/self/fd/1", "-"):
        (tmp_path / "out").write_bytes(b"before\n")
        with (tmp_path / "out").open("ab") as out, process("-m", random_model, "-o", name, stdout=out) as child:
            reported = child.communicate(b"the fox\n\n")[1]
            assert child.returncode == 0, reported
        lines = (tmp_path / "out").read_bytes().splitlines()
        assert (len(lines), lines[0], lines[2]) == (3, b"before", b"")
        assert [path.name for path in tmp_path.iterdir()] == ["out"]
