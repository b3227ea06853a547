"""The model card: what the folder of a model records, and nothing else."""

import json

import pytest
from helpers.commands import call

from nmtalign import FormatError, describe
from nmtalign.report.model_card import model_card

STARTED = {"event": "started", "update": 0, "epoch": 0.0, "seconds": 0.0}
STARTED |= {"pairs": 1234, "device": "cpu", "torch": "x_y"}
VALIDATED = {"event": "validated", "update": 2000, "epoch": 1.5, "seconds": 5400.0, "loss": 2.5, "loss_sentence": 50.0}
VALIDATED |= {"target_words_per_second": None, "bleu": 31.25, "signature": "BLEU|v:2", "best": True}


def score(value):
    return {"systems": [{"name": "a|b", "scores": {"chrF2++": {"value": value}}}], "signatures": {"chrF2++": "c:mixed"}}


@pytest.fixture
def model(tmp_path, random_model_directory):
    return random_model_directory(tmp_path, ["the", "boat"], ["le", "bateau"], lambda model: None)


def facts_of(card: str) -> dict[str, str]:
    """The definitions of a card."""
    return dict(line[4:].split("**: ", 1) for line in card.splitlines() if line.startswith("- **"))


def header_of(card: str) -> dict[str, object]:
    begin, header, _ = card.split("---\n", 2)
    assert begin == ""
    lines = (line.split(": ", 1) for line in header.splitlines() if not line.startswith("#"))
    return {name: json.loads(value) if value.startswith('["') or value == "[]" else value for name, value in lines}


def test_a_card_has_what_the_folder_records(model):
    (model / "train.jsonl").write_text(f"{json.dumps(STARTED)}\n{json.dumps(VALIDATED)}\n")
    (model / "scores.json").write_text(json.dumps(score(55.5)))
    card = call("info", model, "--card")
    assert header_of(card)["language"] == ["en", "fr"]
    assert header_of(card)["metrics"] == ["bleu", "chrf"]
    facts, settings = facts_of(card), json.loads((model / "config.json").read_text())
    assert (facts["updates"], facts["epochs"], facts["hours"]) == ("2,000", "1.50", "1.500")
    assert (facts["training pairs"], facts["torch"]) == ("1234", r"x\_y")
    assert facts["BLEU on dev"] == r"31.25 (BLEU\|v:2)"
    assert facts["loss on dev, in nats per word"] == "2.5000"
    assert facts["SHA-256 of the prepared corpus"] == settings["corpus"]
    assert r"| a\|b | chrF2++ | 55.50 | c:mixed |" in card
    text = call("info", model)
    for name, value in {**settings["model"], **settings["training"]}.items():
        assert f"| `{name}` | `{json.dumps(value)}` |" in card
        assert f"\n  {name}: {value}\n" in text  # without separators of thousands, and with all digits


def test_what_is_not_known_is_not_invented(model):
    (model / "train.jsonl").unlink(missing_ok=True)
    facts = facts_of(model_card(model, describe(model)))
    names = "licence, licence of the texts, texts, training pairs, hours, device, BLEU on dev, domains"
    assert {name: facts[name] for name in names.split(", ")} == dict.fromkeys(names.split(", "), "not stated")
    assert header_of(model_card(model, describe(model)))["metrics"] == []
    assert "license: not stated" in model_card(model, describe(model))


def test_hostile_names_are_text(model):
    config = model / "config.json"
    settings = json.loads(config.read_text()) | {"source_language": "x\n---\n# a", "preset": "<b>"}
    settings["training"]["a`|\n# b"] = "<script>"
    config.write_text(json.dumps(settings))
    card = model_card(model, describe(model))
    assert header_of(card)["language"] == ["x\n---\n# a", "fr"]
    assert facts_of(card)["preset"] == r"\<b\>"
    assert not any(line.startswith(("# a", "# b")) for line in card.splitlines())


@pytest.mark.parametrize("content", ["{", "[]", "{}", *map(json.dumps, (score("1"), score(None), {"systems": [1]}))])
def test_scores_of_another_form(model, content):
    (model / "scores.json").write_text(content)
    with pytest.raises(FormatError, match=r"scores\.json: not what `nmtalign score"):
        model_card(model, describe(model))
