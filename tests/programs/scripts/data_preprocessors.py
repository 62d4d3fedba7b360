"""Columns are scaled, encoded, imputed and put together by preprocessors that learn from training data."""

import numpy as np
import ray
from ray.data.preprocessors import (
    Chain,
    Concatenator,
    LabelEncoder,
    MinMaxScaler,
    Normalizer,
    OneHotEncoder,
    OrdinalEncoder,
    SimpleImputer,
    StandardScaler,
    UniformKBinsDiscretizer,
)

ray.init(num_cpus=4)
people = [
    {"id": i, "age": age, "height": 150 + 10 * i, "income": income, "city": city, "vote": vote}
    for i, (age, income, city, vote) in enumerate(
        [
            (20, 10.0, "rome", "no"),
            (30, None, "oslo", "yes"),
            (40, 30.0, "rome", "yes"),
            (60, 50.0, "lima", "no"),
            (50, 30.0, "oslo", "no"),
        ]
    )
]
dataset = ray.data.from_items(people)


def show(title, dataset, *columns):
    print(title)
    for row in sorted(dataset.take_all(), key=lambda row: row["id"]):
        values = [np.round(np.asarray(row[name], dtype=float), 4).tolist() for name in columns]
        print("  ", row["id"], *values)


scaler = StandardScaler(columns=["age"])
print("before:", scaler.fit_status().name)
show("standard", scaler.fit_transform(dataset), "age")
print(
    "after:",
    scaler.fit_status().name,
    {name: round(value, 4) for name, value in sorted(scaler.stats_.items())},
)
show(
    "min and max",
    MinMaxScaler(columns=["age"], output_columns=["scaled"]).fit_transform(dataset),
    "age",
    "scaled",
)
show("imputed", SimpleImputer(columns=["income"], strategy="mean").fit_transform(dataset), "income")
show(
    "most frequent",
    SimpleImputer(columns=["income"], strategy="most_frequent").fit_transform(dataset),
    "income",
)
ratios = Normalizer(columns=["age", "height"], norm="l1").fit_transform(dataset)
show("normalized", ratios, "age", "height")
show("ordinal", OrdinalEncoder(columns=["city"]).fit_transform(dataset), "city")
show("one hot", OneHotEncoder(columns=["city"]).fit_transform(dataset), "city")
show("bins", UniformKBinsDiscretizer(columns=["age"], bins=4).fit_transform(dataset), "age")

encoder = LabelEncoder(label_column="vote").fit(dataset)
encoded = encoder.transform(dataset)
show("label", encoded, "vote")
print("back:", sorted((row["id"], row["vote"]) for row in encoder.inverse_transform(encoded).take_all()))

features = Chain(
    SimpleImputer(columns=["income"], strategy="constant", fill_value=0.0),
    MinMaxScaler(columns=["age", "income"]),
    OrdinalEncoder(columns=["city"]),
    Concatenator(columns=["age", "income", "city"], output_column_name="features", dtype=np.float32),
)
fitted = features.fit(dataset)
show("chain", fitted.transform(dataset), "features")
one = fitted.transform_batch(
    {"id": np.array([9]), "age": np.array([25]), "income": np.array([20.0]), "city": np.array(["lima"])}
)
print("of a batch:", sorted(one), np.round(np.asarray(list(one["features"]), dtype=float), 4).tolist())
try:
    MinMaxScaler(columns=["age"]).transform(dataset)
except Exception as error:
    print("not fitted:", type(error).__name__)
