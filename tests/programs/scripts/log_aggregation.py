"""Workers ship structured log records to an aggregator that keeps windows and raises alarms."""

import collections
import dataclasses
import enum

import ray

ray.init(num_cpus=4)


class Level(enum.IntEnum):
    INFO = 20
    ERROR = 40


@dataclasses.dataclass(frozen=True)
class Record:
    source: str
    tick: int
    level: Level
    text: str


@ray.remote
class LogAggregator:
    WINDOW = 10

    def __init__(self, alarm_after):
        self.windows = collections.defaultdict(list)
        self.alarm_after = alarm_after
        self.alarms = set()

    def ship(self, records):
        for record in records:
            window = self.windows[record.tick // self.WINDOW]
            window.append(record)
            errors = sum(r.level >= Level.ERROR for r in window)
            if errors >= self.alarm_after:
                self.alarms.add(record.tick // self.WINDOW)
        return len(records)

    def summary(self):
        return {
            index: collections.Counter(r.level.name for r in records)
            for index, records in sorted(self.windows.items())
        }

    def get_alarms(self):
        return sorted(self.alarms)

    def find(self, predicate):
        return sorted(
            (r.tick, r.source) for records in self.windows.values() for r in records if predicate(r)
        )


@ray.remote
def service(name, seed, aggregator):
    batch, shipped = [], []
    for tick in range(30):
        bad = (tick * seed) % 7 == 3
        batch.append(Record(name, tick, Level.ERROR if bad else Level.INFO, f"tick {tick}"))
        if len(batch) == 8:
            shipped.append(aggregator.ship.remote(batch))
            batch = []
    shipped.append(aggregator.ship.remote(batch))
    return sum(ray.get(shipped))


aggregator = LogAggregator.remote(alarm_after=5)
print(ray.get([service.remote(f"s{i}", i, aggregator) for i in (2, 3, 5)]))
for window, counts in ray.get(aggregator.summary.remote()).items():
    print(window, dict(sorted(counts.items())))
print("alarms:", ray.get(aggregator.get_alarms.remote()))
threshold = 25
print(ray.get(aggregator.find.remote(lambda r: r.level is Level.ERROR and r.tick > threshold)))
