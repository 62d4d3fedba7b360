"""A tree of sums over non-negative weights: draw leaves in proportion to their weight, change many weights at once.

Nodes have `FANOUT` children, so that the tree of a million leaves has four levels and each step over many leaves is a
few NumPy calls instead of twenty. A parent is always computed again from its children, so rounding does not add up.
"""

from __future__ import annotations

import numpy as np

FANOUT = 32


class SumTree:
    """Weights of `capacity` leaves, all 0 at first.

    Args:
        capacity: the number of leaves, at least 1.
    """

    def __init__(self, capacity: int) -> None:
        if capacity < 1:
            raise ValueError(f"A sum tree needs at least one leaf, not {capacity}")
        self.capacity = capacity
        self._sums: list[
            np.ndarray
        ] = []  # leaves first, the children of the root last: float64 [nodes, FANOUT]
        self._minima: list[np.ndarray] = []  # of the weights above 0; infinity where there is none
        nodes = capacity
        while True:
            nodes = -(-nodes // FANOUT)
            self._sums.append(np.zeros((nodes, FANOUT)))
            self._minima.append(np.full((nodes, FANOUT), np.inf))
            if nodes == 1:
                break
        self._leaves = self._sums[0].reshape(-1)
        self._leaf_minima = self._minima[0].reshape(-1)

    @property
    def total(self) -> float:
        """The sum of all weights."""
        return float(self._sums[-1][0].sum())

    @property
    def smallest(self) -> float:
        """The smallest weight above 0; infinity if all are 0."""
        return float(self._minima[-1][0].min())

    def get(self, leaves: np.ndarray) -> np.ndarray:
        """float64 [n], the weights of these leaves."""
        return self._leaves[leaves]

    def set(self, leaves: np.ndarray, weights: np.ndarray) -> None:
        """Change weights. Of a leaf given twice, the last weight counts.

        Args:
            leaves: int64 [n].
            weights: float64 [n], finite and not negative.

        Raises:
            ValueError: a weight is negative or not finite.
        """
        if not len(leaves):
            return
        smallest = weights.min()
        if not (smallest >= 0 and weights.max() < np.inf):
            raise ValueError("Weights of a sum tree must be finite and not negative")
        self._leaves[leaves] = weights
        self._leaf_minima[leaves] = weights if smallest > 0 else np.where(weights > 0, weights, np.inf)
        nodes = leaves
        for level in range(len(self._sums) - 1):
            nodes = nodes // FANOUT
            if len(nodes) > FANOUT:
                nodes = np.unique(nodes)
            self._sums[level + 1].reshape(-1)[nodes] = self._sums[level][nodes].sum(1)
            self._minima[level + 1].reshape(-1)[nodes] = self._minima[level][nodes].min(1)

    def find(self, masses: np.ndarray) -> np.ndarray:
        """The leaves where the running sum of weights first exceeds these masses.

        Args:
            masses: float64 [n], each in [0, total).

        Returns:
            int64 [n], leaves with a weight above 0.

        Raises:
            ValueError: all weights are 0.
        """
        if self.total <= 0:
            raise ValueError("A sum tree whose weights are all 0 has nothing to draw")
        nodes = np.zeros(len(masses), np.int64)
        left = masses
        every = np.arange(len(masses))
        for level in reversed(self._sums):
            children = level[nodes]
            running = children.cumsum(1)
            # Rounding may leave a mass at or above the node's sum: then the last child with a weight is meant.
            left = np.minimum(left, np.nextafter(running[:, -1], 0.0))
            chosen = (running <= left[:, None]).sum(1)
            left = np.maximum(left - (running[every, chosen] - children[every, chosen]), 0.0)
            nodes = nodes * FANOUT + chosen
        return nodes

    def draw(self, count: int, rng: np.random.Generator) -> np.ndarray:
        """int64 [count], leaves drawn in proportion to their weights, one from each of `count` equal parts of the sum.

        The strata lower the variance of a batch and leave each leaf's probability as it is (Schaul et al. 2016, B.2.1).
        """
        masses = (np.arange(count) + rng.random(count)) * (self.total / max(count, 1))
        return self.find(masses)
