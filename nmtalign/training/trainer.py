"""Training a model: updates, validations, checkpoints, and resuming an interrupted run."""

import contextlib
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

import torch
from torch import Tensor

from nmtalign.core.model import Batch, Indices
from nmtalign.core.numerics import Abandoned, keeping_generators, precision_notices
from nmtalign.errors import TrainingError, UsageError
from nmtalign.files import folder_lock
from nmtalign.model_directory import BEST, LAST, read_settings, write_settings
from nmtalign.text.tokenizer import MosesWords
from nmtalign.training import checkpoints, events
from nmtalign.training.budget import SOON, BudgetAdvice, Every, TrainingBudget, count_words, learning_rate, warm_up
from nmtalign.training.checkpoints import Position
from nmtalign.training.distributed import World
from nmtalign.training.updates import TrainingSetup, seed_dropout
from nmtalign.training.validation import Validator
from nmtalign.version import __version__

BAD_IN_A_ROW = 10
_SHORT = 30.0  # seconds: a validation may take as long, also if the time limit is shorter
_RECENT = 5.0  # seconds: updates that are longer ago hardly count as recent


class Trainer:
    """Trains one model directory, or resumes an interrupted run; `stop` ends it.

    Several processes make the same calls; only rank 0 writes files and emits events. The folder is locked from the
    construction to the end of `run`. PyTorch's random generators and its number of threads are the same afterwards as
    before.
    """

    def __init__(
        self, setup: TrainingSetup, preset: str, listen: events.Listener, restart: bool = False, note: str = ""
    ) -> None:
        """`note` is reported when the training starts."""
        self._note, self._listen = note, listen
        self._stop_asked: str | None = None  # in this process
        self._stop: str | None = None  # as agreed by all processes
        self._updates_done = 0  # by this `run`, not by the runs that it resumes
        self._log: events.EventLog | None = None
        self.setup, self.world, self.config, self.folder = setup, setup.world, setup.config, setup.folder
        with contextlib.ExitStack() as lock:
            if self.world.is_main:
                lock.enter_context(folder_lock(self.folder))
            with keeping_generators(setup.device, self.config.threads):
                self._open(preset, restart)
            self._lock = lock.pop_all()

    def _open(self, preset: str, restart: bool) -> None:
        """Makes the model, and resumes the run in the folder or begins a new one, as rank 0 does.

        Raises UsageError if the corpora or the settings of the processes differ.
        """
        setup, world, notice = self.setup, self.world, partial(self._emit, events.Noticed)
        checkpoint = setup.find_run() if world.is_main and not restart else None
        setup.build(notice)
        self.position, self.resumed, self._damage = Position(), checkpoint is not None, ""
        if checkpoint:
            checkpoints.clean_folder(self.folder, checkpoint)
            checkpoints.load_state(checkpoint.path, setup.model, setup.optimizer)
            self.position, self._damage = checkpoint.position, checkpoint.damage
        elif world.is_main:
            checkpoints.create_run(self.folder, setup.corpus, preset, setup.model_config, self.config, restart)
        world.wait_for_files()
        ranks = world.all_gather((setup.fingerprint, self.resumed, self.position))
        if others := [str(rank) for rank, (fingerprint, *_) in enumerate(ranks) if fingerprint != ranks[0][0]]:
            raise UsageError(
                f"rank {', '.join(others)} has another corpus or other settings than rank 0; give all the same"
            )
        _, self.resumed, self.position = ranks[0]
        world.broadcast(setup.model, setup.optimizer)
        self.budget, self._rate = TrainingBudget(self.config), 0.0
        self._plan, self._planned = setup.plan(self.position.epoch), self.position.epoch
        words = count_words(setup.corpus)
        self._advice = BudgetAdvice(self.config, preset, words, self._updates_in_epoch, notice)
        work, dev = partial(self._emit, events.Working, "validating"), setup.corpus.splits.get("dev")
        self._validator = Validator(setup, self._ends_validation, work) if dev else None
        if self._validator and not self.position.validation_updates:
            self.position.validation_updates = self._validator.estimate(words / self._updates_in_epoch)

    @property
    def _updates_in_epoch(self) -> int:
        return math.ceil(len(self._plan) / self.config.accumulate)

    def stop(self, reason: str) -> None:
        """Ends the training with a checkpoint, after an update or within a validation; a signal handler may call it."""
        self._stop_asked = reason

    def run(self) -> events.Finished:
        """Trains until the budget is spent, progress ends, or `stop`; raises TrainingError if it cannot continue."""
        with self._lock, keeping_generators(self.setup.device, self.config.threads):
            self._start()
            if self.position.validation_due:
                self._validate()
            reason = self._reason_to_end()
            if reason is None:
                self.position.finished = None  # a finished run resumes with a larger budget
                if self.resumed and self.world.is_main:
                    settings = {**read_settings(self.folder), "training": asdict(self.config)}
                    write_settings(self.folder, settings)
                self._advise()
            while reason is None:
                reason = self._train_epoch()
            return self._finish(reason)

    def _start(self) -> None:
        """Opens the log, reports the start, and starts the clocks."""
        position, setup = self.position, self.setup
        if self.world.is_main:
            self._log = events.EventLog(self.folder, position.update, position.validation_due)
        self._emit(
            events.Started,
            resumed=self.resumed,
            parameters=sum(parameter.numel() for parameter in setup.model.parameters()),
            pairs=len(setup.chosen),
            left_out=len(setup.pairs) - len(setup.chosen),
            device=str(setup.device),
            precision="bf16" if setup.dtype else "fp32",
            threads=torch.get_num_threads(),
            version=__version__,
            torch=torch.__version__,
            seed=self.config.seed,
            processes=self.world.size,
            budget=self.budget.describe(self._updates_in_epoch, setup.patience),
        )
        if self._damage:
            self._emit(events.Damaged, self._damage)
        notices = self._note, *precision_notices(self.config.precision, setup.device), *setup.notices()
        for notice in filter(None, notices):
            self._emit(events.Noticed, notice)
        self._seconds_before = position.seconds  # of the runs that this one resumes
        self._clock = time.perf_counter() - self._seconds_before
        self._validations = Every("validate_every", self.config.validate_every, position.seconds)
        self._checkpoints = Every("checkpoint_every", self.config.checkpoint_every, position.seconds)
        self._displays = Every("displays", "1s", -math.inf)
        self._update_began, self._highest_done = time.perf_counter(), 0.0  # of the last update
        self._emit(events.Working, "computing the first update")
        self._meters: dict[type[events.Figures], Meter] = {events.Progressed: Meter(), events.Underway: Meter()}

    def _train_epoch(self) -> str | None:
        """Trains on the rest of the current epoch; returns the reason to end, if there is one."""
        position, setup = self.position, self.setup
        if self._planned != position.epoch:
            began = time.perf_counter()
            self._emit(events.Working, "planning the minibatches of an epoch")
            self._plan, self._planned = setup.plan(position.epoch), position.epoch
            self._pause(began)
        left = self._plan[position.batch :]
        batches = setup.batches(left)
        for group in setup.groups(left):
            self._update(group, batches)
            position.batch += len(group)
            if ended := position.batch == len(self._plan):
                position.epoch, position.batch = position.epoch + 1, 0
            position.seconds = time.perf_counter() - self._clock
            if position.bad_in_a_row:
                self._skip(group)
            if reason := self._after_update(ended):
                return reason
        return None

    def _update(self, group: Sequence[Indices], batches: Iterator[Batch]) -> None:
        position, self._update_began = self.position, time.perf_counter()
        self._highest_done = done = self._done()
        position.update += 1
        self.world.begin(position.update)
        self._updates_done += 1
        seed_dropout(self.config.seed, position.update, self.world.rank, self.setup.device)
        after = self.budget.done(position.update, self._epochs(len(group)), position.seconds)
        position.rise = max(position.rise, warm_up(self.config, position.update, after))
        self._rate = learning_rate(self.config, position.update, done, position.rise)
        norm, minibatches = self.setup.update(group, batches, self._rate)
        if math.isfinite(norm):
            position.bad_in_a_row = 0
            for meter in self._meters.values():
                meter.add(norm, minibatches)
        else:
            position.bad_in_a_row += 1
            position.skipped += 1

    def _after_update(self, epoch_ended: bool) -> str | None:
        """Report, validation and checkpoint, where they are due; returns the reason to end, if there is one."""
        position = self.position
        if position.update % self.config.log_every == 0:
            self._report(events.Progressed)
        spent = self._synchronise()
        if self._updates_done > 1:  # the first update of a process is slower than the others
            weight = spent / (spent + _RECENT) if position.update_seconds else 1.0
            position.update_seconds += weight * (spent - position.update_seconds)
        self._advise()
        now = position.update, position.seconds, epoch_ended
        if self._displays.due(*now):
            self._report(events.Underway)
        validates, saves = self._validations.due(*now), self._checkpoints.due(*now)
        if position.seconds + 3 * self._reserve > self.budget.seconds:
            validates = False  # it would take longer than all updates after it, and the last validation follows
        if validates:
            self._validate()
        reason = self._reason_to_end()
        if reason is None and saves and not validates:
            self._save()
        return reason

    def _skip(self, group: Sequence[Indices]) -> None:
        """Reports an update that was left out; raises TrainingError after too many in a row."""
        position = self.position
        self._emit(events.Skipped, position.bad_in_a_row)
        if position.bad_in_a_row >= BAD_IN_A_ROW:
            position.bad_in_a_row = 0
            self._save()  # the weights are those of the last good update
            pairs = ", ".join(str(index) for index in group[0][:5])
            last = f"the last time at update {position.update} with the minibatch of training pairs {pairs}, ..."
            kept = f"the last good weights are kept; {self.setup.describe_divergence(position)}"
            raise TrainingError(f"{self.folder}: the loss was not finite {BAD_IN_A_ROW} times in a row, {last}; {kept}")

    def _synchronise(self) -> float:
        """Makes the time and the request to stop the same in all processes, so that they take the same decisions.

        Returns the time since the last update began, which is also the same.
        """
        now, asked = time.perf_counter(), self._stop_asked is not None
        times = now - self._clock, now - self._update_began
        self.position.seconds, spent, stop = self.world.all_reduce([*times, asked], "max")
        if stop:
            self._stop = next(reason for reason in self.world.all_gather(self._stop_asked) if reason)
        return spent

    def _reason_to_end(self) -> str | None:
        at, limit = self.position, self.position.finished
        if limit != self.budget.time_limit:  # a used time limit stays used, even if the validation was short
            limit = self.budget.reached(at.update, self._epochs(), at.seconds, self._reserve)
        return self._stop or limit or at.patience_spent(self.setup.patience)

    def _advise(self) -> None:
        position, is_known = self.position, self.position.seconds - self._seconds_before >= SOON
        if not position.diverged:
            self._advice.check_budget(position.update, position.seconds, self._pace(), is_known)

    def _validate(self) -> None:
        """Validates on the dev set; without a dev set, the last weights count as the best.

        A checkpoint comes first: a process that is killed during the validation, or asked to stop, loses no update. A
        validation that takes as long as the time limit is given up; if it is the first one, the weights are the best.
        """
        position, result, began = self.position, None, time.perf_counter()
        if not position.validation_due:
            position.validation_due = True
            self._save()
        saved, when = time.perf_counter(), self._when()
        self._validation_ends = saved + max(_SHORT, self.budget.seconds)
        if self._validator:
            try:
                result = self._validator.validate(position.update)
            except Abandoned:
                self._synchronise()
                if self._stop is not None:
                    return
                fix = "give a larger --max-time, or a smaller dev set to nmtalign prep"
                self._emit(events.Noticed, f"the validation took longer than the time limit and was given up; {fix}")
        self._synchronise()
        if position.best_loss is None and result and result.bleu and result.bleu.too_short:
            why = "no dev sentence has the four tokens of a 4-gram: dev BLEU stays 0, the loss decides"
            self._emit(events.Noticed, why)
        position.validated, position.validation_due = position.update, False
        event = result.judge(position, self.config, when) if result else None
        if self.world.is_main and (event.best if event else position.best_loss is None):
            calibration = result.calibration() if result else ""
            path = self.folder / BEST
            checkpoints.save_weights(path, self.setup.model, position.update, self.setup.fingerprint, calibration)
        self.world.wait_for_files()
        if event:
            if not math.isfinite(event.loss):
                position.note_excess(event.loss)
            self._advice.on_dev.append(event.loss)
            self._publish(event)
        self._pause(saved)
        twice = time.perf_counter() - began + saved - began  # after the last validation comes a second checkpoint
        if position.update_seconds:
            position.validation_updates = self.world.all_reduce([twice], "max")[0] / position.update_seconds

    def _ends_validation(self) -> bool:
        return self._stop_asked is not None or time.perf_counter() > self._validation_ends

    def _save(self) -> None:
        """Writes the last weights, then the state. If this is interrupted, the previous state stays."""
        began = time.perf_counter()
        self._emit(events.Working, "saving a checkpoint")
        self._synchronise()
        if self.world.is_main:
            position, setup = self.position, self.setup
            checkpoints.save_weights(self.folder / LAST, setup.model, position.update, setup.fingerprint)
            path = checkpoints.save_state(self.folder, setup.model, setup.optimizer, position, setup.fingerprint)
            self._emit(events.Saved, str(path))
        self.world.wait_for_files()
        self._pause(began)

    def _finish(self, reason: str) -> events.Finished:
        """Makes the last validation and checkpoint; after `stop` only the checkpoint."""
        position, setup, ended_before = self.position, self.setup, self.position.finished is not None
        self._report(events.Progressed)
        self._report(events.Underway)
        if self._stop is None and not ended_before and position.validated != position.update:
            self._validate()
        complete, reason = self._stop is None, self._stop or reason
        if complete and not ended_before:
            position.finished = reason
        # A run that had ended does not change, not even its time. A validation begins with a checkpoint.
        if not (position.validation_due or ended_before):
            self._save()
        if position.diverged and not ended_before:
            self._emit(events.Noticed, setup.describe_divergence(position))
        elif complete and not ended_before and position.patience_spent(setup.patience) is None:
            self._advice.finish(position.update, position.best_bleu, setup.corpus.tokenizers.kind == MosesWords.kind)
        best = position.best_loss, position.best_bleu
        finished = events.Finished(*self._when(), reason, complete, *best, position.diverged)
        self._publish(finished)
        return finished

    def _report(self, kind: type[events.Figures]) -> None:
        """Reports the means since the last event of this kind, unless all updates since then were left out."""
        at, meter = self.position, self._meters[kind]
        if not meter.updates:
            return
        means, self._meters[kind] = meter.means(self.world), Meter()
        if kind is events.Progressed:
            self._advice.on_train.append(means["loss"])
            at.note_excess(means["loss"] - math.log(self.setup.model_config.target_vocabulary_size))
        self._emit(
            kind,
            **means,
            learning_rate=self._rate,
            done=self._done(),
            seconds_left=self.budget.seconds_left(at.update, at.seconds, self._updates_in_epoch, self._pace()),
            skipped=at.skipped,
        )

    def _pause(self, began: float) -> None:
        """Excludes the time since `began`, of a validation or of a checkpoint, from the rates of the meters."""
        for meter in self._meters.values():
            meter.paused += time.perf_counter() - began

    @property
    def _reserve(self) -> float:
        """The time of the last validation with its checkpoints, if it begins now; 0 = unknown."""
        return self.position.validation_updates * self.position.update_seconds

    def _pace(self) -> float:
        """The seconds per update of this run, with the validations and checkpoints between the updates; 0 = unknown."""
        return (self.position.seconds - self._seconds_before) / self._updates_done if self._updates_done else 0.0

    def _done(self) -> float:
        """The share of the budget for updates that is used up. It never falls, else the learning rate would rise."""
        at = self.position
        return max(self._highest_done, self.budget.done(at.update, self._epochs(), at.seconds, self._reserve))

    def _epochs(self, further: int = 0) -> float:
        """The epochs that are completed, after `further` minibatches of the current one."""
        return self.position.epoch + (self.position.batch + further) / len(self._plan)

    def _when(self) -> tuple[int, float, float]:
        return self.position.update, round(self._epochs(), 4), round(self.position.seconds, 3)

    def _emit(self, kind: type[events.Event], *values: Any, **named: Any) -> None:
        self._publish(kind(*self._when(), *values, **named))

    def _publish(self, event: events.Event) -> None:
        if self._log is not None and event.recorded:
            self._log.write(event)
        if self.world.is_main:
            self._listen(event)


class Meter:
    """Sums over the updates since the last report; the losses stay on their device until the report."""

    def __init__(self) -> None:
        self._sums: Tensor | None = None
        self._norm = self.paused = 0.0
        self._counts = [0] * 5  # source words, target words, linked words, positions, sentences
        self.updates = 0
        self._started = time.perf_counter()

    def add(self, norm: float, minibatches: Sequence[tuple[Batch, Tensor]]) -> None:
        """Adds an update: the norm of its gradient, and its minibatches with the sums of their losses.

        The sums are the negative log-likelihood and, with a guide, the cost of the attention weights (2,).
        """
        self._norm += norm
        self.updates += 1
        for batch, sums in minibatches:
            self._sums = sums if self._sums is None else self._sums + sums
            positions = batch.source.numel() + batch.target.numel()
            counts = batch.source_words, batch.target_words, batch.linked, positions, len(batch.indices)
            self._counts = [total + count for total, count in zip(self._counts, counts, strict=True)]

    def means(self, world: World) -> dict[str, Any]:
        """The means over all processes, by the names of `Figures`."""
        spent = max(1e-9, time.perf_counter() - self._started - self.paused)
        sums = [0.0] if self._sums is None else self._sums.reshape(-1).tolist()
        totals = world.all_reduce([*(*sums, 0.0)[:2], *self._counts], "sum")
        nll, guided, source_words, words, linked, positions, sentences = totals
        return {
            "loss": nll / words,
            "loss_sentence": nll / sentences,
            "perplexity": events.perplexity(nll / words),
            "alignment_loss": guided / linked if linked else None,
            "source_words_per_second": source_words / spent,
            "target_words_per_second": words / spent,
            "gradient_norm": self._norm / self.updates,
            "padding": 1 - (source_words + words) / positions,
        }
