"""What a module can do beyond acting: algorithms ask for these classes."""

from __future__ import annotations

from .inference_only_api import InferenceOnlyAPI
from .q_net_api import QNetAPI
from .self_supervised_loss_api import SelfSupervisedLossAPI
from .target_network_api import TARGET_NETWORK_ACTION_DIST_INPUTS, TargetNetworkAPI
from .value_function_api import ValueFunctionAPI

__all__ = [
    "TARGET_NETWORK_ACTION_DIST_INPUTS",
    "InferenceOnlyAPI",
    "QNetAPI",
    "SelfSupervisedLossAPI",
    "TargetNetworkAPI",
    "ValueFunctionAPI",
]
