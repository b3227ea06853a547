"""A model directory is complete, consistent, unedited and relocatable, or refused with the name of the file."""

import hashlib
import json
import os
import random
import shutil

import pytest
import torch

from nmtalign.core.model import TranslationModel, make_batch
from nmtalign.errors import FormatError, NmtalignError
from nmtalign.model_directory import DIGEST_PLACE, describe_model, load_model, save_tensors
from nmtalign.settings.training_settings import ModelConfig, TrainingConfig
from nmtalign.training.checkpoints import create_run
from nmtalign.translating.translator import Translator


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
    create_run(folder, reversal, "tiny", config, TrainingConfig())
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


def test_bf16_weights_compute_near_float32(folder):
    exact, rough = (load_model(folder, device="cpu", precision=precision).model for precision in ("fp32", "bf16"))
    assert next(rough.parameters()).dtype == torch.bfloat16
    assert rough.readout.output_bias.dtype == torch.float32  # as in training
    batch = make_batch([([3, 4, 5], [5, 4, 3]), ([6], [7])])
    arguments = (batch.source, batch.source_mask, batch.target, batch.target_mask)
    torch.testing.assert_close(
        rough.force(*arguments).log_probs, exact.force(*arguments).log_probs, atol=0.05, rtol=0.05
    )


def edit_config(folder, **changes):
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def drop(folder, key):
    path = folder / "config.json"
    settings = json.loads(path.read_text())
    del settings[key]
    path.write_text(json.dumps(settings))


def edit_model(folder, **changes):
    edit_config(folder, model={**json.loads((folder / "config.json").read_text())["model"], **changes})


def flip(path, place=-1):
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(data)


def into_pipe(path):
    path.unlink(missing_ok=True)
    os.mkfifo(path)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (
            lambda f: flip(f / "best.safetensors"),
            "best.safetensors: damaged: its checksum does not match.*`nmtalign i",
        ),
        (lambda f: into_pipe(f / "config.json"), "config.json: cannot be read: not a regular file"),
        (lambda f: into_pipe(f / "best.safetensors"), "has no weights yet"),
        (lambda f: (f / "config.json").write_text("[" * 100_000), "config.json: cannot be read: nested too deeply"),
        (lambda f: edit_config(f, source_language="\ud800"), "config.json: cannot be read: .*surrogates"),
        (lambda f: edit_config(f, files=["a"]), "config.json: damaged: 'files' is not an object"),
        (lambda f: edit_config(f, files={}), "config.json: damaged: 'files' has no checksum of source.vocabulary.txt"),
        (lambda f: edit_config(f, files={"a": 1}), "config.json: damaged: the checksum of 'a' is not a text"),
        (lambda f: edit_config(f, files={"..": ""}), "config.json: damaged: '..' names no file of this folder"),
        (lambda f: (f / "source.spm").write_text(""), "config.json: damaged: 'files' has no checksum of source.spm"),
        (lambda f: edit_config(f, target_language=1), "config.json: damaged: 'target_language' is not a text"),
        (lambda f: drop(f, "target_language"), "config.json: damaged: it has no 'target_language'"),
        (lambda f: edit_model(f, hidden=10**9), "config.json: model: hidden = 1000000000: must be at most 1048576"),
        (lambda f: edit_model(f, hidden=2**20, embedding=2**20), "best.safetensors: does not contain the weights"),
        (lambda f: (f / "config.json").unlink(), "no nmtalign model here"),
        (lambda f: edit_config(f, format="other"), "not a model of nmtalign"),
        (lambda f: edit_config(f, format_version=99), "format 99"),
        (lambda f: (f / "best.safetensors").unlink(), "has no weights yet"),
        (
            lambda f: (f / "best.safetensors").write_bytes(b""),
            "best.safetensors: damaged, or not a safetensors file .*; `nmtalign info",
        ),
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
    with pytest.raises(FormatError, match=r"best\.safetensors: does not contain the weights"):
        load_model(folder, device="cpu")


def test_a_file_on_another_disk_may_be_linked(folder, tmp_path):
    (folder / "best.safetensors").rename(tmp_path / "elsewhere")
    (folder / "best.safetensors").symlink_to(tmp_path / "elsewhere")
    load_model(folder, device="cpu")
    flip(tmp_path / "elsewhere")
    with pytest.raises(FormatError, match="its checksum does not match"):
        load_model(folder, device="cpu")


HOSTILE = [None, True, -1, 2**31, 2**62, 10**400, float("inf"), float("nan"), "", "x", "../x", "\ud800", [], {}, [[]]]


def changed_json(chance, value):
    """A JSON value with one part of it removed, renamed or replaced."""
    at, key = value, None
    while isinstance(at, dict | list) and at and (key is None or chance.random() < 0.7):
        inside, key = at, chance.choice(list(at) if isinstance(at, dict) else range(len(at)))
        at = at[key]
    if key is None:
        return chance.choice(HOSTILE)
    how = chance.randrange(3) if isinstance(inside, dict) else 2
    if how < 2:
        part = inside.pop(key)
        inside |= {str(chance.choice(HOSTILE)): part} if how else {}
    else:
        inside[key] = chance.choice(HOSTILE)
    return value


def changed_bytes(chance, data):
    """Bytes with a bit flipped, a part removed, inserted, overwritten or copied, or all but the start cut off."""
    data, place, length = bytearray(data), chance.randrange(len(data)), chance.randrange(1, 40)
    how = chance.randrange(5)
    if how == 0:
        data[place] ^= 1 << chance.randrange(8)
    elif how == 1:
        del data[place : chance.choice((place + length, len(data)))]
    elif how == 2:
        data[place:place] = chance.choice((chance.randbytes(length), b"[" * 2000, b"9" * 5000))
    elif how == 3:
        data[place : place + length] = chance.randbytes(length)
    else:
        other = chance.randrange(len(data))
        data[place : place + length] = data[other : other + length]
    return bytes(data)


def changed_header(chance, data):
    """A file of tensors whose header is another one."""
    length = int.from_bytes(data[:8], "little")
    header = json.dumps(changed_json(chance, json.loads(data[8 : 8 + length])), separators=(",", ":")).encode()
    return len(header).to_bytes(8, "little") + header + data[8 + length :]


def changed_json_text(chance, data):
    return json.dumps(changed_json(chance, json.loads(data))).encode()


def with_checksum(folder, name, data):
    """Data of a file with a checksum that fits, as a stranger would write it."""
    if name.endswith(".safetensors"):
        digest = hashlib.sha256(data[:DIGEST_PLACE] + b"0" * 64 + data[DIGEST_PLACE + 64 :]).hexdigest().encode()
        return data[:DIGEST_PLACE] + digest + data[DIGEST_PLACE + 64 :]
    files = json.loads((folder / "config.json").read_text())["files"]
    edit_config(folder, files={**files, name: hashlib.sha256(data).hexdigest()})
    return data


def test_a_changed_file_gives_the_same_model_or_an_error_of_one_line(folder):
    def translations():
        results = list(Translator.load(folder, device="cpu", beam=2).translate(["w1 w2 w3", "w4 w5"]))
        return [(result.text, result.n_best[0].score) for result in results]

    def translations_or_error():
        try:
            return translations()
        except FormatError as error:
            return str(error)
        except NmtalignError as error:
            if "no finite probability" in str(error):  # the weights of a stranger may be anything
                return str(error)
            raise

    expected, chance, refused = translations(), random.Random(7), 0
    originals = {path: path.read_bytes() for path in folder.iterdir()}
    for _ in range(200):
        path = chance.choice(list(originals))
        change = changed_bytes
        if path.suffix != ".txt" and chance.random() < 0.6:
            change = changed_header if path.suffix == ".safetensors" else changed_json_text
        data = change(chance, originals[path])
        fits = path.name != "config.json" and chance.random() < 0.5
        path.write_bytes(with_checksum(folder, path.name, data) if fits else data)
        found = translations_or_error()
        if isinstance(found, str):
            refused += 1
            assert "\n" not in found
            assert len(found) < 600
        else:
            assert found == expected or fits or path.name == "config.json", path
        for changed in {path, folder / "config.json"}:
            changed.write_bytes(originals[changed])
    assert 100 < refused < 200
    assert translations() == expected


def test_a_new_model_directory_keeps_no_checkpoint_of_another_run(reversal, folder):
    for name in ("training_state", "training_state.previous"):
        (folder / f"{name}.safetensors").write_text("")
    (folder / ".best.safetensors.1.partial").write_text("")
    config = load_model(folder, device="cpu").model.config
    create_run(folder, reversal, "tiny", config, TrainingConfig())
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
