"""PPO as one plain loop: a vector environment, one inference a step, torch. What an engine's convenience costs is
measured against it."""

from __future__ import annotations

from typing import Any

from rllib_work import CARTPOLE, WINDOW

GAMMA, LAMBDA, CLIP, EPOCHS, MINIBATCH = 0.99, 0.95, 0.2, 10, 256


class LoopTrainer:
    """CartPole with separate nets of two hidden layers for policy and values.

    Args:
        seed: of everything.
        envs: how many.
        native: whether to take gymnasium's vector CartPole, which steps all in NumPy.
    """

    def __init__(self, seed: int, envs: int = 8, native: bool = False) -> None:
        import gymnasium
        import numpy as np
        import torch

        self._envs, self._rng = envs, np.random.default_rng(seed)
        torch.manual_seed(seed)
        if native:
            self._env = gymnasium.make_vec(CARTPOLE, envs, vectorization_mode="vector_entry_point")
        else:
            same_step = gymnasium.vector.AutoresetMode.SAME_STEP
            self._env = gymnasium.make_vec(
                CARTPOLE, envs, vectorization_mode="sync", vector_kwargs={"autoreset_mode": same_step}
            )
        self._has_final_obs = not native
        self.actor, self.critic = _net(2, 0.01), _net(1, 1.0)
        self._parameters = [*self.actor.parameters(), *self.critic.parameters()]
        self._optimizer = torch.optim.Adam(self._parameters, lr=1e-3, eps=1e-5)
        self._obs = self._env.reset(seed=seed)[0]
        self._running, self.returns, self.steps = np.zeros(envs), [], 0

    def sample(self, length: int = 128) -> dict[str, Any]:
        """Arrays [length, environments, ...]."""
        import numpy as np
        import torch

        n = self._envs
        batch: dict[str, Any] = {
            name: np.empty((length, n), np.float32) for name in ("logp", "rewards", "values")
        }
        batch["obs"] = np.empty((length, n, 4), np.float32)
        batch["actions"], batch["ends"] = np.empty((length, n), np.int64), np.empty((length, n), np.float32)
        with torch.no_grad():
            for t in range(length):
                batch["obs"][t] = self._obs
                obs = torch.from_numpy(batch["obs"][t])
                logp = self.actor(obs).log_softmax(-1).numpy()
                batch["values"][t] = self.critic(obs)[:, 0].numpy()
                actions = (self._rng.random(n) >= np.exp(logp[:, 0])).astype(np.int64)
                batch["actions"][t], batch["logp"][t] = actions, logp[np.arange(n), actions]
                self._obs, rewards, terminated, truncated, info = self._env.step(actions)
                self._running += rewards
                over = terminated | truncated
                if over.any():
                    self.returns += self._running[over].tolist()
                    self._running[over] = 0
                    if self._has_final_obs and truncated.any():  # the episode would have gone on
                        last = np.stack([info["final_obs"][i] for i in np.flatnonzero(truncated)])
                        values = self.critic(torch.from_numpy(last.astype(np.float32)))[:, 0].numpy()
                        rewards = rewards.copy()
                        rewards[truncated] += GAMMA * values
                batch["rewards"][t], batch["ends"][t] = rewards, over
            batch["next"] = self.critic(torch.from_numpy(self._obs.astype(np.float32)))[:, 0].numpy()
        self.steps += length * n
        return batch

    def learn(self, batch: dict[str, Any]) -> None:
        """Ten epochs of minibatches."""
        import numpy as np
        import torch

        advantages, last, following = np.empty_like(batch["rewards"]), 0.0, batch["next"]
        for t in reversed(range(len(advantages))):
            alive = 1 - batch["ends"][t]
            delta = batch["rewards"][t] + GAMMA * following * alive - batch["values"][t]
            advantages[t] = last = delta + GAMMA * LAMBDA * alive * last
            following = batch["values"][t]
        names = ("obs", "actions", "logp")
        flat = {name: torch.from_numpy(batch[name].reshape(-1, *batch[name].shape[2:])) for name in names}
        all_advantages = torch.from_numpy(advantages.reshape(-1))
        targets = all_advantages + torch.from_numpy(batch["values"].reshape(-1))
        for _ in range(EPOCHS):
            for rows in torch.randperm(len(targets)).split(MINIBATCH):
                advantage = all_advantages[rows]
                advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
                logp = self.actor(flat["obs"][rows]).log_softmax(-1)
                ratio = (logp.gather(1, flat["actions"][rows, None])[:, 0] - flat["logp"][rows]).exp()
                gain = torch.min(ratio * advantage, ratio.clamp(1 - CLIP, 1 + CLIP) * advantage).mean()
                error = (self.critic(flat["obs"][rows])[:, 0] - targets[rows]).square().mean()
                self._optimizer.zero_grad()
                (0.5 * error - gain).backward()
                torch.nn.utils.clip_grad_norm_(self._parameters, 0.5)
                self._optimizer.step()

    def iterate(self) -> float:
        """Samples and learns; the mean return of the last episodes."""
        self.learn(self.sample())
        last = self.returns[-WINDOW:]
        return sum(last) / len(last) if last else float("nan")

    def greedy(self, obs: Any) -> Any:
        """The best actions."""
        import torch

        with torch.no_grad():
            return self.actor(torch.from_numpy(obs)).argmax(-1).numpy()


def _net(outputs: int, gain: float) -> Any:
    import torch

    layers: list[Any] = []
    for n, m, scale in ((4, 64, 2**0.5), (64, 64, 2**0.5), (64, outputs, gain)):
        linear = torch.nn.Linear(n, m)
        torch.nn.init.orthogonal_(linear.weight, scale)
        torch.nn.init.zeros_(linear.bias)
        layers += [linear, torch.nn.Tanh()]
    return torch.nn.Sequential(*layers[:-1])
