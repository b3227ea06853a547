"""`nmtalign serve` as a process: its address, 200 clients at once, signals, and the errors of its start."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path

import pytest
from helpers.command_line import command, environment_with_nmtalign
from helpers.parallel_texts import write_pairs
from helpers.servers import PATIENCE, Client

import nmtalign as nmtalign_package

CLIENTS = 200


@pytest.fixture
def serve(tmp_path):
    """Starts `nmtalign serve ARGUMENTS` on a free port; (process, client) when it is ready."""
    with contextlib.ExitStack() as stack:

        def start(*arguments, start=command):
            call, environment = start("serve", "--port", "0", *arguments), {**os.environ, "OMP_NUM_THREADS": "1"}
            streams = dict.fromkeys(("stdout", "stderr"), subprocess.PIPE)
            process = subprocess.Popen(call, **streams, cwd=tmp_path, text=True, env=environment)
            stack.callback(process.communicate)
            stack.callback(process.kill)
            return process, Client(process.stdout.readline().strip())

        yield start


def ended(process, number):
    """Sends a signal; (exit code, stderr)."""
    process.send_signal(number)
    _, messages = process.communicate(timeout=PATIENCE)
    return process.returncode, messages


def at_once(count, work):
    """The results of `work(number)` in this number of threads, which begin together."""
    gate = threading.Barrier(count)

    def run(number):
        gate.wait(PATIENCE)
        return work(number)

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(run, range(count)))


def line_of(number):
    """Lines of 3 to 12 words, all different."""
    words = ["the", "fox", "sees", "a", "red", "boat"]
    return " ".join([*(words[number // 6**place % 6] for place in range(3 + number % 10)), f"n{number}", "."])


def test_200_clients_at_once_get_what_translate_prints(serve, random_model, nmtalign):
    """None is lost, none is mixed up, and two settings are mixed; each sends two requests."""
    lines = [line_of(number) for number in range(2 * CLIENTS)]
    assert len(set(lines)) == 2 * CLIENTS
    text = "".join(f"{line}\n" for line in lines).encode()
    expected = {
        beam: [
            json.loads(line)
            for line in nmtalign(
                "translate", "-m", random_model, "--beam", beam, "--format", "json", "--replace-unk", "--threads", "1",
                stdin=text,
            ).stdout.splitlines()
        ]
        for beam in (12, 2)
    }  # fmt: skip
    process, client = serve("-m", random_model, "--set", "replace_unk=true")

    def work(number):
        query = {"beam": 2} if number % 3 == 0 else {}
        objects = [{"text": lines[2 * number + place], "id": 2 * number + place} for place in range(2)]
        if number % 2:
            status, found, _ = client.ask("translate/json", objects, **query)
            texts = [(one["id"], one["source"], one["translation"]) for one in found]
        else:
            body = {"q": [one["text"] for one in objects], "source": "en", "target": "fr"}
            status, found, _ = client.ask("translate", body, **query)
            texts = [(one["id"], one["text"], text) for one, text in zip(objects, found["translatedText"], strict=True)]
        return status, texts

    results = at_once(CLIENTS, work)
    for number, (status, texts) in enumerate(results):
        wanted = expected[2 if number % 3 == 0 else 12][2 * number : 2 * number + 2]
        assert status == 200
        assert texts == [(one["id"], one["source"], one["translation"]) for one in wanted]
    assert len({text for _, texts in results for *_, text in texts}) > CLIENTS / 2
    assert ended(process, signal.SIGTERM) == (143, "nmtalign: serving en-fr; Ctrl-C ends it\n"
                                              "nmtalign: error: ended by SIGTERM\n")  # fmt: skip


MIB = 1 << 20
DIRECTION = b'"source": "en", "target": "fr"'
TOO_MANY_LINES = {  # bodies of up to a mebibyte
    "blank lines after an object": ("translate/json", b'{"text": "a"}' + b"\n" * (MIB - 13)),
    "blank lines before an object": ("translate/json", b"\n" * (MIB - 13) + b'{"text": "a"}'),
    "line breaks in a text": ("translate", b"{" + DIRECTION + b', "q": "' + rb"\n" * (MIB // 2 - 30) + b'"}'),
    "line breaks in a form": ("translate", b"source=en&target=fr&q=" + b"%0A" * (MIB // 3 - 10)),
    "line breaks in two texts": ("translate", b"{" + DIRECTION + b', "q": ["a", "' + rb"\n" * (MIB // 2 - 40) + b'"]}'),
    "empty texts": ("translate", b"{" + DIRECTION + b', "q": [' + b'"",' * (MIB // 3 - 20) + b'""]}'),
    "numbers in place of texts": ("detect", b'{"q": [' + b"3," * (MIB // 2 - 20) + b"3]}"),
    "texts of a form": ("translate", b"source=en&target=fr" + b"&q=a" * 2000),
    "objects in lines": ("translate/json", b'{"text": "a"}\n' * (MIB // 14)),
    "empty objects in a list": ("translate/json", b"[" + b"{}," * (MIB // 3 - 2) + b"{}]"),
    "empty objects in lines": ("translate/json", b"{}\n" * (MIB // 3)),
    "pairs": ("align", b'{"source":"a","target":"b"}\n' * (MIB // 29)),
}
HOSTILE = {
    **TOO_MANY_LINES,
    "brackets": ("translate/json", b"[" * MIB),
    "phrases": ("translate/json", b'{"text": "a", "phrases": [' + b'"",' * (MIB // 3 - 20) + b'""]}'),
    "digits": ("translate/json", b'{"text": "a", "n": ' + b"9" * (MIB - 30) + b"}"),
    "fields of a form": ("translate", b"q=a&" * (MIB // 4)),
    "a long line": ("translate", b"{" + DIRECTION + b', "q": "' + b"a" * (MIB - 60) + b'"}'),
    "tags": ("translate", b"{" + DIRECTION + b', "format": "html", "q": "' + b"<p>a" * (MIB // 4 - 30) + b'"}'),
    "a wide search": ("translate/json?beam=100&n_best=100", b'{"text": "' + b"a " * 10_000 + b'"}'),
}


def processor_seconds(process):
    """The time that a process has computed."""
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory(process, name):
    """VmHWM, the peak, or VmRSS of a process, in bytes."""
    line = next(line for line in Path(f"/proc/{process.pid}/status").read_text().splitlines() if line.startswith(name))
    return int(line.split()[1]) << 10


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="needs the peaks of memory that Linux counts")
def test_refusing_a_hostile_request_takes_little_time_and_memory(serve, random_model):
    """Other requests are answered meanwhile. The time is that of the processor, because others may use it, too."""
    process, client = serve("-m", random_model, "-q", start=lambda *given: [sys.executable, "-m", "nmtalign", *given])
    assert client.ask("translate", {"q": "a", "source": "en", "target": "fr"})[0] == 200
    for name, (path, body) in HOSTILE.items():
        Path(f"/proc/{process.pid}/clear_refs").write_text("5")  # the peak begins anew
        before, begun = memory(process, "VmRSS"), processor_seconds(process)
        kind = "application/json" if body[:1] in b"{[\n" else "application/x-www-form-urlencoded"
        with ThreadPoolExecutor(1) as pool:
            hostile = pool.submit(client.raw, path, body, kind)
            while wait([hostile], 0.01).not_done:
                assert client.ask("health")[0] == 200, name
            status, found, _ = hostile.result()
        seconds, grown = processor_seconds(process) - begun, memory(process, "VmHWM") - before
        assert status in (400, 413), name
        refused = status == 413 and b" lines: send at most 1,000 in one request" in found
        assert refused == (name in TOO_MANY_LINES), (name, status, found)
        assert seconds < 0.5, name
        assert grown < 48 * MIB, name


def test_the_settings_of_the_workspace(serve, random_model, nmtalign, tmp_path):
    settings = "[translate]\nbeam = 2\nlength_penalty = 0.2\n[serve]\nmax_lines = 2\n"
    (tmp_path / "nmtalign.toml").write_text(f'model = "{random_model}"\n{settings}')
    line = line_of(7)
    process, client = serve("-q")
    _, found, _ = client.ask("translate", {"q": line, "source": "en", "target": "fr"})
    assert found["translatedText"] == nmtalign("translate", stdin=f"{line}\n".encode()).stdout.decode().strip("\n")
    assert client.ask("translate", {"q": ["a"] * 3, "source": "en", "target": "fr"})[0] == 413
    assert client.raw("", None)[0] == 200
    shown = nmtalign("serve", "--show-settings", "--port", "7").stdout.decode()
    assert "beam = 2  # nmtalign.toml: [translate]" in shown
    assert "max_lines = 2  # nmtalign.toml: [serve]" in shown
    assert "port = 7  # --port" in shown
    assert ended(process, signal.SIGTERM)[0] == 143


def test_a_signal_before_the_first_request_is_one_line(serve, random_model):
    """It comes after the address is printed, while the loop that answers requests is made."""
    early = "import signal\nfrom asyncio.base_events import BaseEventLoop as Loop\nfrom nmtalign.cli.app import main\n"
    early += "make = Loop.__init__\ndef made(loop):\n    signal.raise_signal(signal.SIGTERM)\n    make(loop)\n"
    early += "Loop.__init__ = made\nmain()"
    process, _ = serve("-q", "-m", random_model, start=lambda *arguments: [sys.executable, "-c", early, *arguments])
    assert ended(process, 0) == (143, "nmtalign: error: ended by SIGTERM\n")


def test_an_aligner_of_the_same_direction_and_an_address_in_short_form(serve, random_model, nmtalign, tmp_path):
    """The direction is printed once, and the printed address is answered."""
    nmtalign("link", *write_pairs(tmp_path, "a", [("a red boat", "un bateau rouge")] * 3), "-o", "aligner")
    (tmp_path / "terms.tsv").write_text("fox\tboat\n")  # of the only model that translates
    process, client = serve("-m", random_model, "-m", "aligner", "--host", "127.2", "--set", "glossary=terms.tsv")
    assert (client.host, client.raw("health")[0]) == ("127.0.0.2", 200)
    assert client.raw("health", Host="127.0.0.3")[0] == 400
    assert "serving en-fr; Ctrl-C" in ended(process, signal.SIGTERM)[1]


@pytest.mark.skipif(not shutil.which("curl"), reason="needs curl")
def test_the_documented_requests(random_model, tmp_path):
    """The shell code of the section in guide.md works, and each request has an answer."""
    page = (Path(nmtalign_package.__file__).parent / "docs" / "guide.md").read_text(encoding="utf-8")
    code = page.split("\n## Serving\n")[1].split("```sh\n")[1].split("```")[0]
    (tmp_path / "model").symlink_to(random_model)
    environment = environment_with_nmtalign(tmp_path)
    call = ["bash", "-euo", "pipefail", "-c", code + "wait"]
    result = subprocess.run(call, cwd=tmp_path, env=environment, capture_output=True, text=True)
    answers = [json.loads(line) for line in result.stdout.splitlines()]
    assert len(answers) == code.count("curl")
    assert answers[0]["translatedText"]
    assert len(answers[1]["alternatives"]) == 2
    assert (answers[2]["id"], answers[2]["tokens"][0]) == (7, "Le")
    assert answers[3][0]["target"] == ["Le", "chat", "dort", "."]
    assert answers[4]["status"] == "ok"


def test_a_missing_library_is_named(here, random_model, monkeypatch):
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    message = 'a server needs Starlette and uvicorn: pip install "nmtalign[serve]"'
    assert here("serve", "-m", random_model) == (2, "", f"nmtalign: error: {message}\n")
