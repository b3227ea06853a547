"""The no-unknown subset, by hand."""

import pytest

from nmtalign.errors import FormatError
from nmtalign.scoring.scoring_run import UnknownRates, read_words, unknown_rates, without_unknown_words
from nmtalign.text.tokenizer import Tokenizers, Vocabulary

SOURCES = ["the cat sleeps", "the wombat sleeps", "the cat", "", "the </s> sleeps"]
REFERENCES = ["le chat dort", "le wombat dort", "le matou", "", "le chat dort"]
BY_HAND = [True, False, False, True, False]


def without_unknowns(folder, sources, references):
    return without_unknown_words([read_words(folder)], sources, references)


@pytest.fixture
def folder(tmp_path):
    Vocabulary(["</s>", "<unk>", "the", "cat", "sleeps"]).save(tmp_path / "source.vocabulary.txt")
    Vocabulary(["</s>", "<unk>", "le", "chat", "dort"]).save(tmp_path / "target.vocabulary.txt")
    Tokenizers.spaced("en", "fr").save(tmp_path)
    return tmp_path


def test_a_sentence_counts_if_all_its_words_are_known_on_both_sides_and_in_every_reference(folder):
    assert without_unknowns(folder, SOURCES, [REFERENCES]).tolist() == BY_HAND
    second = ["le chien dort", *REFERENCES[1:]]
    assert without_unknowns(folder, SOURCES, [REFERENCES, second]).tolist() == [False, *BY_HAND[1:]]


def test_text_is_tokenised_as_the_folder_says(folder):
    Vocabulary(["</s>", "<unk>", "the", "cat", "sleeps", ".", "'s"]).save(folder / "source.vocabulary.txt")
    Tokenizers.moses("en", "fr").save(folder)
    assert without_unknowns(folder, ["the cat's."], [["le chat"]]).tolist() == [True]


def test_text_is_composed_as_a_model_reads_it(folder):
    Vocabulary(["</s>", "<unk>", "le", "chat", "r\u00eave"]).save(folder / "target.vocabulary.txt")
    decomposed, words = "le chat re\u0302ve", read_words(folder)
    assert without_unknown_words([words], ["the cat"], [[decomposed]]).tolist() == [True]
    assert unknown_rates(words, ["the cat"], [[decomposed]], {"a": [decomposed]}) == UnknownRates(0, 0, {"a": 0})


def test_the_path_of_the_corpus_file_names_its_folder(folder):
    (folder / "corpus.h5").write_bytes(b"")
    assert len(read_words(folder / "corpus.h5")[0][1]) == 5


@pytest.mark.parametrize("name", ["source.vocabulary.txt", "target.vocabulary.txt", "tokenizer.json"])
def test_a_folder_without_vocabularies_is_named(folder, name):
    (folder / name).unlink()
    with pytest.raises(FormatError, match=rf"no vocabularies here \(no {name}\); give a model"):
        read_words(folder)


def test_a_vocabulary_edited_after_training_is_refused(tmp_path, random_model_directory):
    model = random_model_directory(tmp_path)
    assert len(read_words(model)[1][1]) == 9
    with (model / "target.vocabulary.txt").open("a") as stream:
        stream.write("matou\n")
    with pytest.raises(FormatError, match=r"target.vocabulary.txt: was changed after training"):
        read_words(model)


def test_a_sentence_must_be_known_to_every_model(folder):
    both = read_words(folder)
    Vocabulary(["</s>", "<unk>", "the", "cat", "sleeps", "wombat"]).save(folder / "source.vocabulary.txt")
    Vocabulary(["</s>", "<unk>", "le", "wombat", "dort"]).save(folder / "target.vocabulary.txt")
    other = read_words(folder)
    assert without_unknown_words([other], SOURCES, [REFERENCES]).tolist() == [False, True, False, True, False]
    assert without_unknown_words([both, other], SOURCES, [REFERENCES]).tolist() == [False, False, False, True, False]


def test_rates_are_shares_of_all_words(folder):
    systems = {"a": ["le chat", "un chat"], "b": [""]}
    rates = unknown_rates(read_words(folder), SOURCES, [REFERENCES, ["x"] * 5], systems)
    assert rates == UnknownRates(2 / 11, (2 + 5) / (11 + 5), {"a": 0.25, "b": 0.0})
