"""Time series: readings are cleaned, cut into windows for each sensor, and summarized by hour and day."""

import datetime

import numpy as np
import pandas as pd
import ray

ray.init(num_cpus=4)
ray.data.DataContext.get_current().default_hash_shuffle_parallelism = 2  # little data
START = datetime.datetime(2024, 6, 1)
WINDOW, STRIDE = 4, 2


def reading(i):
    sensor, step = i % 3, i // 3
    value = None if step == 7 and sensor == 1 else 10.0 * sensor + step
    return {"sensor": f"s{sensor}", "time": START + datetime.timedelta(minutes=20 * step), "value": value}


readings = ray.data.from_items([reading(i) for i in range(36)], override_num_blocks=3)
print("from", readings.min("time"), "to", readings.max("time"))


def windows(group: pd.DataFrame) -> pd.DataFrame:
    group = group.sort_values("time")
    values = group["value"].astype("float64").interpolate().to_numpy()
    starts = range(0, len(values) - WINDOW + 1, STRIDE)
    return pd.DataFrame(
        {
            "sensor": group["sensor"].iloc[0],
            "start": [group["time"].iloc[i] for i in starts],
            "mean": [values[i : i + WINDOW].mean() for i in starts],
            "slope": [np.polyfit(range(WINDOW), values[i : i + WINDOW], 1)[0].round(6) for i in starts],
        }
    )


cut = readings.groupby("sensor").map_groups(windows, batch_format="pandas").materialize()
print("windows:", cut.count(), cut.columns())
for row in cut.sort(["sensor", "start"]).take(6):
    print(row["sensor"], row["start"].strftime("%H:%M"), row["mean"], round(row["slope"], 3))


class Smoother:
    """A class as the function of groups."""

    def __init__(self, alpha):
        self.alpha = alpha

    def __call__(self, group):
        smooth = group.sort_values("time")["value"].astype("float64").ffill().ewm(alpha=self.alpha).mean()
        return pd.DataFrame({"sensor": [group["sensor"].iloc[0]], "last": [round(smooth.iloc[-1], 4)]})


smoothed = readings.groupby("sensor").map_groups(Smoother, fn_constructor_args=(0.5,), concurrency=1)
print("smoothed:", sorted((row["sensor"], row["last"]) for row in smoothed.take_all()))


def hours(batch):
    batch["hour"] = batch["time"].astype("datetime64[h]").astype(int) % 24
    return batch


hourly = readings.map_batches(hours).groupby(["sensor", "hour"]).max("value").sort(["sensor", "hour"])
print("hourly:", hourly.count(), [row["max(value)"] for row in hourly.take(4)])


def changes(group):
    group = group.sort_values("time")
    values = group["value"].astype("float64").tolist()
    for before, after in zip(values, values[1:]):
        if not after - before == 1:
            yield pd.DataFrame({"sensor": [group["sensor"].iloc[0]], "missing": [bool(np.isnan(after))]})


odd = readings.groupby("sensor").map_groups(changes, batch_format="pandas")
print("odd:", sorted((row["sensor"], bool(row["missing"])) for row in odd.take_all()))
latest = readings.sort("time", descending=True).limit(3)
print("latest:", sorted((row["sensor"], str(row["time"])) for row in latest.take_all()))
