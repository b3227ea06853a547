import gc
import inspect
import json
import random
from functools import partial

import h5py
import numpy as np
import pytest
from helpers.parallel_texts import files_of, prepare, write_pairs
from sentencepiece import SentencePieceTrainer

from nmtalign.data.corpus import Corpus
from nmtalign.data.screening import SeenTexts
from nmtalign.errors import InputError, ResourceError, UsageError
from nmtalign.files import folder_lock
from nmtalign.settings.command_settings import PrepConfig

LANGUAGES = ("en", "fr")


def many_pairs(count, seed=1):
    chance = random.Random(seed)
    words = ["".join(chance.choices("abcdefgé", k=chance.randint(1, 6))) for _ in range(200)]
    return [
        (" ".join(chance.choices(words, k=chance.randint(0, 9))) + ".", "l'" + " ".join(chance.choices(words, k=5)))
        for _ in range(count)
    ]


def train_tokens(folder):
    corpus = Corpus.open(folder)
    split = corpus.splits["train"]
    return [
        (corpus.source_vocabulary.decode(split.pair(i)[0]), corpus.target_vocabulary.decode(split.pair(i)[1]))
        for i in range(len(split))
    ]


def test_a_full_disk_is_an_error_of_the_system_and_no_words_of_hdf5(tmp_path, capfd, small_disk):
    """HDF5 would print tracebacks when its objects are freed, after Python has reported the error."""
    texts = write_pairs(tmp_path, "train", many_pairs(500))
    prepare(texts, tmp_path / "whole", PrepConfig(), LANGUAGES)
    size = (tmp_path / "whole" / "corpus.h5").stat().st_size
    for limit in (size // 2, size - 100):
        with small_disk(limit), pytest.raises(ResourceError, match=r"data: cannot write: File too large$"):
            prepare(texts, tmp_path / "data", PrepConfig(), LANGUAGES)
        gc.collect()
        assert capfd.readouterr().err == ""
        assert not (tmp_path / "data" / "corpus.h5").exists()
    prepare(texts, tmp_path / "data", PrepConfig(), LANGUAGES)
    assert files_of(tmp_path / "data") == files_of(tmp_path / "whole")


def test_words_are_tokenised_with_their_case(tmp_path):
    texts = write_pairs(tmp_path, "train", [("The dog's here.", "L'animal est là."), ("It rains.", "Il pleut.")])
    summary = prepare(texts, tmp_path / "data", PrepConfig(), LANGUAGES)
    assert train_tokens(tmp_path / "data") == [
        (["The", "dog", "'s", "here", "."], ["L'", "animal", "est", "là", "."]),
        (["It", "rains", "."], ["Il", "pleut", "."]),
    ]
    assert summary.splits["train"].source.tokens == 8
    assert summary.source_vocabulary_size == 2 + 7
    assert sorted(files_of(tmp_path / "data")) == [
        "corpus.h5", "source.vocabulary.txt", "summary.json", "target.vocabulary.txt", "tokenizer.json",
    ]  # fmt: skip
    assert json.loads((tmp_path / "data/summary.json").read_text("utf-8")) == summary.as_dict()


def test_the_spacing_of_the_target_is_learned(tmp_path):
    texts = write_pairs(tmp_path, "train", [(f"No {n}; yes?", f"Non {n}; «\u00a0oui\u00a0»?") for n in range(30)])
    prepare(texts, tmp_path / "data", PrepConfig(), LANGUAGES)
    tokenizers = Corpus.open(tmp_path / "data").tokenizers
    assert tokenizers.target.detokenize(["Non", ";", "«", "non", "»", "!"]) == "Non; «\u00a0non\u00a0» !"
    assert tokenizers.source.detokenize(["No", ";"]) == "No;"
    prepare(texts, tmp_path / "pieces", PrepConfig(vocabulary="none"), LANGUAGES)
    assert "spacing" not in json.loads((tmp_path / "pieces/tokenizer.json").read_text("utf-8"))


def test_a_shortlist_counts_all_ids_and_only_kept_pairs(tmp_path):
    pairs = [("a a a b b c", "x y")] * 2 + [("d " * 60, "z")]
    texts = write_pairs(tmp_path, "train", pairs)
    dev = write_pairs(tmp_path, "dev", [("a d", "x y"), ("", ""), ("b " * 60, "z")])
    summary = prepare(texts, tmp_path / "data", PrepConfig(shortlist="4:3"), LANGUAGES, dev)
    corpus = Corpus.open(tmp_path / "data")
    assert corpus.source_vocabulary.words == ("</s>", "<unk>", "a", "b")
    assert corpus.target_vocabulary.words == ("</s>", "<unk>", "x")
    assert corpus.splits["train"].pair(0)[0].tolist() == [2, 2, 2, 3, 3, 1]
    train = summary.splits["train"]
    assert (train.pairs, train.kept, dict(train.dropped)) == (3, 2, {"empty": 0, "duplicate": 0, "too long": 1})
    assert (train.source.types, train.source.known_types, train.source.unknown_tokens) == (3, 2, 2)
    assert train.source.unknown_rate == pytest.approx(1 / 6)
    assert train.source.coverage == pytest.approx(5 / 6)
    assert train.target.unknown_rate == pytest.approx(1 / 2)
    assert summary.splits["dev"].kept == 3
    assert corpus.splits["dev"].source.lengths.tolist() == [2, 0, 60]
    assert summary.splits["dev"].source.unknown_tokens == 1
    same = prepare((texts[0], texts[0]), tmp_path / "same", PrepConfig(), LANGUAGES, dev)
    assert f"warning: {texts[0]} is both source and target" in same.notes
    assert any(f"dev: {dev[1]}: 100% of the words with letters are unknown" in note for note in same.notes)


@pytest.mark.parametrize(
    ("settings", "kept", "dropped"),
    [
        ({"max_length": 3}, 4, (3, 0, 1)),
        ({"max_length": 2}, 2, (3, 0, 3)),
        ({"max_length": 0}, 5, (3, 0, 0)),
        ({"max_length": 0, "drop_duplicates": True}, 3, (3, 2, 0)),
    ],
)
def test_pairs_that_are_dropped(tmp_path, settings, kept, dropped):
    pairs = [("a", "x y z"), ("", "x"), ("a", " \t"), ("a b c d", "x"), ("a", "x y z "), ("\x01", "x"), ("b", "x")]
    texts = write_pairs(tmp_path, "train", [*pairs, ("b", "x")])
    train = prepare(texts, tmp_path / "data", PrepConfig(**settings), LANGUAGES).splits["train"]
    assert (train.kept, tuple(train.dropped.values())) == (kept, dropped)
    assert len(Corpus.open(tmp_path / "data").splits["train"]) == kept


def test_blank_pairs_of_dev_are_no_training_pairs(tmp_path):
    train = write_pairs(tmp_path, "train", [("a", "x"), ("", ""), ("b", ""), ("c", "y")])
    for shared, pairs in ((0, [("d", "z"), ("", ""), ("b", "")]), (1, [("d", "z"), ("", ""), ("c", "y")])):
        dev = write_pairs(tmp_path, "dev", pairs)
        summary = prepare(train, tmp_path / "data", PrepConfig(), LANGUAGES, dev, force=True)
        found = [note for note in summary.notes if "the training text has" in note]
        assert len(found) == shared
        assert not found or f"{shared} of 2 pairs of dev" in found[0]


def test_seen_texts_are_those_of_a_set():
    chance = random.Random(3)
    seen, expected = SeenTexts(), set()
    for _ in range(50):
        block = [f"{chance.randrange(300)} {chance.randrange(5)}" for _ in range(chance.randint(1, 40))]
        fresh = []
        for text in block:
            fresh.append(text not in expected)
            expected.add(text)
        assert seen.first_time(block) == fresh
        assert not any(seen.first_time(block))


@pytest.mark.parametrize("sizes", [{"shortlist": "100"}, {"vocabulary": "unigram", "size": "120"}])
def test_the_number_of_processes_changes_nothing(tmp_path, monkeypatch, sizes):
    monkeypatch.setattr("nmtalign.data.pipeline.CHUNK", 50)
    texts = write_pairs(tmp_path, "train", many_pairs(600))
    contents = []
    for workers in (1, 2):
        config = PrepConfig(**sizes, workers=workers)
        summary = prepare(texts, tmp_path / f"data{workers}", config, LANGUAGES, dev=texts)
        assert summary.splits["dev"].kept == 600
        contents.append(files_of(tmp_path / f"data{workers}"))
    assert contents[0] == contents[1]


@pytest.mark.parametrize("vocabulary", ["bpe", "unigram"])
def test_subwords(tmp_path, vocabulary):
    pairs = many_pairs(300)
    odd = [("", "x"), ("x", "\u200b\u3000\x00"), ("one\rtwo\u2028three", "un")]
    texts = write_pairs(tmp_path, "train", [*pairs, *odd])
    config = PrepConfig(vocabulary=vocabulary, size="100:120", max_length=20)
    dev = write_pairs(tmp_path, "dev", [("a ☃ b", "é")])
    summary = prepare(texts, tmp_path / "data", config, LANGUAGES, dev)
    corpus = Corpus.open(tmp_path / "data")
    assert (len(corpus.source_vocabulary), len(corpus.target_vocabulary)) == (100, 120)
    split = corpus.splits["train"]
    assert summary.splits["train"].dropped["empty"] == 2
    assert summary.splits["train"].dropped["too long"] > 0
    assert max(split.source.lengths.max(), split.target.lengths.max()) <= 20
    source, target = corpus.tokenizers.source, corpus.tokenizers.target
    pieces = corpus.source_vocabulary.decode(split.pair(0)[0])
    kept = (s for s, t in pairs if len(source.tokenize(s)) <= 20 and len(target.tokenize(t)) <= 20)
    assert source.detokenize(pieces) == next(kept)
    assert 1 in corpus.splits["dev"].pair(0)[0]
    assert {"source.spm", "target.spm"} <= files_of(tmp_path / "data").keys()
    prepare(texts, tmp_path / "data", PrepConfig(), LANGUAGES, force=True)
    assert not {"source.spm", "target.spm"} & files_of(tmp_path / "data").keys()


def test_ten_bytes_are_as_long_as_a_token(tmp_path):
    texts = write_pairs(tmp_path, "train", [("é" * 24, "x"), ("é" * 25, "x"), (" a\t b ", "y" * 50), ("", "z")])
    summary = prepare(texts, tmp_path / "data", PrepConfig(vocabulary="bytes", max_length=5), LANGUAGES)
    corpus = Corpus.open(tmp_path / "data")
    assert (summary.splits["train"].kept, summary.splits["train"].dropped["too long"]) == (1, 2)
    assert corpus.source_vocabulary == corpus.target_vocabulary
    assert len(corpus.source_vocabulary) == 258
    assert corpus.splits["train"].pair(0)[0].tolist() == [byte + 2 for byte in " éééééééééééééééééééééééé".encode()]
    config = PrepConfig(vocabulary="bytes", max_length=0)
    assert prepare(texts, tmp_path / "all", config, LANGUAGES).splits["train"].kept == 3


def test_one_line_for_subword_sizes_that_cannot_be(tmp_path):
    texts = write_pairs(tmp_path, "train", many_pairs(30))
    for vocabulary in ("bpe", "unigram"):
        config = PrepConfig(vocabulary=vocabulary, size="5000")
        with pytest.raises(UsageError, match=r"train\.en: its text gives at most \d+$") as caught:
            prepare(texts, tmp_path / "data", config, LANGUAGES)
    largest = str(caught.value).rpartition(" ")[2]
    with pytest.raises(UsageError, match=r"too small for .+train\.en: its characters alone need \d+$"):
        prepare(texts, tmp_path / "data", PrepConfig(vocabulary="bpe", size="4"), LANGUAGES)
    prepare((texts[0], texts[0]), tmp_path / "data", PrepConfig(vocabulary="unigram", size=largest), LANGUAGES)
    assert len(Corpus.open(tmp_path / "data").source_vocabulary) == int(largest)


def test_sentencepiece_runs_no_code_of_python_in_which_an_interruption_would_become_its_error(tmp_path, monkeypatch):
    learn, iterators = SentencePieceTrainer.train, []

    def watched(*, sentence_iterator, **how):
        iterators.append(sentence_iterator)
        learn(sentence_iterator=sentence_iterator, **how)

    monkeypatch.setattr(SentencePieceTrainer, "train", watched)
    config = PrepConfig(vocabulary="bpe", size="100:120", workers=1)
    prepare(write_pairs(tmp_path, "train", many_pairs(300)), tmp_path / "data", config, LANGUAGES)
    assert [inspect.isgenerator(one) for one in iterators] == [False, False]


def test_wide_ids_where_the_vocabulary_is_large(tmp_path):
    words = [f"w{number}" for number in range(66_000)]
    pairs = [(" ".join(words[i : i + 40]), "x") for i in range(0, len(words), 40)]
    texts = write_pairs(tmp_path, "train", pairs)
    prepare(texts, tmp_path / "data", PrepConfig(vocabulary="none", shortlist="70000"), LANGUAGES)
    with h5py.File(tmp_path / "data/corpus.h5") as file:
        assert file["train/source/ids"].dtype == np.uint32
        assert file["train/target/ids"].dtype == np.uint16
    split = Corpus.open(tmp_path / "data").splits["train"]
    assert max(split.pair(i)[0].max() for i in range(len(split))) == 66_001


def test_a_failure_leaves_the_corpus_that_was_there(tmp_path):
    texts = write_pairs(tmp_path, "train", many_pairs(20))
    folder = tmp_path / "data"
    prepare(texts, folder, PrepConfig(), LANGUAGES)
    before = files_of(folder)
    bad = tmp_path / "bad.fr"
    bad.write_bytes(b"x\n" * 10 + b"\xff\n" + b"x\n" * 9)
    with pytest.raises(InputError, match=r"bad\.fr: line 11: not UTF-8"):
        prepare((texts[0], bad), folder, PrepConfig(), LANGUAGES)
    with pytest.raises(InputError, match=r"bad\.fr: line 11: not UTF-8"):
        prepare(texts, folder, PrepConfig(), LANGUAGES, dev=(texts[0], bad))
    assert files_of(folder) == before
    with pytest.raises(InputError, match="cannot read"):
        prepare((texts[0], tmp_path / "none"), tmp_path / "new", PrepConfig(), LANGUAGES)
    assert not (tmp_path / "new").exists()


def test_leftovers_of_a_killed_run_are_removed(tmp_path):
    (tmp_path / "data/.prep/new").mkdir(parents=True)
    (tmp_path / "data/.prep/new/corpus.h5").touch()
    prepare(write_pairs(tmp_path, "train", many_pairs(20)), tmp_path / "data", PrepConfig(), LANGUAGES)
    assert not (tmp_path / "data/.prep").exists()


def test_a_folder_in_which_another_process_works_is_left_alone(tmp_path):
    texts = write_pairs(tmp_path, "train", many_pairs(20))
    with folder_lock(tmp_path / "data"), pytest.raises(UsageError, match="another process is working in this folder"):
        prepare(texts, tmp_path / "data", PrepConfig(), LANGUAGES)
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        ([], "no lines; give files with text"),
        ([("", "x"), ("a", " ")], r"no pair is left \(2 empty\)$"),
        ([("a b c", "x"), ("", "")], r"\(1 empty, 1 too long\); raise max_length"),
    ],
)
def test_nothing_left(tmp_path, pairs, message):
    texts = write_pairs(tmp_path, "train", pairs)
    with pytest.raises(InputError, match=message):
        prepare(texts, tmp_path / "data", PrepConfig(max_length=2), LANGUAGES)
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize("pairs", [[], [("", "x"), ("a", " ")]])
def test_a_dev_set_without_a_pair_is_refused(tmp_path, pairs):
    texts, dev = write_pairs(tmp_path, "train", many_pairs(20)), write_pairs(tmp_path, "dev", pairs)
    with pytest.raises(InputError, match=r"dev\.fr: no pair of dev has text on both sides; give files with text$"):
        prepare(texts, tmp_path / "data", PrepConfig(), LANGUAGES, dev)
    assert not (tmp_path / "data").exists()


def test_progress_and_steps(tmp_path, monkeypatch):
    monkeypatch.setattr("nmtalign.data.pipeline.CHUNK", 8)
    texts = write_pairs(tmp_path, "train", many_pairs(20))
    counts: list[int] = []
    steps: list[str] = []
    prepare(texts, tmp_path / "data", PrepConfig(), LANGUAGES, texts, progress=counts.append, notify=steps.append)
    assert counts == [8, 16, 20]
    assert steps == ["reading dev", "reading train", "choosing the vocabularies", "writing the corpus"]


def test_a_corpus_of_other_text_settings_or_more_sets_stays_unless_forced(tmp_path):
    source, target, other = (tmp_path / name for name in ("train.en", "train.fr", "other.fr"))
    source.write_text("the fox\nthe boat\n")
    target.write_text("le renard\nle bateau\n")
    other.write_text("un renard\nun bateau\n")
    train, folder = (source, target), tmp_path / "data"
    make = partial(prepare, folder=folder, config=PrepConfig(workers=1), languages=LANGUAGES)
    make(train)
    make(train, dev=train)  # nothing is lost
    make(train, dev=train)
    (folder / "notes").write_text("mine")
    for change in (
        {"train": train},
        {"train": (source, other), "dev": train},
        {"train": train, "dev": (source, other)},
        {"train": train, "dev": train, "config": PrepConfig(workers=1, min_count=2)},
        {"train": train, "dev": train, "languages": ("en", "de")},
    ):
        before = files_of(folder)
        with pytest.raises(UsageError, match=r"data: contains a corpus .*pairs: 2 train, 2 dev\).* lost; .*--force"):
            make(**change)
        assert files_of(folder) == before
    make(train, force=True)
    assert list(Corpus.open(folder).splits) == ["train"]
    assert (folder / "notes").read_text() == "mine"
    (folder / "best.safetensors").write_bytes(b"weights")  # of a model of version 0.2, which the folder could contain
    with pytest.raises(UsageError, match="contains a model, which would lose its vocabularies"):
        make((source, other), force=True)


def test_files_that_are_no_corpus_stay(tmp_path):
    text = tmp_path / "train.en"
    text.write_text("the fox\n")
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "tokenizer.json").write_text("{}")
    with pytest.raises(UsageError, match=r"contains another tokenizer\.json"):
        prepare((text, text), folder, PrepConfig(workers=1), LANGUAGES)
    (folder / "tokenizer.json").unlink()
    (folder / "source.spm").write_text("mine")
    for _ in range(2):
        prepare((text, text), folder, PrepConfig(workers=1), LANGUAGES)
    assert (folder / "source.spm").read_text() == "mine"
    (folder / "corpus.h5").write_bytes(b"cut off")  # a damaged corpus is no loss
    prepare((text, text), folder, PrepConfig(workers=1), LANGUAGES)
