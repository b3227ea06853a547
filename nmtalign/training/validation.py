"""Validation on the dev set: loss per word, BLEU, and one translation as a sample."""

import contextlib
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import torch

from nmtalign.core.inference import Inference
from nmtalign.core.model import TranslationModel
from nmtalign.data.batches import BatchPolicy, Ids, Indices, eligible, load_batches, make_source, plan_epoch
from nmtalign.data.copy_ids import CopyIds
from nmtalign.data.corpus import Corpus, Split
from nmtalign.errors import Abandoned, abandoned_if
from nmtalign.scoring.measuring import bleu, measure
from nmtalign.scoring.metrics import MetricOptions, Score, tokenizer_for
from nmtalign.search.beam_search import SearchOptions, beam_search
from nmtalign.search.scorer import ModelScorer
from nmtalign.settings.training_settings import TrainingConfig
from nmtalign.text.vocabulary import pair_ids
from nmtalign.training.directions import Direction
from nmtalign.training.distributed import World
from nmtalign.training.events import Validated, perplexity
from nmtalign.training.state import Position
from nmtalign.translating.confidence import Calibration, mean_probability

BATCH = 50  # sentences translated together
AS_SLOW = 5  # translating a sentence takes about as long as computing the loss of this number of pairs
Progress = Callable[[float], None]  # called with the share of the work that is done, 0 to 1
T = TypeVar("T")


class StopWatch:
    """Ends a validation in all processes soon after one of them was asked to stop."""

    def __init__(self, world: World, asked: Callable[[], bool]) -> None:
        """`asked` returns whether this process was asked to stop."""
        self.world, self.asked = world, asked

    def in_step(self, parts: Iterable[T], count: int) -> Iterator[T]:
        """Yields the `count` parts of this process; before each and after the last, all processes agree to continue.

        Raises Abandoned in all of them if one was asked to stop. They may have different numbers of parts.
        """
        rest = iter(parts)
        for number in range(int(self.world.highest([count])[0]) + 1):
            if self.world.highest([self.asked()])[0]:
                raise Abandoned
            if number < count:
                yield next(rest)


@dataclass(frozen=True)
class Validation:
    """The results of one validation."""

    nll: float
    words: int
    sentences: int
    score: Score | None
    sample: tuple[str, str, str]  # source, translation, reference
    probabilities: Sequence[float] = ()  # of the translations (see nmtalign.translating.confidence)
    translations: Sequence[str] = ()
    references: Sequence[str] = ()

    def calibration(self) -> str:
        """The calibration of the confidence by the chrF of each translation, for the file of the weights; may be ""."""
        if not self.translations:
            return ""
        options = MetricOptions(("chrf",))
        (chrf,) = measure(self.translations, [self.references], options, processes=1)
        return str(Calibration.fit(self.probabilities, np.clip(chrf.values(chrf.rows) / 100, 0, 1).tolist()) or "")

    @property
    def loss(self) -> float:
        """Nats per word."""
        return self.nll / max(1, self.words)

    def value(self, config: TrainingConfig) -> float:
        """The value that is compared with other validations; higher is better."""
        return self.score.value if config.metric == "bleu" and self.score is not None else -self.loss


def tokenizers_of(directions: Sequence[Direction]) -> str:
    """The tokeniser of dev BLEU for each direction, by its target language, for `Position`."""
    names = []
    for corpus in (direction.corpus for direction in directions):
        dev = corpus.splits.get("dev")
        lines = [dev.target_text(index) for index in range(min(len(dev), 100))] if dev else []
        names.append(tokenizer_for(corpus.target_language, lines))
    return " ".join(names)


def validate_all(
    directions: Sequence[Direction],
    config: TrainingConfig,
    position: Position,
    watch: StopWatch,
    dtype: torch.dtype | None,
    work: Progress,
) -> list[Validation] | None:
    """Validates the models of all directions; the update selects the sample.

    Returns no validations without a dev set, and None if a process was asked to stop.
    """
    seen: list[Validation] = []

    def progress(done: float) -> None:
        work((len(seen) + done) / len(directions))

    for direction, tokenize in zip(directions, position.tokenizers.split(), strict=False):
        model, corpus = direction.model, direction.corpus
        if not len(corpus.splits.get("dev") or ()):
            continue
        progress(0.0)
        try:
            seen.append(validate(model, corpus, config, position.update, watch, tokenize, dtype, progress))
        except Abandoned:
            return None
    return seen


@torch.no_grad()
def validate(
    model: TranslationModel,
    corpus: Corpus,
    config: TrainingConfig,
    turn: int,
    watch: StopWatch,
    tokenize: str,
    dtype: torch.dtype | None,
    progress: Progress,
) -> Validation:
    """Loss of all dev pairs, and greedy BLEU of the first `bleu_sentences`; `turn` selects the sample.

    `tokenize` is sacreBLEU's tokeniser.

    Each process computes a part of the sentences; all receive the complete result.
    """
    training, dev = model.training, corpus.splits["dev"]
    model.eval()
    translating = AS_SLOW * min(config.bleu_sentences, len(dev))
    first = len(dev) / (len(dev) + translating)  # share of the loss in the work
    complete = CopyIds(corpus, dev) if model.config.copy else None
    own = _loss(model, dev, config, watch, dtype, lambda done: progress(first * done), complete)
    nll, words, sentences = watch.world.sum(own)
    # A model that has diverged has no best word; the training loop notices this itself.
    count = min(config.bleu_sentences, len(dev)) if math.isfinite(nll) else 0
    translations, probabilities = translate_greedily(
        model, corpus, dev, count, watch, lambda done: progress(first + (1 - first) * done)
    )
    references = [dev.target_text(index) for index in range(count)]
    score = bleu(translations, references, tokenize=tokenize) if count else None
    sample = ("", "", "")
    if count:
        pick = turn * 7919 % count
        sample = (dev.source_text(pick), translations[pick], references[pick])
    model.train(training)
    return Validation(nll, int(words), int(sentences), score, sample, probabilities, translations, references)


def _loss(
    model: TranslationModel,
    dev: Split,
    config: TrainingConfig,
    watch: StopWatch,
    dtype: torch.dtype | None,
    progress: Progress,
    complete: CopyIds | None,
) -> tuple[float, int, int]:
    """(negative log-likelihood, target words, sentences) of this process' part of the dev set."""
    nll, words, sentences = 0.0, 0, 0
    mine = watch.world.share(_by_length(dev, eligible(dev, 0)))
    policy = BatchPolicy(config.batch_size, config.batch_unit, 1000, "once")
    plan = plan_epoch(dev, mine, policy, 0) if len(mine) else []
    for batch in watch.in_step(load_batches(dev, plan, complete=complete), len(plan)):
        loss = model.loss(*batch.to(watch.world.device).inputs(), dtype=dtype)
        nll, words, sentences = nll + float(loss.nll), words + batch.target_words, sentences + batch.sentences
        progress(sentences / len(mine))
    return nll, words, sentences


def _by_length(dev: Split, indices: Indices) -> Indices:
    order: Indices = indices[np.argsort(dev.source_lengths[indices], kind="stable")]
    return order


def translate_greedily(
    model: TranslationModel, corpus: Corpus, dev: Split, count: int, watch: StopWatch, progress: Progress
) -> tuple[list[str], list[float]]:
    """The first `count` dev sentences in the target language, as text, and the mean probability of each.

    Beam 1, `<unk>` allowed. An empty sentence has an empty translation.
    """
    order = _by_length(dev, np.flatnonzero(dev.source_lengths[:count]))
    options = SearchOptions(beam=1, allow_unk=True)
    scorer, world = ModelScorer(Inference(model)), watch.world
    mine, found, means = world.share(order), [], []
    starts = range(0, len(mine), BATCH)
    for start in watch.in_step(starts, len(starts)):
        progress(start / len(mine))
        part = mine[start : start + BATCH]
        copy = model.config.copy
        tokens, ids, copied = zip(*(_source(corpus, dev, int(index), copy) for index in part), strict=True)
        source, mask = (each.to(world.device) for each in make_source(ids))
        copies = make_source(copied)[0].to(world.device) if copy else None
        with contextlib.suppress(Abandoned), abandoned_if(watch.asked):  # all processes stop before the next batch
            for own, hypotheses in zip(tokens, beam_search(scorer, source, mask, options, copies=copies), strict=True):
                words = corpus.target_vocabulary.decode(hypotheses[0].tokens, own)
                found.append(corpus.tokenizers.target.detokenize(words))
                means.append(repr(mean_probability(hypotheses[0])))
    texts, probabilities = [""] * count, [1.0] * count
    for rank, (translations, own) in enumerate(zip(world.gather(found), world.gather(means), strict=True)):
        for index, text, probability in zip(order[rank :: world.size], translations, own, strict=True):
            texts[index], probabilities[index] = text, float(probability)
    return texts, probabilities


def _source(corpus: Corpus, dev: Split, index: int, copy: bool) -> tuple[Sequence[str], Ids, Ids]:
    """(tokens, ids, copied ids) of a source sentence; a model that does not copy needs only the ids."""
    if not copy:
        return (), dev.pair(index)[0], ()
    tokens = corpus.tokenizers.source.tokenize(dev.source_text(index))
    ids, _, copied = pair_ids((corpus.source_vocabulary, corpus.target_vocabulary), tokens, copy=True)
    return tokens, ids, copied


def judge(
    validations: Sequence[Validation], position: Position, config: TrainingConfig, when: tuple[int, float, float]
) -> Validated:
    """Records in the position whether this validation is the best so far; returns its event at `when`.

    With both directions the sum of their values counts; best_loss and best_bleu are those of the first one. If BLEU is
    equal, as at the beginning, where it is 0, the lower loss is better.
    """
    first, *others = validations
    loss, score = first.loss, first.score
    value = sum(each.value(config) for each in validations)
    least = math.inf if position.best_loss is None else position.best_loss
    best = math.isfinite(value) and (position.best is None or (value, -loss) > (position.best, -least))
    if best:
        position.best, position.best_loss, position.since_best = value, loss, 0
        position.best_update = position.update
        position.best_bleu = score.value if score else None
    else:
        position.since_best += 1
    return Validated(
        *when,
        loss=loss,
        loss_sentence=first.nll / max(1, first.sentences),
        perplexity=perplexity(loss),
        bleu=score.value if score else None,
        signature=score.signature if score else None,
        best=best,
        patience_left=config.patience - position.since_best if config.patience else None,
        sample_source=first.sample[0],
        sample_translation=first.sample[1],
        sample_reference=first.sample[2],
        backward_loss=others[0].loss if others else None,
        backward_bleu=others[0].score.value if others and others[0].score else None,
    )


def describe_average(updates: str, found: Validated) -> str:
    """The result of the validation of averaged weights, in one line; `updates` are those of the weights."""
    bleu = "" if found.bleu is None else f", BLEU {found.bleu:.2f}"
    verdict = "the best, and kept" if found.best else "not better than the best"
    return f"mean of the weights of updates {updates}: dev loss {found.loss:.3f}{bleu}; {verdict}"
