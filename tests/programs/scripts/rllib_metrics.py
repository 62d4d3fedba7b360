"""The metrics logger."""

import time

from ray.rllib.utils.metrics.metrics_logger import MetricsLogger

logger = MetricsLogger()
for value in (1.0, 2.0, 3.0, 4.0):
    logger.log_value("mean", value, reduce="mean", window=3)
    logger.log_value("least", value, reduce="min", window=10)
    logger.log_value("most", value, reduce="max", window=10)
    logger.log_value(("nested", "total"), value, reduce="sum")
    logger.log_value("ema", value, reduce="ema", ema_coeff=0.5)
    logger.log_value("lifetime", value, reduce="lifetime_sum")
print(logger.peek("mean"), logger.peek("least"), logger.peek("most"), logger.peek(("nested", "total")))
print(round(logger.peek("ema"), 4), logger.peek("lifetime"))
print(logger.peek("nothing", default="?"))
logger.log_dict({"a": 1.0, "b": {"c": 2.0}}, key="group", window=2)
logger.log_dict({"a": 3.0, "b": {"c": 4.0}}, key="group", window=2)
group = logger.peek("group")
print(float(group["a"]), float(group["b"]["c"]))
with logger.log_time("took"):
    time.sleep(0.01)
print(0.009 < logger.peek("took") < 0.5)
