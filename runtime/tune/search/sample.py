"""Domains and samplers under Ray's module name."""

from runtime.tune.space.base import BaseSampler, Domain, Sampler
from runtime.tune.space.domains import Categorical, Float, Function, Integer
from runtime.tune.space.public import (
    choice,
    lograndint,
    loguniform,
    qlograndint,
    qloguniform,
    qrandint,
    qrandn,
    quniform,
    randint,
    randn,
    sample_from,
    uniform,
)
from runtime.tune.space.samplers import Grid, LogUniform, Normal, Quantized, Uniform

__all__ = [
    "BaseSampler",
    "Categorical",
    "Domain",
    "Float",
    "Function",
    "Grid",
    "Integer",
    "LogUniform",
    "Normal",
    "Quantized",
    "Sampler",
    "Uniform",
    "choice",
    "lograndint",
    "loguniform",
    "qlograndint",
    "qloguniform",
    "qrandint",
    "qrandn",
    "quniform",
    "randint",
    "randn",
    "sample_from",
    "uniform",
]
