"""A model directory is whole, its own, unedited and relocatable, or refused with the name of the file."""

import json
import shutil

import pytest
import torch

from nmtalign.config import ModelConfig, TrainingConfig
from nmtalign.core.model import TranslationModel
from nmtalign.data.batches import make_batch
from nmtalign.errors import FormatError
from nmtalign.model_directory import create_model_directory, describe_model, load_model, save_tensors
from nmtalign.training.runs import LATER


@pytest.fixture
def folder(reversal, tmp_path):
    config = ModelConfig(
        source_vocabulary_size=len(reversal.source_vocabulary),
        target_vocabulary_size=len(reversal.target_vocabulary),
        embedding=6,
        hidden=8,
        attention_hidden=8,
        maxout=4,
        output_rank=0,
        initialisation="xavier",
    )
    folder = tmp_path / "model"
    create_model_directory(folder, reversal, "tiny", config, TrainingConfig())
    torch.manual_seed(0)
    save_tensors(folder / "best.safetensors", TranslationModel(config).state_dict(), {"update": "7"})
    return folder


def test_a_moved_model_is_the_same_model(folder, tmp_path):
    here = load_model(folder, device="cpu")
    shutil.move(folder, tmp_path / "else where")
    there = load_model(tmp_path / "else where", device="cpu")
    assert here.source_language == there.source_language == "xx"
    assert there.hash == load_model(tmp_path / "else where", device="cpu").hash
    batch = make_batch([([3, 4, 5], [5, 4, 3])])
    arguments = (batch.source, batch.source_mask, batch.target, batch.target_mask)
    assert torch.equal(here.model.force(*arguments).log_probs, there.model.force(*arguments).log_probs)


def test_a_model_of_an_earlier_version_is_the_same_model(folder):
    now = load_model(folder, device="cpu").model
    model = json.loads((folder / "config.json").read_text())["model"]
    edit_config(folder, model={name: value for name, value in model.items() if name not in LATER})
    earlier = load_model(folder, device="cpu").model
    assert earlier.config == now.config
    assert all(map(torch.equal, now.state_dict().values(), earlier.state_dict().values()))


def test_bf16_weights_compute_near_float32(folder):
    exact, rough = (load_model(folder, device="cpu", precision=precision).model for precision in ("fp32", "bf16"))
    assert next(rough.parameters()).dtype == torch.bfloat16
    batch = make_batch([([3, 4, 5], [5, 4, 3]), ([6], [7])])
    arguments = (batch.source, batch.source_mask, batch.target, batch.target_mask)
    torch.testing.assert_close(
        rough.force(*arguments).log_probs, exact.force(*arguments).log_probs, atol=0.05, rtol=0.05
    )


def test_the_hash_follows_the_weights(folder):
    before = load_model(folder, device="cpu").hash
    config = load_model(folder, device="cpu").model.config
    torch.manual_seed(1)
    save_tensors(folder / "best.safetensors", TranslationModel(config).state_dict(), {})
    assert load_model(folder, device="cpu").hash != before


def test_weights_can_be_read_by_whom_any_new_file_can(folder, tmp_path):
    (tmp_path / "new").write_text("")
    assert (folder / "best.safetensors").stat().st_mode == (tmp_path / "new").stat().st_mode


def cut(path):
    path.write_bytes(path.read_bytes()[:-1])


def edit_config(folder, **changes):
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda f: (f / "config.json").unlink(), "no nmtalign model here"),
        (lambda f: (f / "config.json").write_text("{"), "config.json: cannot be read"),
        (lambda f: (f / "config.json").write_text("[]"), "not a model of nmtalign"),
        (lambda f: edit_config(f, format="other"), "not a model of nmtalign"),
        (lambda f: edit_config(f, format_version=99), "format 99"),
        (lambda f: edit_config(f, model={"hidden": "8"}), "hidden"),
        (lambda f: (f / "best.safetensors").unlink(), "holds no weights yet"),
        (lambda f: (f / "best.safetensors").write_bytes(b"x" * 100), "best.safetensors: damaged"),
        (lambda f: (f / "best.safetensors").write_bytes(b""), "best.safetensors: damaged: empty; `nmtalign info"),
        (lambda f: cut(f / "best.safetensors"), r"best.safetensors: damaged: [0-9,]+ bytes of"),
        (lambda f: (f / "tokenizer.json").unlink(), "tokenizer.json: missing"),
        (lambda f: (f / "source.vocabulary.txt").write_text("</s>\n<unk>\n"), "source.vocabulary.txt: was changed"),
    ],
)
def test_what_is_missing_foreign_or_edited_is_named(folder, damage, message):
    damage(folder)
    with pytest.raises(FormatError, match=message):
        load_model(folder, device="cpu")


def test_weights_of_another_model_are_refused(folder):
    other = ModelConfig(9, 9, embedding=3, hidden=4, attention_hidden=4, maxout=2)
    save_tensors(folder / "best.safetensors", TranslationModel(other).state_dict(), {})
    with pytest.raises(FormatError, match=r"best\.safetensors: does not hold the weights"):
        load_model(folder, device="cpu")


def test_a_name_in_config_never_leads_out_of_the_folder(folder, tmp_path):
    (tmp_path / "secret").write_text("x")
    edit_config(folder, files={"../secret": "0" * 64})
    with pytest.raises(FormatError, match=r"config.json: damaged: .*secret. names no file of this folder"):
        load_model(folder, device="cpu")


def test_the_best_weights_before_are_taken_where_a_kill_left_no_others(folder):
    (folder / "best.safetensors").rename(folder / "best.previous.safetensors")
    assert load_model(folder, device="cpu").weights_file.name == "best.previous.safetensors"
    with pytest.raises(FormatError, match=r"holds no weights yet \(last\.safetensors\)"):
        load_model(folder, device="cpu", which="last")


def test_a_new_model_directory_keeps_no_checkpoint_of_another_run(reversal, folder):
    for name in ("training_state", "training_state.previous", "best.previous"):
        (folder / f"{name}.safetensors").write_text("")
    (folder / ".best.safetensors.1.partial").write_text("")
    config = load_model(folder, device="cpu").model.config
    create_model_directory(folder, reversal, "tiny", config, TrainingConfig())
    assert [path.name for path in folder.glob("*.safetensors")] == ["best.safetensors"]
    assert not list(folder.glob(".*"))


def test_info_checks_every_file_and_says_which_is_damaged(folder, nmtalign):
    shutil.copy(folder / "best.safetensors", folder / "last.safetensors")
    files = describe_model(folder)["files"]
    assert files["best.safetensors"] == files["last.safetensors"]
    assert files["best.safetensors"]["checksum"] == "matches"
    assert files["best.safetensors"]["update"] == 7
    assert describe_model(folder)["parameters"] == files["best.safetensors"]["parameters"]
    data = bytearray((folder / "best.safetensors").read_bytes())
    data[-1] ^= 16
    (folder / "best.safetensors").write_bytes(data)
    result = nmtalign("info", folder, check=False)
    assert result.returncode == 4
    assert "checksum: matches" in result.stdout.decode()
    message = result.stderr.decode()
    assert message.count("\n") == 1
    assert "best.safetensors (its checksum does not match" in message
    assert "last" not in message


def test_a_model_of_an_earlier_version_loads_as_it_was(folder):
    batch = make_batch([([3, 4, 5], [5, 4, 3])])
    arguments = (batch.source, batch.source_mask, batch.target, batch.target_mask)
    expected = load_model(folder, device="cpu").model.force(*arguments).log_probs
    settings = json.loads((folder / "config.json").read_text())
    for name in ("attention_temperature", "coverage"):
        del settings["model"][name]
    (folder / "config.json").write_text(json.dumps(settings))
    assert torch.equal(load_model(folder, device="cpu").model.force(*arguments).log_probs, expected)
