"""A support vector machine on scikit-learn's digits, tuned by Optuna: the same study as with Optuna alone."""

import tempfile

import optuna
import ray
from ray import tune
from ray.tune.search.optuna import OptunaSearch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.svm import SVC

TRIALS, SEED = 12, 7


def accuracy(gamma, c, kernel):
    images, digits = load_digits(return_X_y=True)
    train_x, test_x, train_y, test_y = train_test_split(
        images[:600], digits[:600], test_size=0.5, random_state=1
    )
    return float(SVC(gamma=gamma, C=c, kernel=kernel).fit(train_x, train_y).score(test_x, test_y))


def train_function(config):
    tune.report({"accuracy": accuracy(config["gamma"], config["c"], config["kernel"])})


def objective(trial):
    gamma = trial.suggest_float("gamma", 1e-5, 1e-1, log=True)
    c = trial.suggest_float("c", 0.1, 100, log=True)
    return accuracy(gamma, c, trial.suggest_categorical("kernel", ["rbf", "poly"]))


ray.init(num_cpus=2, log_to_driver=False)
results = tune.Tuner(
    train_function,
    param_space={
        "gamma": tune.loguniform(1e-5, 1e-1),
        "c": tune.loguniform(0.1, 100),
        "kernel": tune.choice(["rbf", "poly"]),
    },
    tune_config=tune.TuneConfig(
        metric="accuracy",
        mode="max",
        search_alg=OptunaSearch(sampler=optuna.samplers.TPESampler(seed=SEED)),
        num_samples=TRIALS,
        max_concurrent_trials=1,
        reuse_actors=True,
    ),
    run_config=tune.RunConfig(name="digits", storage_path=tempfile.mkdtemp(), verbose=0),
).fit()
for result in results:
    config = result.config
    print(f"{config['gamma']:.3e} {config['c']:.4f} {config['kernel']} {result.metrics['accuracy']:.4f}")
best = results.get_best_result()
print("best:", round(best.metrics["accuracy"], 4), best.config["kernel"])

optuna.logging.set_verbosity(optuna.logging.ERROR)
study = optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=SEED))
study.optimize(objective, n_trials=TRIALS)
print(
    "as Optuna alone:",
    [each.metrics["accuracy"] for each in results] == [each.value for each in study.trials],
)
