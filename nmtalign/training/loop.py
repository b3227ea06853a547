"""The training loop: updates, validation, checkpoints, and resuming an interrupted run."""

import contextlib
import copy
import functools
import json
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

from nmtalign.core.devices import pick_device
from nmtalign.data.batches import Batch, Indices, load_batches
from nmtalign.data.corpus import Corpus
from nmtalign.errors import TrainingError, UsageError
from nmtalign.files import alone_in
from nmtalign.settings.training_settings import ModelConfig, TrainingConfig
from nmtalign.training import events
from nmtalign.training.budget import SOON, BudgetAdvice, Every, Schedule, TrainingBudget
from nmtalign.training.directions import Checkpoints, lay_down
from nmtalign.training.distributed import World
from nmtalign.training.events import Event, EventLog, Figures, Finished, Listener, Progressed, Underway
from nmtalign.training.fit import count_words
from nmtalign.training.meters import Meters
from nmtalign.training.setup import TrainingSetup
from nmtalign.training.state import Position
from nmtalign.training.updates import MinibatchGroup, UpdateOutcome, cut_groups, seed_dropout
from nmtalign.training.validation import StopWatch, describe_average, judge, tokenizers_of, validate_all

BAD_IN_A_ROW = 10


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
            if self.world.first:
                lock.enter_context(alone_in(folder))
            self._open(preset, restart)
            self._lock = lock.pop_all()

    def close(self) -> None:
        """Unlocks the folder for other trainings."""
        self._lock.close()

    def _open(self, preset: str, restart: bool) -> None:
        """Makes the model, and resumes the run in the folder or begins a new one."""
        setup = self.setup
        found = setup.found() if self.world.first and not restart else None
        setup.build(self._notice)
        self.model, self.optimizer, self.directions = setup.model, setup.optimizer, setup.directions
        self.position, self.resumed, self._damage = Position(), found is not None, ""
        if self.world.first:
            parts = self.directions, self.model, self.optimizer, setup.fingerprint, self.config.average
            self._files = Checkpoints(*parts)
        if found:
            self.position, self._damage = self._files.resume(found), found.damage or ""
        elif self.world.first:
            setup.given.check_beginning(self.config, self.folder)
            lay_down(self.directions, preset, self.config, restart, setup.given.identity)
            self.position.tokenizers = tokenizers_of(self.directions)
        self._join_others()
        self.budget = TrainingBudget.of(self.config)
        self._schedule = Schedule(self.config, self.budget, self._notice)
        self._meters = Meters()
        self._planned: tuple[int, Sequence[Indices]] | None = None
        self._batches_in_epoch = len(self._plan())
        self._updates_in_epoch = math.ceil(self._batches_in_epoch / self.config.accumulate)
        words = count_words(self.corpus)
        self._advice = BudgetAdvice(self.config, preset, words, self._updates_in_epoch, self._notice)
        self._uncounted: list[tuple[int, UpdateOutcome]] = []  # by the number of the update

    def _join_others(self) -> None:
        """Begins where rank 0 begins; raises UsageError if the corpora or the settings of the processes differ."""
        ranks = self.world.gather([self.setup.fingerprint, json.dumps([self.resumed, asdict(self.position)])])
        if others := [str(rank) for rank, (fingerprint, _) in enumerate(ranks) if fingerprint != ranks[0][0]]:
            raise UsageError(
                f"rank {', '.join(others)} has another corpus or other settings than rank 0; give all the same"
            )
        self.resumed, position = json.loads(ranks[0][1])
        self.position = Position(**position)
        self.world.broadcast(self.model, self.optimizer)

    def stop(self, reason: str) -> None:
        """Ends the training with a checkpoint, after an update or within a validation; a signal handler may call it."""
        self._stop_asked = reason

    def run(self) -> Finished:
        """Trains until the budget is spent, progress ends, or `stop`; raises TrainingError if it cannot continue."""
        with self._lock:
            return self._run()

    def _run(self) -> Finished:
        position = self.position
        self._log = EventLog(self.folder, position.update, position.validation_due) if self.world.first else None
        budget = self.budget.describe(self._updates_in_epoch, self.setup.patience)
        self._emit(self.setup.started(self._when(), self.resumed, budget))
        if self._damage:
            self._emit(events.Damaged(*self._when(), self._damage))
        for notice in self.setup.notices():
            self._notice(notice)
        self._clock, self._began_at = time.perf_counter() - position.seconds, position.seconds
        self._validations = Every("validate_every", self.config.validate_every, position.seconds)
        self._checkpoints = Every("checkpoint_every", self.config.checkpoint_every, position.seconds)
        self._glances = Every("glances", "1s", -math.inf)
        self._work("computing the first update")
        self.model.train()
        self._meters.start(position.seconds)
        if position.validation_due:
            self._validate()
        reason = self._stop or self._budget_spent() or self._patience_spent()
        if reason is None:
            position.finished = None  # a finished run resumes with a larger budget
            self._look()
        while reason is None:
            reason = self._train_epoch()
        return self._finish(reason)

    def _notice(self, text: str) -> None:
        self._emit(events.Noticed(*self._when(), text))

    def _work(self, doing: str, done: float | None = None) -> None:
        self._emit(events.Working(*self._when(), doing, done))

    def _plan(self) -> Sequence[Indices]:
        """The minibatches of the current epoch, planned once, because this takes seconds for millions of pairs."""
        epoch = self.position.epoch
        if self._planned is None or self._planned[0] != epoch:
            began = time.perf_counter()
            if self._planned is not None:
                self._work("planning the minibatches of an epoch")
            self._planned = epoch, self.setup.plan(epoch)
            self._meters.pause(time.perf_counter() - began)
        return self._planned[1]

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

    def _update(self, group: MinibatchGroup, batches: Iterator[Batch]) -> None:
        """Makes one update, unless its gradient is not finite."""
        position, done = self.position, self._done()
        position.update += 1
        self.world.begin(position.update)
        self.updates_done += 1
        self._meters.begin(position.seconds)
        seed_dropout(self.config.seed, position.update, self.world.rank, self.device)
        rate = self._schedule.rate(position, done, self._batches_in_epoch)
        self._uncounted.append((position.update, self.setup.updater.update(group, batches, rate)))

    def _count(self, lag: int = 0) -> None:
        """Counts the updates except the last `lag`, which a GPU may still be computing."""
        while len(self._uncounted) > lag:
            update, outcome = self._uncounted.pop(0)
            if outcome.finite:
                self.position.bad_in_a_row = 0
                self._meters.add(outcome.norm, outcome.minibatches)
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

    def _after_update(self, epoch_ended: bool) -> str | None:
        """Report, validation and checkpoint, where they are due; returns the reason to end, if there is one."""
        position, before = self.position, self.position.seconds
        position.seconds = time.perf_counter() - self._clock
        self._count(self.lag)
        if position.update % self.config.log_every == 0:
            self._count()
            self._report(Progressed)
        self._agree()
        self._schedule.measure(position.seconds - before)
        self._look()
        now = position.update, position.seconds, epoch_ended
        if self._glances.due(*now):
            self._report(Underway)
        validates, saves = self._validations.due(*now), self._checkpoints.due(*now)
        if validates:
            self._validate()
        reason = self._stop or self._budget_spent() or self._patience_spent()
        if reason is None and saves and not validates:
            self._save()
        return reason

    def _look(self) -> None:
        """Reports a budget that is too small."""
        position, is_known = self.position, self.position.seconds - self._began_at >= SOON
        if not position.diverged:
            self._advice.look(position.update, position.seconds, self._schedule.update_seconds(position), is_known)

    def _agree(self) -> None:
        """Makes the time and the request to stop the same in all processes, so that they take the same decisions."""
        elapsed = time.perf_counter() - self._clock
        self.position.seconds, stop = self.world.highest([elapsed, self._stop_asked is not None])
        if stop:
            self._stop = next(reason for (reason,) in self.world.gather([self._stop_asked or ""]) if reason)

    def _budget_spent(self) -> str | None:
        return self.budget.reached(self.position.update, self._epochs(), self.position.seconds)

    def _patience_spent(self) -> str | None:
        patience = self.setup.patience
        if patience and self.position.since_best >= patience:
            return f"no progress on dev in {patience} validations"
        return None

    def _finish(self, reason: str) -> Finished:
        """Makes the last validation and checkpoint; after `stop` only the checkpoint."""
        position, ended_before = self.position, self.position.finished is not None
        self._count()
        self._report(Progressed)
        self._report(Underway)
        if self._stop is None and not ended_before:
            if position.validated != position.update:
                self._validate()
            if self.config.average and self._stop is None:
                self._average()
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

    def _validate(self, averaged: str = "") -> None:
        """Validates on the dev set; without a dev set, the last weights count as the best.

        A checkpoint comes first: a process that is killed during the validation, or asked to stop, loses no update.
        `averaged` are the updates of the weights whose mean the model has.
        """
        self._count()
        position = self.position
        if not (averaged or position.validation_due):
            position.validation_due = True
            self._save()
        began, when = time.perf_counter(), self._when()
        watch = StopWatch(self.world, lambda: self._stop_asked is not None)
        work = functools.partial(self._work, "validating")
        seen = validate_all(self.directions, self.config, position, watch, self.setup.dtype, work)
        self._agree()
        if seen is None:
            return
        if position.best is None and seen and seen[0].score and seen[0].score.too_short:
            self._notice("no dev sentence has the four tokens of a 4-gram: dev BLEU stays 0, and the loss decides")
        position.validated, position.validation_due = position.update, False
        event = judge(seen, position, self.config, when) if seen else None
        if self.world.first and (event is None or event.best):
            calibrations = [each.calibration() for each in seen] or [""] * len(self.directions)
            self._files.save_best(position.update, calibrations, averaged)
        if event and averaged:
            self._notice(describe_average(averaged, event))
        elif event:
            self._advice.hear(event.loss, on_dev=True)
            self._emit(event)
        self._meters.pause(time.perf_counter() - began)

    def _average(self) -> None:
        """Validates the mean of the last validated weights, and continues with the trained weights."""
        self._save()  # the last validated weights, and the best ones if the process is killed during this validation
        trained, since_best = copy.deepcopy(self.model.state_dict()), self.position.since_best
        averaged = self.world.gather([self._files.load_mean() if self.world.first else ""])[0][0]
        if averaged:
            self.world.broadcast(self.model, self.optimizer)
            self._validate(averaged)
        self.model.load_state_dict(trained)
        self.position.since_best = since_best

    def _save(self) -> None:
        """Writes a checkpoint."""
        began = time.perf_counter()
        self._work("saving a checkpoint")
        self._count()
        self._agree()
        if self.world.first:
            self._emit(events.Saved(*self._when(), str(self._files.save(self.position))))
        self.world.highest([0.0])  # waits for rank 0
        self._meters.pause(time.perf_counter() - began)

    def _report(self, kind: type[Figures]) -> None:
        at, rate = self.position, self._schedule.last_rate
        pace = self._meters.pace(at.seconds)
        left = self.budget.seconds_left(at.update, at.seconds, self._updates_in_epoch, pace)
        if found := self._meters.report(kind, self._when(), self.world, rate, self._done(), left, at.skipped):
            if kind is Progressed:
                self._advice.hear(found.loss, on_dev=False)
                at.hear(self.setup.excess(found))
            self._emit(found)

    def _done(self) -> float:
        return self.budget.done(self.position.update, self._epochs(), self.position.seconds)

    def _epochs(self) -> float:
        return self.position.epoch + self.position.batch / self._batches_in_epoch

    def _when(self) -> tuple[int, float, float]:
        return self.position.update, round(self._epochs(), 4), round(self.position.seconds, 3)

    def _emit(self, event: Event) -> None:
        if self._log is not None and event.recorded:
            self._log.write(event)
        if self.world.first:
            self._listen(event)
