"""Preprocessors: statistics fitted on a data set, then applied to its batches. `preprocessor` has their base."""

from runtime.data.preprocessor import Preprocessor
from runtime.data.preprocessors.chain import Chain
from runtime.data.preprocessors.concatenator import Concatenator
from runtime.data.preprocessors.discretizers import CustomKBinsDiscretizer, UniformKBinsDiscretizer
from runtime.data.preprocessors.encoders import (
    Categorizer,
    LabelEncoder,
    MultiHotEncoder,
    OneHotEncoder,
    OrdinalEncoder,
)
from runtime.data.preprocessors.imputer import SimpleImputer
from runtime.data.preprocessors.scalers import (
    MaxAbsScaler,
    MinMaxScaler,
    Normalizer,
    PowerTransformer,
    RobustScaler,
    StandardScaler,
)
from runtime.data.preprocessors.text import CountVectorizer, FeatureHasher, HashingVectorizer, Tokenizer
from runtime.data.preprocessors.torch import TorchVisionPreprocessor

__all__ = [
    "Categorizer",
    "Chain",
    "Concatenator",
    "CountVectorizer",
    "CustomKBinsDiscretizer",
    "FeatureHasher",
    "HashingVectorizer",
    "LabelEncoder",
    "MaxAbsScaler",
    "MinMaxScaler",
    "MultiHotEncoder",
    "Normalizer",
    "OneHotEncoder",
    "OrdinalEncoder",
    "PowerTransformer",
    "Preprocessor",
    "RobustScaler",
    "SimpleImputer",
    "StandardScaler",
    "Tokenizer",
    "TorchVisionPreprocessor",
    "UniformKBinsDiscretizer",
]
