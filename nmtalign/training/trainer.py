"""Training a model: setup, updates, validations, checkpoints, and resuming an interrupted run."""

import contextlib
import functools
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from nmtalign.core.devices import pick_device, picks_bf16, precision_notices, use_threads
from nmtalign.core.model import TranslationModel
from nmtalign.data.batches import Batch, BatchPolicy, Indices, eligible, load_batches, plan_epoch
from nmtalign.data.copy_ids import CopyIds
from nmtalign.data.corpus import Corpus
from nmtalign.data.guide import Guide, read_guide
from nmtalign.errors import Abandoned, FormatError, InputError, TrainingError, UsageError
from nmtalign.files import folder_lock, sha256_of
from nmtalign.model_files import CONFIG, recorded_weights
from nmtalign.settings.definition import SettingError
from nmtalign.settings.training_settings import ModelConfig, TrainingConfig
from nmtalign.training import events
from nmtalign.training.budget import SOON, BudgetAdvice, Every, Schedule, TrainingBudget, count_words
from nmtalign.training.checkpoints import (
    Checkpoint,
    Position,
    check_space,
    create_run,
    find_run,
    fingerprint_of,
    first_weights,
    load_first_weights,
    restore_run,
    save_best,
    save_last,
    save_state,
)
from nmtalign.training.distributed import World
from nmtalign.training.events import Event, EventLog, Figures, Finished, Listener, Progressed, Started, Underway
from nmtalign.training.optimizers import make_optimizer
from nmtalign.training.updates import MinibatchGroup, UpdateOutcome, Updater, cut_groups, seed_dropout
from nmtalign.training.validation import Validator, judge, tokenizer_of
from nmtalign.version import __version__

BAD_IN_A_ROW = 10


class TrainingSetup:
    """What a training needs before its first update. `build` makes the large parts; no file is written.

    The vocabulary sizes of the model are those of the corpus.
    """

    def __init__(
        self, corpus: Corpus, folder: Path, model_config: ModelConfig, config: TrainingConfig, world: World
    ) -> None:
        """Raises UsageError, InputError or FormatError for settings and files that do not fit the corpus."""
        use_threads(config.threads)
        self.corpus, self.folder, self.config, self._world = corpus, folder, config, world
        self.device = world.device
        self.patience = config.patience if len(corpus.splits.get("dev") or ()) else 0  # without dev, nothing is judged
        self.bf16 = picks_bf16(config.precision, world.device)
        sizes = len(corpus.source_vocabulary), len(corpus.target_vocabulary)
        one = model_config.shared_embeddings and corpus.source_vocabulary == corpus.target_vocabulary
        self.model_config = replace(
            model_config, source_vocabulary_size=sizes[0], target_vocabulary_size=sizes[1], one_embedding=one
        )
        self._read_given_files()
        self.fingerprint = fingerprint_of(corpus, self.model_config, config, self.given)
        self.pairs = corpus.splits["train"]
        self.chosen = eligible(self.pairs, corpus.tokenizers.most_tokens(config.max_length))
        if not len(self.chosen):
            raise InputError(f"{corpus.folder}: no training pair within max_length = {config.max_length}")
        self._policy = BatchPolicy(config.batch_size, config.batch_unit, config.window, config.shuffle, config.seed)
        self._copies = CopyIds(corpus, self.pairs) if model_config.copy else None
        # Adds the guide, and the ids of a copying model, to each batch; None if there is nothing to add.
        self.complete = None if self.guide is None and self._copies is None else self._complete

    def _read_given_files(self) -> None:
        """Reads the links and finds the weights with which the training begins; both must fit corpus and model.

        `given` are their SHA-256 by setting: a run resumes only with the same files. If the model with the first
        weights is gone, the training can only resume.
        """
        config, self.given = self.config, dict[str, str]()
        self.guide: Guide | None = None
        self._first_weights: Path | None = None
        if config.guided_alignment:
            if self.model_config.attention == "none":
                rule, given = "links can guide only a model with attention", config.guided_alignment
                raise SettingError(rule, guided_alignment=given, attention=self.model_config.attention)
            self.guide = read_guide(Path(config.guided_alignment), self.corpus)
            self.given["guided_alignment"] = self.guide.hash
        if config.init_from and (recorded := recorded_weights(self.folder, Path(config.init_from))):
            self.given["init_from"] = recorded
        elif config.init_from:
            self._first_weights = first_weights(Path(config.init_from), self.corpus, self.model_config)
            self.given["init_from"] = sha256_of(self._first_weights)

    def check_beginning(self) -> None:
        """Raises FormatError if a new training needs a model that is gone."""
        if self.config.init_from and self._first_weights is None:
            raise FormatError(
                f"{self.config.init_from}: no nmtalign model here (no {CONFIG}), and {self.folder} has no checkpoint "
                "to resume; put the model back"
            )

    def _complete(self, batch: Batch) -> Batch:
        batch = batch if self.guide is None else self.guide(batch)
        return batch if self._copies is None else self._copies(batch)

    def find_run(self) -> Checkpoint | None:
        """The checkpoint from which the run in the folder resumes; raises UsageError if it contains another run."""
        return find_run(self.folder, self.fingerprint, self.corpus, self.model_config, self.config)

    def build(self, notice: Callable[[str], None]) -> None:
        """Makes the model with its first weights, the optimiser and the updater; `notice` is that of `Updater`."""
        torch.manual_seed(self.config.seed)
        self.model = TranslationModel(self.model_config)
        if self._first_weights:
            load_first_weights(self._first_weights, self.model)
        self.model.to(self.device)
        self.dtype = torch.bfloat16 if self.bf16 else None
        self.optimizer = make_optimizer(self.model.parameters(), self.config)
        self.updater = Updater(self.model, self.optimizer, self.config, self._world, notice, self.dtype)

    def notices(self) -> list[str]:
        """What a user should know before the first update: why it is slow on its device, and how links were read."""
        return [
            *precision_notices(self.config.precision, self.device),
            *([self.guide.note] if self.guide and self.guide.note else []),
        ]

    def describe_divergence(self, position: Position) -> str:
        """Reports that a training has diverged, and what to do, in one line."""
        text = "the training has diverged"
        if position.diverged and position.excess is not None and position.lowest_excess is not None:
            above = position.excess > 0
            nats = position.excess if above else position.excess - position.lowest_excess
            than = "that of guessing" if above else "its lowest value"
            text += f": the loss is {nats:,.1f} nats per word above {than}"
        text += f"; lower --learning-rate (it was {self.config.learning_rate:g}) and train anew with --force"
        guessing = math.log(self.model_config.target_vocabulary_size)
        if position.best_update >= 0 and position.best_loss is not None and position.best_loss < guessing:
            text += f"; the best weights, of update {position.best_update} with dev loss "
            text += f"{position.best_loss:.3f}, are kept"
        return text

    def plan(self, epoch: int) -> Sequence[Indices]:
        """The minibatches of an epoch; this takes seconds for millions of pairs."""
        return plan_epoch(self.pairs, self.chosen, self._policy, epoch)


class Trainer:
    """Trains one model directory, or resumes an interrupted run; `stop` ends it.

    Several processes make the same calls; only rank 0 writes files and emits events. The folder is locked from the
    construction to the end of `run`; `close` unlocks it for a trainer that is not run.
    """

    def __init__(
        self,
        corpus: Corpus,
        folder: Path,
        preset: str,
        model_config: ModelConfig,
        config: TrainingConfig,
        listen: Listener,
        restart: bool = False,
        world: World | None = None,
    ) -> None:
        self.corpus, self.folder, self.config, self._listen = corpus, folder, config, listen
        self._stop_asked: str | None = None  # in this process
        self._stop: str | None = None  # as agreed by all processes
        self.updates_done = 0  # by this `run`, not by the runs that it resumes
        self._log: EventLog | None = None
        self.world = world or World(pick_device(config.device))
        self.device = self.world.device
        self.lag = int(self.device.type == "cuda")  # updates whose outcome the host does not wait for
        self.setup = TrainingSetup(corpus, folder, model_config, config, self.world)
        with contextlib.ExitStack() as lock:
            if self.world.is_main:
                lock.enter_context(folder_lock(folder))
            self._open(preset, restart)
            self._lock = lock.pop_all()

    def close(self) -> None:
        """Unlocks the folder for other trainings."""
        self._lock.close()

    def _open(self, preset: str, restart: bool) -> None:
        """Makes the model, and resumes the run in the folder or begins a new one."""
        setup = self.setup
        found = setup.find_run() if self.world.is_main and not restart else None
        setup.build(self._notice)
        self.model, self.optimizer = setup.model, setup.optimizer
        self.position, self.resumed, self._damage = Position(), found is not None, ""
        if self.world.is_main:
            check_space(self.folder, self.model)
        if found:
            self.position, self._damage = (
                restore_run(self.folder, found, self.model, self.optimizer),
                found.damage or "",
            )
        elif self.world.is_main:
            setup.check_beginning()
            create_run(self.folder, self.corpus, preset, setup.model_config, self.config, restart, setup.given)
            self.position.tokenizer = tokenizer_of(self.corpus)
        self._join_others()
        self.budget = TrainingBudget.of(self.config)
        self._schedule = Schedule(self.config, self.budget, self._notice)
        self._planned = self.position.epoch, setup.plan(self.position.epoch)
        self._batches_in_epoch = len(self._planned[1])
        self._updates_in_epoch = math.ceil(self._batches_in_epoch / self.config.accumulate)
        words = count_words(self.corpus)
        self._advice = BudgetAdvice(self.config, preset, words, self._updates_in_epoch, self._notice)
        asked, work = (lambda: self._stop_asked is not None), functools.partial(self._work, "validating")
        parts = self.model, self.corpus, self.config, setup.dtype, self.world, asked, work
        self._validator = Validator(*parts) if len(self.corpus.splits.get("dev") or ()) else None
        self._uncounted: list[tuple[int, UpdateOutcome]] = []  # by the number of the update

    def _join_others(self) -> None:
        """Begins where rank 0 begins; raises UsageError if the corpora or the settings of the processes differ."""
        ranks = self.world.all_gather((self.setup.fingerprint, self.resumed, self.position))
        if others := [str(rank) for rank, (fingerprint, *_) in enumerate(ranks) if fingerprint != ranks[0][0]]:
            raise UsageError(
                f"rank {', '.join(others)} has another corpus or other settings than rank 0; give all the same"
            )
        _, self.resumed, self.position = ranks[0]
        self.world.broadcast(self.model, self.optimizer)

    def stop(self, reason: str) -> None:
        """Ends the training with a checkpoint, after an update or within a validation; a signal handler may call it."""
        self._stop_asked = reason

    def run(self) -> Finished:
        """Trains until the budget is spent, progress ends, or `stop`; raises TrainingError if it cannot continue."""
        with self._lock:
            self._start()
            if self.position.validation_due:
                self._validate()
            reason = self._reason_to_end()
            if reason is None:
                self.position.finished = None  # a finished run resumes with a larger budget
                self._advise()
            while reason is None:
                reason = self._train_epoch()
            return self._finish(reason)

    def _start(self) -> None:
        """Opens the log, reports the start, and starts the clocks."""
        position, setup = self.position, self.setup
        self._log = EventLog(self.folder, position.update, position.validation_due) if self.world.is_main else None
        self._emit(
            Started(
                *self._when(),
                resumed=self.resumed,
                parameters=sum(parameter.numel() for parameter in self.model.parameters()),
                pairs=len(setup.chosen),
                left_out=len(setup.pairs) - len(setup.chosen),
                device=str(self.device),
                precision="bf16" if setup.bf16 else "fp32",
                threads=torch.get_num_threads(),
                version=__version__,
                torch=torch.__version__,
                seed=self.config.seed,
                processes=self.world.size,
                budget=self.budget.describe(self._updates_in_epoch, setup.patience),
            )
        )
        if self._damage:
            self._emit(events.Damaged(*self._when(), self._damage))
        for notice in setup.notices():
            self._notice(notice)
        self._clock, self._began_at = time.perf_counter() - position.seconds, position.seconds
        self._validations = Every("validate_every", self.config.validate_every, position.seconds)
        self._checkpoints = Every("checkpoint_every", self.config.checkpoint_every, position.seconds)
        self._displays = Every("displays", "1s", -math.inf)
        self._work("computing the first update")
        self.model.train()
        self._meters, self._pace = (Meter(Progressed), Meter(Underway)), Pace(position.seconds)

    def _train_epoch(self) -> str | None:
        """Trains on the rest of the current epoch; returns the reason to end, if there is one."""
        train, position, plan = self.setup.pairs, self.position, self._plan()
        self._batches_in_epoch = len(plan)
        left = plan[position.batch :]
        shares = self.setup.updater.shares(left)
        batches = load_batches(train, shares, self.device.type == "cuda", self.setup.complete)
        for group in cut_groups(train, left, self.config.accumulate):
            self._update(group, batches)
            position.batch += len(group.plan)
            if ended := position.batch == len(plan):
                position.epoch, position.batch = position.epoch + 1, 0
            if reason := self._after_update(ended):
                return reason
        return None

    def _plan(self) -> Sequence[Indices]:
        """The minibatches of the current epoch, planned once, because this takes seconds for millions of pairs."""
        epoch = self.position.epoch
        if self._planned[0] != epoch:
            began = time.perf_counter()
            self._work("planning the minibatches of an epoch")
            self._planned = epoch, self.setup.plan(epoch)
            self._pause(began)
        return self._planned[1]

    def _update(self, group: MinibatchGroup, batches: Iterator[Batch]) -> None:
        """Makes one update, unless its gradient is not finite."""
        position, done = self.position, self._done()
        position.update += 1
        self.world.begin(position.update)
        self.updates_done += 1
        self._pace.begin(position.seconds)
        seed_dropout(self.config.seed, position.update, self.world.rank, self.device)
        rate = self._schedule.rate(position, done, self._batches_in_epoch)
        self._uncounted.append((position.update, self.setup.updater.update(group, batches, rate)))

    def _after_update(self, epoch_ended: bool) -> str | None:
        """Report, validation and checkpoint, where they are due; returns the reason to end, if there is one."""
        position, before = self.position, self.position.seconds
        position.seconds = time.perf_counter() - self._clock
        self._count(self.lag)
        if position.update % self.config.log_every == 0:
            self._count()
            self._report(Progressed)
        self._synchronise()
        self._schedule.measure(position.seconds - before)
        self._advise()
        now = position.update, position.seconds, epoch_ended
        if self._displays.due(*now):
            self._report(Underway)
        validates, saves = self._validations.due(*now), self._checkpoints.due(*now)
        if validates:
            self._validate()
        reason = self._reason_to_end()
        if reason is None and saves and not validates:
            self._save()
        return reason

    def _count(self, lag: int = 0) -> None:
        """Counts the updates except the last `lag`, which a GPU may still be computing."""
        while len(self._uncounted) > lag:
            update, outcome = self._uncounted.pop(0)
            if math.isfinite(outcome.norm):
                self.position.bad_in_a_row = 0
                for meter in self._meters:
                    meter.add(outcome.norm, outcome.minibatches)
            else:
                self._skip(update, outcome.group)

    def _skip(self, update: int, group: MinibatchGroup) -> None:
        """Counts an update that was left out; raises TrainingError after too many in a row."""
        position = self.position
        position.skipped += 1
        position.bad_in_a_row += 1
        self._emit(events.Skipped(update, *self._when()[1:], position.bad_in_a_row))
        if position.bad_in_a_row >= BAD_IN_A_ROW:
            position.bad_in_a_row = 0
            self._uncounted.clear()
            self._save()  # the weights are those of the last good update
            pairs = ", ".join(str(index) for index in group.plan[0][:5])
            where = f"the last time at update {update} with the minibatch of training pairs {pairs}, ..."
            kept = f"the last good weights are kept; {self.setup.describe_divergence(position)}"
            raise TrainingError(
                f"{self.folder}: the loss was not finite {BAD_IN_A_ROW} times in a row, {where}; {kept}"
            )

    def _synchronise(self) -> None:
        """Makes the time and the request to stop the same in all processes, so that they take the same decisions."""
        elapsed = time.perf_counter() - self._clock
        self.position.seconds, stop = self.world.all_reduce_max([elapsed, self._stop_asked is not None])
        if stop:
            self._stop = next(reason for reason in self.world.all_gather(self._stop_asked) if reason)

    def _reason_to_end(self) -> str | None:
        limit = self.budget.reached(self.position.update, self._epochs(), self.position.seconds)
        return self._stop or limit or self._patience_spent()

    def _patience_spent(self) -> str | None:
        patience = self.setup.patience
        if patience and self.position.since_best >= patience:
            return f"no progress on dev in {patience} validations"
        return None

    def _advise(self) -> None:
        """Reports a budget that is too small."""
        position, is_known = self.position, self.position.seconds - self._began_at >= SOON
        if not position.diverged:
            self._advice.check_budget(
                position.update, position.seconds, self._schedule.update_seconds(position), is_known
            )

    def _validate(self) -> None:
        """Validates on the dev set; without a dev set, the last weights count as the best.

        A checkpoint comes first: a process that is killed during the validation, or asked to stop, loses no update.
        """
        self._count()
        position, found = self.position, None
        if not position.validation_due:
            position.validation_due = True
            self._save()
        began, when = time.perf_counter(), self._when()
        if self._validator:
            try:
                found = self._validator.validate(position)
            except Abandoned:
                self._synchronise()
                return
        self._synchronise()
        if position.best is None and found and found.score and found.score.too_short:
            self._notice("no dev sentence has the four tokens of a 4-gram: dev BLEU stays 0, and the loss decides")
        position.validated, position.validation_due = position.update, False
        event = judge(found, position, self.config, when) if found else None
        if self.world.is_main and (event is None or event.best):
            calibration = found.calibration() if found else ""
            save_best(self.folder, self.model, position.update, self.setup.fingerprint, calibration)
        if event:
            self._advice.add_loss(event.loss, on_dev=True)
            self._emit(event)
        self._pause(began)

    def _save(self) -> None:
        """Writes the last weights, then the state. If this is interrupted, the previous state stays."""
        began = time.perf_counter()
        self._work("saving a checkpoint")
        self._count()
        self._synchronise()
        if self.world.is_main:
            save_last(self.folder, self.model, self.position.update, self.setup.fingerprint)
            path = save_state(self.folder, self.model, self.optimizer, self.position, self.setup.fingerprint)
            self._emit(events.Saved(*self._when(), str(path)))
        self.world.all_reduce_max([0.0])  # waits for rank 0
        self._pause(began)

    def _finish(self, reason: str) -> Finished:
        """Makes the last validation and checkpoint; after `stop` only the checkpoint."""
        position, ended_before = self.position, self.position.finished is not None
        self._count()
        self._report(Progressed)
        self._report(Underway)
        if self._stop is None and not ended_before and position.validated != position.update:
            self._validate()
        complete, reason = self._stop is None, self._stop or reason
        if complete and not ended_before:
            position.finished = reason
        # Else nothing changes, not even its time; of a validation that was interrupted, the checkpoint is there.
        if not position.validation_due and (not ended_before or self._damage):
            self._save()
        if position.diverged and not ended_before:
            self._notice(self.setup.describe_divergence(position))
        elif complete and not ended_before and self._patience_spent() is None:
            self._advice.finish(position.update, position.best_bleu)
        best = position.best_loss, position.best_bleu
        self._emit(finished := Finished(*self._when(), reason, complete, *best, position.diverged))
        return finished

    def _report(self, kind: type[Figures]) -> None:
        """Reports the means since the last event of this kind, unless all updates since then were left out."""
        at, meter = self.position, next(meter for meter in self._meters if meter.kind is kind)
        if not meter:
            return
        pace = self._pace.seconds_per_update(at.seconds)
        left = self.budget.seconds_left(at.update, at.seconds, self._updates_in_epoch, pace)
        event = meter.report(self._when(), self.world, self._schedule.last_rate, self._done(), left, at.skipped)
        if kind is Progressed:
            self._advice.add_loss(event.loss, on_dev=False)
            at.note_excess(event.loss - math.log(self.setup.model_config.target_vocabulary_size))
        self._emit(event)

    def _pause(self, began: float) -> None:
        """Excludes the time since `began` from the rates of the meters."""
        for meter in self._meters:
            meter.pause(time.perf_counter() - began)

    def _done(self) -> float:
        return self.budget.done(self.position.update, self._epochs(), self.position.seconds)

    def _epochs(self) -> float:
        return self.position.epoch + self.position.batch / self._batches_in_epoch

    def _when(self) -> tuple[int, float, float]:
        return self.position.update, round(self._epochs(), 4), round(self.position.seconds, 3)

    def _notice(self, text: str) -> None:
        self._emit(events.Noticed(*self._when(), text))

    def _work(self, doing: str, done: float | None = None) -> None:
        self._emit(events.Working(*self._when(), doing, done))

    def _emit(self, event: Event) -> None:
        if self._log is not None and event.recorded:
            self._log.write(event)
        if self.world.is_main:
            self._listen(event)


class Meter:
    """Sums over the updates since the last report; the losses stay on their device until the report."""

    def __init__(self, kind: type[Figures]) -> None:
        """`kind` is the event that it reports."""
        self.kind = kind
        self._reset()

    def _reset(self) -> None:
        self._sums: Tensor | None = None
        self._norm = 0.0
        self._source_words = self._words = self._linked = self._positions = self._sentences = self._updates = 0
        self._paused = 0.0
        self._started = time.perf_counter()

    def pause(self, seconds: float) -> None:
        """Excludes the time of validation or of a checkpoint from the rates."""
        self._paused += seconds

    def add(self, norm: float, minibatches: Sequence[tuple[Batch, Tensor]]) -> None:
        """Adds an update: the norm of its gradient, and its minibatches with the sums of their losses.

        The sums are the negative log-likelihood and, with a guide, the cost of the attention weights (2,).
        """
        self._norm += norm
        self._updates += 1
        for batch, sums in minibatches:
            self._sums = sums if self._sums is None else self._sums + sums
            self._source_words += batch.source_words
            self._words += batch.target_words
            self._linked += batch.linked
            self._positions += batch.source.numel() + batch.target.numel()
            self._sentences += batch.sentences

    def __bool__(self) -> bool:
        return self._updates > 0

    def report(
        self,
        when: tuple[int, float, float],
        world: World,
        learning_rate: float,
        done: float,
        seconds_left: float | None,
        skipped: int,
    ) -> Figures:
        """The means over all processes, as an event at (update, epoch, seconds); starts again at zero."""
        spent = max(1e-9, time.perf_counter() - self._started - self._paused)
        sums = [0.0] if self._sums is None else self._sums.reshape(-1).tolist()
        counts = [self._source_words, self._words, self._linked, self._positions, self._sentences]
        totals = world.all_reduce_sum([*(*sums, 0.0)[:2], *counts])
        nll, guided, source_words, words, linked, positions, sentences = totals
        event = self.kind(
            *when,
            loss=nll / words,
            loss_sentence=nll / sentences,
            perplexity=events.perplexity(nll / words),
            alignment_loss=guided / linked if linked else None,
            source_words_per_second=source_words / spent,
            target_words_per_second=words / spent,
            gradient_norm=self._norm / self._updates,
            learning_rate=learning_rate,
            padding=1 - (source_words + words) / positions,
            done=done,
            seconds_left=seconds_left,
            skipped=skipped,
        )
        self._reset()
        return event


class Pace:
    """The seconds per update of this run, with the validations and checkpoints between the updates."""

    def __init__(self, elapsed: float) -> None:
        """The run begins after this training time, which is that of the runs that it resumes."""
        self._updates, self._since = 0, elapsed

    def begin(self, elapsed: float) -> None:
        """An update begins. The first one takes longer: it is left out as soon as there is another."""
        self._updates += 1
        if self._updates == 2:
            self._since = elapsed

    def seconds_per_update(self, elapsed: float) -> float:
        """The pace until now."""
        return (elapsed - self._since) / max(1, self._updates - 1)
