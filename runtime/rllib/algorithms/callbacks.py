"""Callbacks under the name that they had before they got a package of their own."""

from runtime.rllib.callbacks.callbacks import RLlibCallback as RLlibCallback

DefaultCallbacks = RLlibCallback
