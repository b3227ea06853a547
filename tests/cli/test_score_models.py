"""Which models `score` takes, and their translations, which are kept and used again only where nothing has changed."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from nmtalign.cli.common import say
from nmtalign.errors import FormatError, UsageError
from nmtalign.model_directory import describe_model
from nmtalign.scoring.models import models_to_score, translation_of
from nmtalign.scoring.scoring_run import ScoreRequest, run_scoring
from nmtalign.scoring.texts import Text
from nmtalign.settings.command_settings import TranslateConfig
from nmtalign.settings.workspace import Workspace, load_workspace
from nmtalign.translating import translator
from nmtalign.translating.translator import Translator

LINES = ["the fox sees a red boat .", "", "a boat .", "the  fox \u2028 sees"]
SOURCE = Text("test.en", LINES)
SETTINGS = TranslateConfig(beam=3, threads=1)
Copy = Callable[..., Path]


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    """A folder with a test set, whose current folder the process is in."""
    monkeypatch.chdir(tmp_path)
    Path("test.en").write_text("".join(f"{line}\n" for line in LINES))
    Path("nmtalign.toml").write_text('[corpus]\ntest = ["test.en", "test.fr"]\n')
    return load_workspace(None)


@pytest.fixture
def copied(workspace: Workspace, random_model: Path, blind_model: Path) -> Copy:
    """Makes a model directory in the workspace, with best weights that are `age` seconds old."""

    def copy(name: str, age: float = 10, attention: bool = True) -> Path:
        folder = Path(name)
        shutil.copytree(random_model if attention else blind_model, folder)
        then = time.time() - age
        os.utime(folder / "best.safetensors", (then, then))
        return folder

    return copy


@pytest.fixture
def searches(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The folders of models that were loaded to translate."""
    loaded: list[str] = []
    load = translator.load_models

    def noting(folders, *rest):
        loaded.extend(map(str, folders))
        return load(folders, *rest)

    monkeypatch.setattr(translator, "load_models", noting)
    return loaded


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def translation(folder: Path, settings: TranslateConfig = SETTINGS, source: Text = SOURCE) -> list[str]:
    return list(translation_of(source, folder, settings, notify=say).lines)


def scored(models: dict[str, Path], settings: TranslateConfig = SETTINGS, skip: bool = True) -> list[str]:
    """The names of the models whose translations could be scored."""
    request = ScoreRequest(models, [LINES], LINES, translation=settings, skip_models=skip)
    return [*run_scoring(request, warn=say).texts.systems]


def test_several_models_and_none_named_is_one_clear_error(workspace: Workspace, copied: Copy) -> None:
    for name in ("models/old", "models/b", "model"):
        copied(name)
    message = (
        r"^3 models here \(model, models/b, models/old\); name one with -m, or compare those of models/ with --all$"
    )
    with pytest.raises(UsageError, match=message):
        models_to_score(workspace, None, False)
    assert models_to_score(workspace, Path("models/old"), False) == {"old": Path("models/old")}


@pytest.mark.parametrize("name", ["model", "models/a"])
def test_the_only_model_needs_no_name(workspace: Workspace, copied: Copy, name: str) -> None:
    copied(name)
    assert models_to_score(workspace, None, False) == {Path(name).name: Path(name)}


def test_models_stand_beside_the_workspace_file(
    workspace: Workspace, copied: Copy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied("models/a")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    found = models_to_score(load_workspace(Path("../nmtalign.toml")), None, True)
    assert found == {"a": Path("../models/a")}


def test_a_model_of_the_workspace_under_models_is_one(workspace: Workspace, copied: Copy) -> None:
    copied("models/a", age=50)
    edit(Path("nmtalign.toml"), "[corpus]", 'model = "models/a"\n[corpus]')
    copied("models/b", age=100)
    assert models_to_score(load_workspace(None), None, False) == {"a": Path("models/a")}


def test_every_model_by_name_and_what_is_none_passed_over(
    workspace: Workspace, copied: Copy, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("b", "a", ".hidden"):
        copied(f"models/{name}")
    copied("models/c", attention=False)
    (copied("models/moment") / "best.safetensors").rename("models/moment/best.previous.safetensors")
    Path("models/empty").mkdir()
    Path("models/foreign").mkdir()
    Path("models/foreign/config.json").write_text('{"architectures": []}')
    Path("models/notes.txt").write_text("x")
    assert [*models_to_score(workspace, None, True)] == ["a", "b", "c", "moment"]
    assert capsys.readouterr().err == ""


def test_damaged_models_are_left_out_with_a_line_each(
    workspace: Workspace, copied: Copy, capsys: pytest.CaptureFixture[str]
) -> None:
    copied("models/good")
    weights = copied("models/cut") / "best.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    weights = copied("models/flipped") / "best.safetensors"
    content = bytearray(weights.read_bytes())
    content[-3] ^= 1
    weights.write_bytes(content)
    (copied("models/young") / "best.safetensors").rename("models/young/last.safetensors")
    (copied("models/bare") / "config.json").unlink()
    (copied("models/broken") / "config.json").write_text("{")
    edit(copied("models/edited") / "source.vocabulary.txt", "fox", "dog")
    models = models_to_score(workspace, None, True, Path("test.en"), say)
    assert scored(models) == ["good"]
    lines = capsys.readouterr().err.splitlines()
    assert [line.split("/")[1].split(":")[0] for line in lines] == [
        "bare", "broken", "edited", "young", "cut", "flipped",
    ]  # fmt: skip
    assert all(line.endswith("; it is left out") for line in lines)
    assert "no best weights yet" in lines[3]


def test_a_model_that_cannot_do_what_is_asked_is_left_out(
    workspace: Workspace, copied: Copy, capsys: pytest.CaptureFixture[str]
) -> None:
    models = {"a": copied("models/a"), "blind": copied("models/blind", attention=False)}
    settings = TranslateConfig(beam=3, replace_unk=True)
    assert scored(models, settings) == ["a"]
    assert "this model has no attention" in capsys.readouterr().err
    with pytest.raises(FormatError, match="no model could translate"):
        scored({"blind": models["blind"]}, settings)
    with pytest.raises(UsageError, match="this model has no attention"):
        scored(models, settings, skip=False)


def test_a_model_of_the_other_direction_is_left_out(
    workspace: Workspace, copied: Copy, capsys: pytest.CaptureFixture[str]
) -> None:
    copied("models/there")
    back = copied("models/back", age=1)
    edit(back / "config.json", '"source_language": "en"', '"source_language": "fr"')
    edit(back / "config.json", '"target_language": "fr"', '"target_language": "en"')
    for every in (True, False):
        assert [*models_to_score(workspace, None, every, Path("test.en"), say)] == ["there"]
        assert capsys.readouterr().err == (
            "nmtalign: models/back: reads fr and writes en, and the text to translate is in en; it is left out\n"
        )
    with pytest.raises(UsageError, match="models/back: reads fr and writes en"):
        models_to_score(workspace, back, False, Path("test.en"))
    assert models_to_score(workspace, back, False, Path("test.fr")) == {"back": back}


def test_no_model_is_one_clear_error(workspace: Workspace, copied: Copy) -> None:
    with pytest.raises(FormatError, match="models: has no model; train one with `nmtalign train -o models/NAME`"):
        models_to_score(workspace, None, True)
    with pytest.raises(FormatError, match="model: no nmtalign model here"):
        models_to_score(workspace, None, False)
    (copied("models/young") / "best.safetensors").unlink()
    with pytest.raises(FormatError, match="models: has no model that can be scored; the lines above say why"):
        models_to_score(workspace, None, True)
    with pytest.raises(UsageError, match="--all scores the models under models/, and -m names one"):
        models_to_score(workspace, Path("model"), True)


def test_last_weights_serve_where_there_are_no_best(
    workspace: Workspace, copied: Copy, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = copied("model")
    expected = translation(folder)
    (folder / "best.safetensors").rename(folder / "last.safetensors")
    assert models_to_score(workspace, None, False) == {"model": folder}
    assert translation(folder) == expected
    assert "model: has no best weights yet; the last weights translate" in capsys.readouterr().err


def test_a_translation_is_what_translate_writes_and_is_kept(
    copied: Copy, searches: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    folder = copied("model")
    first = translation(folder)
    assert first == [done.text for done in Translator.load(folder, beam=3).translate(LINES)]
    assert first[1] == ""
    searches.clear()
    capsys.readouterr()
    assert translation(folder) == first
    assert searches == []
    (kept,) = folder.glob("translations/*.txt")
    assert kept.read_text(encoding="utf-8") == "".join(f"{line}\n" for line in first)
    assert capsys.readouterr().err == f"nmtalign: the translation of test.en by model is kept in {kept}\n"
    record = json.loads(kept.with_suffix(".json").read_text())
    assert record["key"].startswith(kept.stem)
    assert record["options"]["beam"] == 3
    assert (record["source"], record["lines"]) == ("test.en", 4)
    assert {path.name.partition(".")[2] for path in kept.parent.iterdir()} == {"txt", "json"}


def test_a_text_may_have_any_name(copied: Copy, searches: list[str]) -> None:
    folder, odd = copied("model"), Text("t\udce9st.en", LINES)
    assert translation(folder, SETTINGS, odd) == translation(folder, SETTINGS, odd)
    assert searches == ["model"]


def test_a_kept_translation_needs_no_torch(copied: Copy) -> None:
    folder = copied("model")
    expected = translation(folder)
    code = (
        "import sys; from pathlib import Path\n"
        "from nmtalign.scoring.models import models_to_score, translation_of\n"
        "from nmtalign.settings.command_settings import TranslateConfig\n"
        "from nmtalign.scoring.texts import Text\n"
        "from nmtalign.settings.workspace import load_workspace\n"
        "[folder] = models_to_score(load_workspace(None), None, False).values()\n"
        f"done = translation_of(Text('test.en', {LINES!r}), folder, TranslateConfig(beam=3))\n"
        "assert 'torch' not in sys.modules\n"
        "print(list(done.lines))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{expected}\n"


@pytest.mark.parametrize("spoil", ["edit", "cut", "add", "record", "no record", "no text", "record of another"])
def test_what_is_not_as_it_was_written_is_not_used(copied: Copy, searches: list[str], spoil: str) -> None:
    folder = copied("model")
    expected = translation(folder)
    (kept,) = folder.glob("translations/*.txt")
    text, record = kept.read_bytes(), kept.with_suffix(".json")
    if spoil in ("no record", "no text"):
        (record if spoil == "no record" else kept).unlink()
    elif spoil.startswith("record"):
        edit(record, '"key": "', '"key": "0') if spoil == "record of another" else record.write_text("[]")
    else:
        kept.write_bytes({"edit": text.replace(b" ", b"_"), "cut": text[:-5], "add": text + b"x\n"}[spoil])
    searches.clear()
    assert translation(folder) == expected
    assert searches == ["model"]
    assert kept.read_bytes() == text  # made and kept anew


def test_other_words_another_text_or_other_weights_are_translated(
    copied: Copy, searches: list[str], random_model: Path
) -> None:
    folder = copied("model")
    translation(folder)
    others = [
        lambda: translation(folder, TranslateConfig(beam=2)),
        lambda: translation(folder, SETTINGS, Text("test.en", [*LINES, "the boat"])),
        lambda: translation(folder, SETTINGS, Text("test.en", LINES[:-1])),
    ]
    for other in others:
        searches.clear()
        other()
        assert searches == ["model"]
    assert len(list(folder.glob("translations/*.txt"))) == 4
    # A new training in the same folder, with the same file times and sizes.
    times = (folder / "best.safetensors").stat()
    shutil.copy(random_model.parent / "model" / "best.safetensors", folder / "new")
    content = (folder / "new").read_bytes()
    edit(folder / "config.json", '"preset": "tiny"', '"preset": "tidy"')
    (folder / "best.safetensors").write_bytes(content)
    os.utime(folder / "best.safetensors", ns=(times.st_atime_ns, times.st_mtime_ns))
    searches.clear()
    translation(folder)
    assert searches == ["model"]
    assert len(list(folder.glob("translations/*.txt"))) == 1  # those that could never be used again are gone
    assert len(list(folder.glob("translations/????????????????.json"))) == 1


def test_a_folder_that_cannot_be_written_to_is_no_obstacle(copied: Copy, capsys: pytest.CaptureFixture[str]) -> None:
    folder = copied("model")
    expected = translation(copied("other"))
    (folder / "translations").write_text("in the way")
    capsys.readouterr()
    assert translation(folder) == expected
    assert capsys.readouterr().err.count("not kept for the next time") == 1


def test_a_full_disk_is_no_obstacle(
    copied: Copy, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = copied("model")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", full)
        expected = translation(folder)
    assert "no space left on the disk; the translation is scored, but not kept" in capsys.readouterr().err
    assert [path for path in folder.glob("translations/*") if path.suffix != ".json"] == []
    assert translation(folder) == expected


def test_weights_that_training_replaces_meanwhile_keep_no_translation(
    copied: Copy, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = copied("model")
    load = translator.load_models

    def replacing(*arguments):
        shutil.copy(folder / "best.safetensors", folder / "new")
        (folder / "new").replace(folder / "best.safetensors")
        return load(*arguments)

    monkeypatch.setattr(translator, "load_models", replacing)
    translation(folder)
    assert list(folder.glob("translations/*.txt")) == []


def test_the_hash_of_weights_is_noted_once_they_lie_still(
    copied: Copy, searches: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from nmtalign.translating import keeping as cached

    folder = copied("model")
    translation(folder)
    noted = folder / "translations" / "weights.json"
    assert not noted.exists()  # a moment after they were written
    monkeypatch.setattr(cached, "_SETTLED", -1)
    translation(folder)
    assert noted.is_file()
    read: list[Path] = []
    digest = cached.sha256_of
    monkeypatch.setattr(cached, "sha256_of", lambda path: read.append(path) or digest(path))
    translation(folder)
    assert read == []
    os.utime(folder / "best.safetensors")
    searches.clear()
    translation(folder)
    assert read == [folder / "best.safetensors"]
    assert searches == []  # they are the same still


def test_an_interruption_leaves_nothing(copied: Copy) -> None:
    folder = copied("model")
    code = (
        "import sys; from pathlib import Path\n"
        "from nmtalign.cli.common import say\n"
        "from nmtalign.cli.common import Signals\n"
        "from nmtalign.scoring.models import translation_of\n"
        "from nmtalign.settings.command_settings import TranslateConfig\n"
        "from nmtalign.errors import NmtalignError\n"
        "from nmtalign.scoring.texts import Text\n"
        "lines = [f'the fox {n} sees a red boat' for n in range(20_000)]\n"
        "try:\n"
        "    with Signals():\n"
        "        translation_of(Text('many', lines), Path('model'), TranslateConfig(beam=12), notify=say)\n"
        "except NmtalignError as error:\n"
        "    sys.exit(error.exit_code)"
    )
    with subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert process.stderr.readline().startswith("nmtalign: translating 20,000 lines of many")
        process.send_signal(signal.SIGINT)
        assert process.wait() == 130
    assert not list(folder.glob("translations/*.txt")) + list(folder.glob("translations/.*"))


def test_info_and_a_copy_know_nothing_of_it(copied: Copy, searches: list[str]) -> None:
    folder = copied("model")
    before = describe_model(folder)
    expected = translation(folder)
    assert describe_model(folder) == before
    shutil.copytree(folder, "a copy")
    searches.clear()
    assert translation(Path("a copy")) == expected
    assert searches == []


def test_settings_are_those_of_translate(workspace: Workspace) -> None:
    toml = Path("nmtalign.toml")
    toml.write_text(toml.read_text() + '[translate]\nbeam = 5\nlexicon = "lexicon.txt"\nn_best = 2\n')
    settings = load_workspace(None).resolve(TranslateConfig, "translate", {"device": "cpu"})
    assert (settings.beam, settings.candidates, settings.device) == (5, 2000, "cpu")
