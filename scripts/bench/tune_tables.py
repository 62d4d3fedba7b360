"""Models of scikit-learn on real tables, tuned through a module with Ray Tune's API: a study with Optuna, one with ASHA
and one of a population. The trials travel by value, as those of `tune_trials`."""

from __future__ import annotations

import importlib
import pickle
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from data_measuring import require
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.linear_model import SGDClassifier
from sklearn.model_selection import cross_val_score, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

SEED = 1
SEARCHED, EPOCHS, INTERVAL = 20, 9, 3
"""Trials with Optuna; epochs of those with ASHA and of the members of the population."""
RATES, ALPHAS = (1e-3, 1e-2, 1e-1, 1.0), (1e-6, 1e-4, 1e-2)
LEAST = 0.9
"""Accuracy on digits."""
Config = dict[str, Any]


def cross_validated(c: float, gamma: float) -> float:
    """The accuracy of a support vector machine on the table of tumours."""
    rows, labels = load_breast_cancer(return_X_y=True)
    return float(cross_val_score(make_pipeline(StandardScaler(), SVC(C=c, gamma=gamma)), rows, labels).mean())


def machine(config: Config) -> Config:
    return {"accuracy": cross_validated(config["c"], config["gamma"])}


def linear(config: Config) -> None:
    """A linear classifier of digits, epoch by epoch; goes on from its checkpoint if it makes them."""
    tune = importlib.import_module(f"{config['module']}.tune")
    rows, labels = load_digits(return_X_y=True)
    train, test, train_labels, test_labels = train_test_split(rows / 16, labels, random_state=0)
    state: dict[str, Any] = {"epoch": 0, "coef": None}
    if checkpoint := tune.get_checkpoint():
        with checkpoint.as_directory() as folder:
            state = pickle.loads(Path(folder, "state").read_bytes())
    model = SGDClassifier(
        learning_rate="constant", eta0=config["rate"], alpha=config["alpha"], random_state=0
    )
    model.partial_fit(train[:1], train_labels[:1], classes=np.unique(labels))
    if state["coef"] is not None:
        model.coef_, model.intercept_ = state["coef"], state["intercept"]
    for epoch in range(state["epoch"] + 1, config["epochs"] + 1):
        model.partial_fit(train, train_labels)
        metrics = {"accuracy": float(model.score(test, test_labels)), "epoch": epoch}
        if not config["saves"]:
            tune.report(metrics)
            continue
        state = {"epoch": epoch, "coef": model.coef_, "intercept": model.intercept_}
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "state").write_bytes(pickle.dumps(state))
            tune.report(metrics, checkpoint=tune.Checkpoint.from_directory(folder))


def found_by_optuna_alone() -> float:
    """The best accuracy with the same seed and as many trials."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=SEED), direction="maximize")
    study.optimize(
        lambda trial: cross_validated(
            trial.suggest_float("c", 0.01, 100, log=True), trial.suggest_float("gamma", 1e-5, 1, log=True)
        ),
        n_trials=SEARCHED,
    )
    return float(study.best_value)


def studies(module: str) -> list[tuple[Any, Config, Config]]:
    """Each with its trainable, its space and its TuneConfig."""
    tune: Any = importlib.import_module(f"{module}.tune")
    optuna: Any = importlib.import_module(f"{module}.tune.search.optuna")
    schedulers: Any = importlib.import_module(f"{module}.tune.schedulers")
    best = {"metric": "accuracy", "mode": "max"}
    space = {"rate": tune.grid_search(list(RATES)), "epochs": EPOCHS}
    asha = schedulers.ASHAScheduler(max_t=EPOCHS, grace_period=1, reduction_factor=3)
    population = schedulers.PopulationBasedTraining(
        time_attr="training_iteration",
        perturbation_interval=INTERVAL,
        hyperparam_mutations={"rate": tune.loguniform(1e-4, 1), "alpha": tune.loguniform(1e-6, 1e-1)},
    )
    return [
        (
            machine,
            {"c": tune.loguniform(0.01, 100), "gamma": tune.loguniform(1e-5, 1)},
            {
                **best,
                "search_alg": optuna.OptunaSearch(seed=SEED, **best),
                "num_samples": SEARCHED,
                "max_concurrent_trials": 1,
            },
        ),
        (
            linear,
            {**space, "alpha": tune.grid_search(list(ALPHAS)), "saves": False},
            {**best, "scheduler": asha},
        ),
        (
            linear,
            {**space, "alpha": ALPHAS[0], "saves": True},
            {**best, "scheduler": population},
        ),
    ]


def check(accuracies: list[float]) -> None:
    """What the three studies have found."""
    alone = found_by_optuna_alone()
    require(accuracies[0] == alone, f"{accuracies[0]} was found, and {alone} by Optuna alone")
    require(min(accuracies[1:]) >= LEAST, f"the best on digits are {accuracies[1:]}")
