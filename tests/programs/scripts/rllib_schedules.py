"""Values that depend on the time step."""

from ray.rllib.utils.schedules.scheduler import Scheduler

constant = Scheduler(0.5)
print(constant.get_current_value(), constant.update(100), constant.get_current_value())
piecewise = Scheduler([(0, 1.0), (10, 0.5), (20, 0.0)])
for timestep in (0, 5, 10, 15, 20, 100):
    print(timestep, round(float(piecewise.update(timestep)), 4))
for wrong in ([(0, 1.0)], [(5, 1.0), (10, 0.0)]):
    try:
        Scheduler.validate(fixed_value_or_schedule=wrong, setting_name="lr", description="rate")
        print("fine")
    except ValueError as error:
        print("ValueError", "lr" in str(error))
