"""The dev set: loss a word, BLEU, and one translation to look at."""

from dataclasses import dataclass

import torch

from nmtalign.config import TrainingConfig
from nmtalign.core.model import TranslationModel
from nmtalign.data.batches import BatchPolicy, eligible, load_batches, make_source, plan_epoch
from nmtalign.data.corpus import Corpus, Split
from nmtalign.decoding.search import SearchOptions, beam_search
from nmtalign.scoring.metrics import Score, bleu
from nmtalign.training.events import Validated
from nmtalign.training.progress import perplexity
from nmtalign.training.state import Position

BATCH = 50  # sentences translated together


@dataclass(frozen=True)
class Validation:
    """What one look at the dev set gave."""

    nll: float
    words: int
    sentences: int
    score: Score | None
    sample: tuple[str, str, str]  # source, translation, reference


@torch.no_grad()
def validate(model: TranslationModel, corpus: Corpus, dev: Split, config: TrainingConfig, turn: int) -> Validation:
    """Loss over the dev pairs (all lengths), greedy BLEU over the first `bleu_sentences`; `turn` picks the sample."""
    training = model.training
    model.eval()
    device = model.readout.output_bias.device
    nll, words, sentences = 0.0, 0, 0
    plan = plan_epoch(dev, eligible(dev, 0), BatchPolicy(config.batch_size, config.batch_unit, 1000, "once"), 0)
    for batch in load_batches(dev, plan):
        there = batch.to(device)
        loss = model.loss(there.source, there.source_mask, there.target, there.target_mask)
        nll, words, sentences = nll + float(loss.nll), words + batch.target_words, sentences + batch.sentences
    count = min(config.bleu_sentences, len(dev))
    translations = translate_greedily(model, corpus, dev, count)
    references = [dev.target_text(index) for index in range(count)]
    score = bleu(translations, references) if count else None
    sample = ("", "", "")
    if count:
        pick = turn * 7919 % count
        sample = (dev.source_text(pick), translations[pick], references[pick])
    model.train(training)
    return Validation(nll, words, sentences, score, sample)


def translate_greedily(model: TranslationModel, corpus: Corpus, dev: Split, count: int) -> list[str]:
    """The first `count` dev sentences in the target language, as text; beam 1, `<unk>` allowed."""
    device = model.readout.output_bias.device
    texts = [""] * count
    order = sorted((index for index in range(count) if dev.source_lengths[index]), key=lambda i: dev.source_lengths[i])
    options = SearchOptions(beam=1, length_penalty=1.0, n_best=1, allow_unk=True, keep_weights=False)
    for start in range(0, len(order), BATCH):
        part = order[start : start + BATCH]
        source, mask = make_source([dev.pair(index)[0] for index in part])
        results = beam_search(model, source.to(device), mask.to(device), options)
        for index, hypotheses in zip(part, results, strict=True):
            words = corpus.target_vocabulary.decode(hypotheses[0].tokens)
            texts[index] = corpus.tokenizers.target.detokenize(words)
    return texts


def judge(seen: Validation, position: Position, config: TrainingConfig, when: tuple[int, float, float]) -> Validated:
    """Whether this is the best so far, which the position takes note of; the event that says so at `when`."""
    loss, score = seen.nll / max(1, seen.words), seen.score
    value = score.value if config.metric == "bleu" and score is not None else -loss
    best = position.best is None or value > position.best
    if best:
        position.best, position.best_loss, position.since_best = value, loss, 0
        position.best_bleu = score.value if score else None
    else:
        position.since_best += 1
    return Validated(
        *when,
        loss=loss,
        loss_sentence=seen.nll / max(1, seen.sentences),
        perplexity=perplexity(loss),
        bleu=score.value if score else None,
        signature=score.signature if score else None,
        best=best,
        patience_left=config.patience - position.since_best if config.patience else None,
        sample_source=seen.sample[0],
        sample_translation=seen.sample[1],
        sample_reference=seen.sample[2],
    )
