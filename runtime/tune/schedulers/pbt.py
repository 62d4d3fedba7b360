"""Population based training."""

from __future__ import annotations

import heapq
import json
import logging
import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ._controller import PAUSED, Controller, Trial
from ._explore import Explore, check_mutations, explore, fill, mutated_part, perturbed_tag
from ._objective import ObjectiveScheduler, Observation, check_positive
from ._ranking import Ranking
from .pbt_replay import CUT_LINE, PopulationBasedTrainingReplay
from .trial_scheduler import TrialScheduler, missing_key_message

logger = logging.getLogger(__name__)

__all__ = ["PopulationBasedTraining", "PopulationBasedTrainingReplay"]


@dataclass(frozen=True, slots=True)
class _Policy:
    """The exploits that have led to a member's weights, newest first. Members that share a past share its links."""

    line: str
    past: _Policy | None


@dataclass(slots=True)
class Member:
    """A trial of the population.

    Attributes:
        tag: the trial's tag before it was perturbed.
        number: order of joining.
        score: when it was last due for a perturbation; None: it never was.
        trained: its time then.
        perturbed: the time from which its next interval counts.
        iteration: its training iteration then.
        policy: the exploits it goes back to.
    """

    trial: Any
    tag: str
    number: int
    score: float | None = None
    trained: float = 0
    perturbed: float = 0
    iteration: int = 0
    policy: _Policy | None = None


class PopulationBasedTraining(ObjectiveScheduler):
    """Population based training: all trials are one population, whose weak members learn from the strong.

    Each time a trial has trained for `perturbation_interval`, it is compared with the others. If it is among the worst
    `quantile_fraction`, it continues from the checkpoint of a random trial of the best `quantile_fraction`, with that
    trial's config after exploring: each mutated hyperparameter is drawn anew or perturbed. If there are more trials
    than workers, a trial makes room after each interval, and the one that has trained least runs next. A trial whose
    metric is NaN ranks lowest.

    Exploits are logged as JSON lines in the experiment's folder: all in `pbt_global.txt`, and in
    `pbt_policy_<trial id>.txt` those that the trial's weights go back to. A line has the tags of the trial and of
    the one it copies, their training iterations, the copied config and the new one.

    Source: Jaderberg et al. 2017, "Population Based Training of Neural Networks", https://arxiv.org/abs/1711.09846.

    Args:
        time_attr: result key that grows with a trial's progress.
        metric: result key to optimize.
        mode: "min" or "max".
        perturbation_interval: time between perturbations of a trial, in units of `time_attr`.
        burn_in_period: trials are not perturbed before this time.
        hyperparam_mutations: by hyperparameter: a list of the allowed values; a domain such as `tune.uniform`; a
            function without arguments that draws a value; or a dict of these for nested hyperparameters. Those that
            a trial's config lacks are drawn from here.
        quantile_fraction: share of the population that copies, and that is copied; from 0 (nobody) to 0.5.
        resample_probability: probability that a hyperparameter is drawn anew instead of perturbed.
        perturbation_factors: a perturbed number is multiplied with one of these.
        custom_explore_fn: called with the explored config; returns the config to use.
        log_config: whether to log exploits.
        require_attrs: True: a result without the metric or `time_attr` is an error. False: it is skipped with a
            warning, given once.
        synch: True: trials pause after each interval until all have reached it, and are then perturbed together.
        seed: of all draws but those that functions in `hyperparam_mutations` make. None: a random one, taken from the
            module `random`.

    Raises:
        ValueError, TypeError: an argument is out of range.
    """

    def __init__(
        self,
        time_attr: str = "time_total_s",
        metric: str | None = None,
        mode: str | None = None,
        perturbation_interval: float = 60.0,
        burn_in_period: float = 0.0,
        hyperparam_mutations: Mapping[str, Any] | None = None,
        quantile_fraction: float = 0.25,
        resample_probability: float = 0.25,
        perturbation_factors: Sequence[float] = (1.2, 0.8),
        custom_explore_fn: Explore | None = None,
        log_config: bool = True,
        require_attrs: bool = True,
        synch: bool = False,
        *,
        seed: int | None = None,
    ) -> None:
        super().__init__(time_attr, metric, mode)
        mutations = dict(hyperparam_mutations or {})
        check_mutations(mutations)
        if not mutations and custom_explore_fn is None:
            raise ValueError(
                "hyperparam_mutations and custom_explore_fn are both missing; pass at least one."
            )
        if not 0 <= quantile_fraction <= 0.5:
            raise ValueError(f"quantile_fraction must be between 0 and 0.5, not {quantile_fraction!r}.")
        if not 0 <= resample_probability <= 1:
            raise ValueError(f"resample_probability must be between 0 and 1, not {resample_probability!r}.")
        if not perturbation_factors:
            raise ValueError("perturbation_factors must have at least one factor.")
        check_positive(perturbation_interval=perturbation_interval)
        self._perturbation_interval = perturbation_interval
        self._burn_in_period = burn_in_period
        self._hyperparam_mutations = mutations
        self._quantile_fraction = quantile_fraction
        self._resample_probability = resample_probability
        self._perturbation_factors = tuple(perturbation_factors)
        self._custom_explore_fn = custom_explore_fn
        self._log_config = log_config
        self._require_attrs = require_attrs
        self._synch = synch
        self._random = random.Random(random.getrandbits(64) if seed is None else seed)
        self._members: dict[str, Member] = {}
        self._joined = 0
        self._ranking: Ranking[str] = Ranking()
        # Trials that may run, least trained first. An entry is void once its trial runs or has trained further.
        self._queue: list[tuple[float, int, str]] = []
        # Trials that wait for the others in synchronous mode, and those of them whose checkpoint may be incomplete.
        self._arrived: set[str] = set()
        self._unsaved: dict[str, None] = {}
        self._warned: set[str] = set()
        self._num_perturbations = 0

    def on_trial_add(self, controller: Controller, trial: Any) -> None:
        """Takes the trial into the population, and draws the hyperparameters that its config lacks.

        Raises:
            ValueError: the study has a searcher that learns, or metric or mode are unknown.
        """
        super().on_trial_add(controller, trial)
        # Only the searcher that makes the variants of a search space knows their number; it needs no results.
        if controller.search_alg is not None and not hasattr(type(controller.search_alg), "total_samples"):
            raise ValueError(
                f"{type(self).__name__} changes the hyperparameters of trials, so that a searcher cannot learn from "
                f"them: remove search_alg={type(controller.search_alg).__name__} from TuneConfig."
            )
        known = self._members.get(trial.trial_id)
        if known is not None:
            known.trial = trial
        else:
            trial.evaluated_params.update(self._fill(trial.config))
            known = self._members[trial.trial_id] = Member(trial, trial.experiment_tag, self._joined)
            self._joined += 1
        self._enqueue(known)

    def _fill(self, config: dict[str, Any]) -> dict[str, Any]:
        return fill(config, self._hyperparam_mutations, self._random)

    def _enqueue(self, member: Member) -> None:
        """The trial may run. It is queued even if it is running: it might be paused without further notice."""
        heapq.heappush(self._queue, (member.trained, member.number, member.trial.trial_id))

    def on_trial_result(self, controller: Controller, trial: Any, result: dict[str, Any]) -> str:
        """At the end of an interval: exploit, make room for others, or go on."""
        member = self._members.get(trial.trial_id)
        observation = self._observe(trial, result)
        if trial.trial_id in self._arrived:
            # It runs again: `choose_trial_to_run` has perturbed all. Restoring a study repeats its results only.
            self._perturb_all(controller)
        if member is None or observation is None or observation.time < self._burn_in_period:
            return TrialScheduler.CONTINUE
        if observation.time - member.perturbed < self._perturbation_interval:
            return TrialScheduler.CONTINUE
        self._save_member(member, observation, result)
        if self._synch:
            self._arrived.add(trial.trial_id)
            self._unsaved[trial.trial_id] = None
            return TrialScheduler.PAUSE
        member.perturbed = member.trained
        others_wait = controller.others_wait()
        donor = self._draw_donor(trial.trial_id)
        is_changed = donor is not None and self._exploit(controller, member, donor)
        self._enqueue(member)
        if is_changed:
            return TrialScheduler.NOOP
        return TrialScheduler.PAUSE if others_wait else TrialScheduler.CONTINUE

    def _save_member(self, member: Member, observation: Observation, result: dict[str, Any]) -> None:
        """Notes how a trial stands at the end of an interval."""
        member.score = observation.score
        member.trained = observation.time
        member.iteration = result.get("training_iteration", 0)
        self._ranking.put(member.trial.trial_id, observation.score)

    def _on_missing(self, trial: Trial, key: str, role: str, result: dict[str, Any]) -> None:
        message = missing_key_message(self, trial, key, role, result)
        if self._require_attrs:
            raise RuntimeError(f"{message} With require_attrs=False such results are skipped.")
        if key not in self._warned:
            self._warned.add(key)
            logger.warning("%s Results without it are skipped.", message)

    # ---- exploit and explore ----

    def _quantile_size(self) -> int:
        """How many trials copy, and how many are copied."""
        ranked = len(self._ranking)
        return min(math.ceil(ranked * self._quantile_fraction), ranked // 2)

    def _draw_donor(self, trial_id: str) -> Member | None:
        """A random trial of the best quantile, if this trial is in the worst."""
        size = self._quantile_size()
        place = self._ranking.position(trial_id)
        if place is None or place >= size:
            return None
        return self._members[self._ranking[len(self._ranking) - 1 - self._random.randrange(size)]]

    def _exploit(self, controller: Controller, member: Member, donor: Member) -> bool:
        """`member` goes on from `donor`'s checkpoint with an explored config. False: there is nothing to copy."""
        if donor.score == -math.inf:
            return False
        trial, donor_config = member.trial, donor.trial.config
        config, done = self._new_config(member, donor)
        tag = perturbed_tag(member.tag, config, self._hyperparam_mutations)
        if controller.exploit(trial, donor.trial, config, tag) is False:
            logger.info(
                "Trial %s cannot copy trial %s, which has no checkpoint", trial.trial_id, donor.trial.trial_id
            )
            return False
        logger.info(
            "Trial %s (score %s) continues from trial %s (score %s): %s",
            *(trial.trial_id, member.score, donor.trial.trial_id, donor.score),
            _changes(donor_config, config, done, self._hyperparam_mutations),
        )
        line = json.dumps(
            [member.tag, donor.tag, member.iteration, donor.iteration, donor_config, config], default=str
        )
        if self._log_config:
            self._log_exploit(controller, member, donor, line)
        member.policy = _Policy(line, donor.policy)
        self._num_perturbations += 1
        member.perturbed, member.trained, member.iteration = donor.perturbed, donor.trained, donor.iteration
        return True

    def _new_config(self, member: Member, donor: Member) -> tuple[dict[str, Any], dict[str, Any]]:
        """The config that `member` goes on with, and what was done to each hyperparameter of `donor`'s."""
        return explore(
            donor.trial.config,
            self._hyperparam_mutations,
            self._resample_probability,
            self._perturbation_factors,
            self._custom_explore_fn,
            self._random,
        )

    def _log_exploit(self, controller: Controller, member: Member, donor: Member, line: str) -> None:
        """Files can only be appended to: a new past is written after a line that ends the old one."""
        controller.log_line("pbt_global.txt", line)
        name = f"pbt_policy_{member.trial.trial_id}.txt"
        past = list(_lines(donor.policy))
        for text in ([CUT_LINE] if member.policy else []) + past[::-1] + [line]:
            controller.log_line(name, text)

    def _perturb_all(self, controller: Controller) -> None:
        """Perturbs the population, all of whose members have paused."""
        self._arrived.clear()
        self._unsaved.clear()
        size, ranked = self._quantile_size(), len(self._ranking)
        weak = [self._members[self._ranking[place]] for place in range(size)]
        strong = [self._members[self._ranking[place]] for place in range(ranked - size, ranked)]
        for member in self._members.values():
            member.perturbed = member.trained
        for member in weak:
            self._exploit(controller, member, self._random.choice(strong))
        for member in self._members.values():
            self._enqueue(member)

    # ---- ends and order ----

    def _leave(self, trial: Any) -> None:
        self._members.pop(trial.trial_id, None)
        self._ranking.discard(trial.trial_id)
        self._arrived.discard(trial.trial_id)
        self._unsaved.pop(trial.trial_id, None)

    def on_trial_error(self, controller: Controller, trial: Any) -> None:
        """The trial leaves the population."""
        super().on_trial_error(controller, trial)
        self._leave(trial)

    def on_trial_complete(self, controller: Controller, trial: Any, result: dict[str, Any]) -> None:
        """The trial leaves the population."""
        super().on_trial_complete(controller, trial, result)
        self._leave(trial)

    def on_trial_remove(self, controller: Controller, trial: Any) -> None:
        """The trial leaves the population."""
        super().on_trial_remove(controller, trial)
        self._leave(trial)

    def choose_trial_to_run(self, controller: Controller) -> Any | None:
        """The trial that has trained least. In synchronous mode none that has reached the end of the interval."""
        pending = controller.next_pending()
        if pending is None and self._all_arrived(controller):
            self._perturb_all(controller)
        chosen = self._least_trained(controller)
        if pending is not None and pending is not chosen:
            # A trial that is tried again after a failure has no place in the queue.
            member = self._members.get(pending.trial_id)
            if chosen is None or member is None or member.trained < self._members[chosen.trial_id].trained:
                return pending
        if chosen is not None or self._synch:
            return chosen
        return controller.next_paused()

    def _all_arrived(self, controller: Controller) -> bool:
        """Whether the whole population waits, with complete checkpoints."""
        if not self._members or len(self._arrived) < len(self._members):
            return False
        while self._unsaved:
            trial_id = next(iter(self._unsaved))
            if not controller.is_ready(self._members[trial_id].trial):
                return False
            del self._unsaved[trial_id]
        return True

    def _least_trained(self, controller: Controller) -> Any | None:
        """The first of the queue that is ready. Those whose checkpoint is still being written keep their places."""
        not_ready: list[tuple[float, int, str]] = []
        found = None
        while self._queue and found is None:
            trained, _, trial_id = entry = self._queue[0]
            member = self._members.get(trial_id)
            if member is None or member.trained != trained or trial_id in self._arrived:
                heapq.heappop(self._queue)
            elif controller.is_ready(member.trial):
                found = member.trial
            else:
                heapq.heappop(self._queue)
                if member.trial.status == PAUSED:
                    not_ready.append(entry)
        for entry in not_ready:
            heapq.heappush(self._queue, entry)
        return found

    def debug_string(self) -> str:
        """How many exploits there were."""
        return f"{type(self).__name__}: {len(self._members)} trials, {self._num_perturbations} perturbs"


def _lines(policy: _Policy | None) -> Iterator[str]:
    while policy is not None:
        yield policy.line
        policy = policy.past


def _changes(
    old: Mapping[str, Any], new: Mapping[str, Any], done: Mapping[str, Any], mutations: Mapping[str, Any]
) -> str:
    """A line that says how each hyperparameter has changed: `lr: 0.5 --(* 0.8)-> 0.4`."""
    before, after = mutated_part(old, mutations), mutated_part(new, mutations)
    steps = mutated_part(done, mutations) if done else {}
    changes = [
        f"{name}: {before.get(name)} --({steps.get(name, '')})-> {value}" for name, value in after.items()
    ]
    return ", ".join(changes) or "no hyperparameters are mutated"
