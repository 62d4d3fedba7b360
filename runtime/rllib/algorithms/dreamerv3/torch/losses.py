"""The formulas of DreamerV3's losses. Equations are those of the paper (arXiv 2301.04104v2)."""

from __future__ import annotations

from typing import Any

import torch

from ....utils.torch_utils import inverse_symlog, symlog, two_hot

Tensor = Any  # torch.Tensor; torch's annotations are not followed

NUM_BUCKETS, LOWEST, HIGHEST = 255, -20.0, 20.0  # of distributions over symlog values
UNIFORM_SHARE = 0.01  # of categoricals, so that no probability vanishes


def two_hot_loss(logits: Tensor, values: Tensor) -> Tensor:
    """Cross-entropy of the two-hot encoded symlog of values [...] and logits [..., buckets]; shape [...]."""
    targets = two_hot(symlog(values), logits.shape[-1], LOWEST, HIGHEST)
    return -(targets * torch.log_softmax(logits, -1)).sum(-1)


def two_hot_mean(logits: Tensor) -> Tensor:
    """The value that a distribution over symlog buckets stands for: [..., buckets] -> [...]."""
    buckets = torch.linspace(LOWEST, HIGHEST, logits.shape[-1], device=logits.device)
    return inverse_symlog((torch.softmax(logits, -1) * buckets).sum(-1))


def mixed_log_probs(logits: Tensor) -> Tensor:
    """Log-probabilities of softmax(logits) mixed with 1% of the uniform distribution, along the last dimension."""
    probs = (1 - UNIFORM_SHARE) * torch.softmax(logits, -1) + UNIFORM_SHARE / logits.shape[-1]
    return probs.log()


def sample_straight_through(log_probs: Tensor) -> Tensor:
    """One-hot samples of the same shape, with the gradient of the probabilities."""
    probs = log_probs.exp()
    index = torch.multinomial(probs.detach().reshape(-1, probs.shape[-1]), 1).reshape(probs.shape[:-1])
    drawn = torch.nn.functional.one_hot(index, probs.shape[-1]).to(probs.dtype)
    return drawn + probs - probs.detach()


def kl_of_categoricals(log_p: Tensor, log_q: Tensor) -> Tensor:
    """KL(p, q), summed over the categoricals: [..., categoricals, classes] -> [...]."""
    return (log_p.exp() * (log_p - log_q)).sum((-1, -2))


def balanced_kl(posterior: Tensor, prior: Tensor, free_nats: float = 1.0) -> tuple[Tensor, Tensor]:
    """The dynamics and the representation loss (eq. 3): [..., categoricals, classes] -> [...] each.

    The first trains the prior towards the posterior, the second the posterior towards the prior. Less than `free_nats`
    is not worth a gradient.
    """
    dynamics = kl_of_categoricals(posterior.detach(), prior).clamp_min(free_nats)
    representation = kl_of_categoricals(posterior, prior.detach()).clamp_min(free_nats)
    return dynamics, representation


def lambda_returns(
    rewards: Tensor, continues: Tensor, values: Tensor, gamma: float, lambda_: float
) -> Tensor:
    """Bootstrapped lambda-returns (eq. 7).

    Args:
        rewards: [H, N], for the step to the state of the same row.
        continues: [H, N], the probability that the episode goes on in that state.
        values: [H, N], of that state.
        gamma: discount factor.
        lambda_: 0 trusts values, 1 trusts rewards.

    Returns:
        [H, N]: R_t = r_t + gamma * c_t * ((1 - lambda) * v_t + lambda * R_{t+1}), with R_H = v_{H-1} at the end.
    """
    result = torch.empty_like(values)
    following = values[-1]
    for t in range(len(values) - 1, -1, -1):
        mixed = (1 - lambda_) * values[t] + lambda_ * following
        following = rewards[t] + gamma * continues[t] * mixed
        result[t] = following
    return result


class ReturnScale:
    """The running range of returns, from their 5th to their 95th percentile (eq. 11 and 12)."""

    def __init__(self, decay: float) -> None:
        self._decay = decay
        self.low: float | None = None
        self.high: float | None = None

    def update(self, returns: Tensor) -> float:
        """Takes note of returns, and gives the divisor of advantages: the range, at least 1."""
        shares = torch.tensor([0.05, 0.95], device=returns.device)
        low, high = torch.quantile(returns.float().flatten(), shares).tolist()
        if self.low is None or self.high is None:
            self.low, self.high = low, high
        else:
            self.low = self._decay * self.low + (1 - self._decay) * low
            self.high = self._decay * self.high + (1 - self._decay) * high
        return max(1.0, self.high - self.low)
