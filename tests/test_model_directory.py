"""A model directory is complete, consistent, unedited and relocatable, or refused with the name of the file."""

import errno
import json
import os
import shutil

import pytest
import torch

from nmtalign.errors import FormatError, ResourceError
from nmtalign.model_directory import describe_model, load_model, load_tensors, save_tensors
from nmtalign.settings.training_settings import TrainingConfig
from nmtalign.training.checkpoints import create_run


@pytest.fixture
def folder(random_model_directory, tmp_path):
    return random_model_directory(tmp_path, adjust=lambda model: None, heads=4)  # the default of earlier versions


# Settings of the model that the first version had; the defaults of the others are what earlier versions did.
_FIRST = {"source_vocabulary_size", "target_vocabulary_size", "embedding", "hidden", "attention_hidden", "maxout"}
_FIRST |= {"output_rank", "cell", "order", "attention", "bidirectional", "dropout", "initialisation"}


def test_a_model_of_an_earlier_version_is_the_same_model(folder):
    now = load_model(folder, device="cpu").model
    model = json.loads((folder / "config.json").read_text())["model"]
    model["word_dropout"] = 0.1  # a setting that later versions do not have
    edit_config(folder, model={name: value for name, value in model.items() if name in {*_FIRST, "word_dropout"}})
    earlier = load_model(folder, device="cpu").model
    assert earlier.config == now.config
    assert all(map(torch.equal, now.state_dict().values(), earlier.state_dict().values()))


def edit_config(folder, **changes):
    """Changes values of config.json; None removes one."""
    path = folder / "config.json"
    changed = {**json.loads(path.read_text()), **changes}
    path.write_text(json.dumps({name: value for name, value in changed.items() if value is not None}))


def edit_model(folder, **changes):
    edit_config(folder, model={**json.loads((folder / "config.json").read_text())["model"], **changes})


def flip(path, place=-1):
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(data)


def into_pipe(path):
    path.unlink(missing_ok=True)
    os.mkfifo(path)


def lose(path):
    """Makes a file a link to one that is not there, with other weights beside it."""
    path.rename(path.with_name("last.safetensors"))
    path.symlink_to("elsewhere")


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda f: flip(f / "best.safetensors"), "best.safetensors: damaged: its checksum does not match.*`nmtalign i"),
        (lambda f: into_pipe(f / "config.json"), "config.json: cannot be read: not a regular file"),
        (lambda f: lose(f / "best.safetensors"), "best.safetensors: cannot be read: No such file or directory"),
        (lambda f: (f / "config.json").write_text("[" * 100_000), "config.json: cannot be read: nested too deeply"),
        (lambda f: edit_config(f, source_language="\ud800"), "config.json: cannot be read: .*surrogates"),
        (lambda f: edit_config(f, files=["a"]), "config.json: damaged: 'files' is not an object"),
        (lambda f: edit_config(f, files={}), "config.json: damaged: 'files' has no checksum of source.vocabulary.txt"),
        (lambda f: edit_config(f, files={"a": 1}), "config.json: damaged: the checksum of 'a' is not a text"),
        (lambda f: edit_config(f, files={"..": ""}), "config.json: damaged: '..' names no file of this folder"),
        (lambda f: (f / "source.spm").write_text(""), "config.json: damaged: 'files' has no checksum of source.spm"),
        (lambda f: edit_config(f, target_language=1), "config.json: damaged: 'target_language' is not a text"),
        (lambda f: edit_config(f, target_language=None), "config.json: damaged: it has no 'target_language'"),
        (lambda f: edit_model(f, hidden=10**9), "config.json: model: hidden = 1000000000: must be at most 1048576"),
        (lambda f: edit_model(f, hidden=2**20, embedding=2**20), "best.safetensors: does not contain the weights"),
        (lambda f: (f / "config.json").unlink(), "no nmtalign model here"),
        (lambda f: edit_config(f, format="other"), "not a model of nmtalign"),
        (lambda f: edit_config(f, format_version=99), "format 99"),
        (lambda f: (f / "best.safetensors").unlink(), "has no weights yet"),
        (lambda f: (f / "best.safetensors").write_bytes(b""), "damaged, or not a safetensors file .*; `nmtalign info"),
        (lambda f: (f / "tokenizer.json").unlink(), "tokenizer.json: missing"),
        (lambda f: (f / "source.vocabulary.txt").write_text("</s>\n<unk>\n"), "source.vocabulary.txt: was changed"),
    ],
)
def test_what_is_missing_foreign_or_edited_is_named(folder, damage, message):
    damage(folder)
    with pytest.raises(FormatError, match=message):
        load_model(folder, device="cpu")
    if "config.json" in message:
        with pytest.raises(FormatError, match=message):
            describe_model(folder)


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "best.safetensors"])
def test_a_lack_of_permission_is_no_damage(folder, name, monkeypatch):
    def refuse(path, *rest, opened=os.open, **options):
        if str(path).endswith(name):
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return opened(path, *rest, **options)

    monkeypatch.setattr(os, "open", refuse)
    for read in (load_model, describe_model):
        with pytest.raises(ResourceError, match=rf"{name}: cannot read: Permission denied$"):
            read(folder)


def test_a_file_on_another_disk_may_be_linked(folder, tmp_path):
    (folder / "best.safetensors").rename(tmp_path / "elsewhere")
    (folder / "best.safetensors").symlink_to(tmp_path / "elsewhere")
    load_model(folder, device="cpu")
    flip(tmp_path / "elsewhere")
    with pytest.raises(FormatError, match="its checksum does not match"):
        load_model(folder, device="cpu")


def test_a_new_model_directory_keeps_no_checkpoint_of_another_run(reversal, folder):
    for name in ("training_state", "training_state.previous"):
        (folder / f"{name}.safetensors").write_text("")
    (folder / ".best.safetensors.1.partial").write_text("")
    config = load_model(folder, device="cpu").model.config
    create_run(folder, reversal, "tiny", config, TrainingConfig())
    assert [path.name for path in folder.glob("*.safetensors")] == ["best.safetensors"]
    assert not list(folder.glob(".*"))


def test_info_checks_every_file_and_says_which_is_damaged(folder, nmtalign):
    save_tensors(folder / "best.safetensors", load_tensors(folder / "best.safetensors")[0], {"update": "7"})
    shutil.copy(folder / "best.safetensors", folder / "last.safetensors")
    files = describe_model(folder)["files"]
    assert files["best.safetensors"] == files["last.safetensors"]
    assert files["best.safetensors"]["checksum"] == "matches"
    assert files["best.safetensors"]["update"] == 7
    assert describe_model(folder)["parameters"] == files["best.safetensors"]["parameters"]
    flip(folder / "best.safetensors")
    result = nmtalign("info", folder, check=False)
    assert result.returncode == 4
    assert "checksum: matches" in result.stdout.decode()
    message = result.stderr.decode()
    assert message.count("\n") == 1
    assert "best.safetensors (its checksum does not match" in message
    assert "last" not in message
