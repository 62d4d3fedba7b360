"""Distributions in torch, without the checks of torch.distributions: they are made once per step of an environment."""
