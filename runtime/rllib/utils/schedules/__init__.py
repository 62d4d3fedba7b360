"""Values that change with the time step: learning rates, entropy coefficients, exploration."""

from .constant_schedule import ConstantSchedule
from .exponential_schedule import ExponentialSchedule
from .linear_schedule import LinearSchedule
from .piecewise_schedule import PiecewiseSchedule
from .polynomial_schedule import PolynomialSchedule
from .schedule import Schedule
from .scheduler import Scheduler

__all__ = [
    "ConstantSchedule",
    "ExponentialSchedule",
    "LinearSchedule",
    "PiecewiseSchedule",
    "PolynomialSchedule",
    "Schedule",
    "Scheduler",
]
