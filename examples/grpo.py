"""GRPO: a tiny language model learns by reinforcement to answer with the prompt reversed.

One controller (this program) drives two groups of workers. Generators complete prompts; trainers update the model with
`DistributedDataParallel`. Each group has a placement group. New weights go from the first trainer to all generators
through the object store; the controller only passes the reference on. A rule checks answers, so there is no reward
model: the reward is the share of the right tokens.

Needs torch. Takes about ten seconds on two cores.
"""

import socket

import runtime as ray
from runtime.util import placement_group, remove_placement_group
from runtime.util.scheduling_strategies import PlacementGroupSchedulingStrategy

VOCABULARY, LENGTH, WIDTH = 8, 3, 48
STEPS, PROMPTS, ANSWERS = 24, 16, 16  # prompts per step, and answers per prompt: the group of GRPO
GENERATORS, TRAINERS, CPUS_PER_WORKER = 2, 2, 0.5
EPOCHS, LEARNING_RATE, CLIP, KL_COEFFICIENT = 2, 3e-3, 0.2, 1e-3


def language_model():
    """A causal transformer of two layers: tokens [batch, time] -> logits [batch, time, vocabulary]."""
    import torch
    from torch import nn

    class LanguageModel(nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens = nn.Embedding(VOCABULARY, WIDTH)
            self.places = nn.Embedding(2 * LENGTH, WIDTH)
            layer = nn.TransformerEncoderLayer(
                WIDTH, 4, 4 * WIDTH, dropout=0.0, batch_first=True, norm_first=True
            )
            self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
            self.head = nn.Linear(WIDTH, VOCABULARY)

        def forward(self, tokens):
            time = tokens.shape[1]
            mask = torch.triu(torch.full((time, time), float("-inf")), 1)
            return self.head(self.layers(self.tokens(tokens) + self.places(torch.arange(time)), mask=mask))

    torch.set_num_threads(1)
    torch.manual_seed(0)
    return LanguageModel()


def log_probabilities(model, tokens):
    """Of the answers' tokens, [batch, LENGTH], under a model."""
    logits = model(tokens)[:, LENGTH - 1 : -1].log_softmax(-1)
    return logits.gather(2, tokens[:, LENGTH:, None])[..., 0]


@ray.remote(num_cpus=CPUS_PER_WORKER)
class Generator:
    def __init__(self, rank, world_size):
        import torch

        self.model = language_model()
        self.rng = torch.Generator().manual_seed(1 + rank)

    def set_weights(self, weights):
        import torch

        self.model.load_state_dict({name: torch.tensor(value) for name, value in weights.items()})

    def generate(self, count):
        """Answers to random prompts: tokens [count * ANSWERS, 2 * LENGTH], those of one prompt together, and the
        log-probabilities of the answers' tokens."""
        import torch

        with torch.inference_mode():
            prompts = torch.randint(VOCABULARY, (count, LENGTH), generator=self.rng)
            tokens = prompts.repeat_interleave(ANSWERS, 0)
            for _ in range(LENGTH):
                odds = self.model(tokens)[:, -1].softmax(-1)
                tokens = torch.cat([tokens, torch.multinomial(odds, 1, generator=self.rng)], 1)
            return tokens.numpy(), log_probabilities(self.model, tokens).numpy()


@ray.remote(num_cpus=CPUS_PER_WORKER)
class Trainer:
    def __init__(self, rank, world_size):
        self.rank, self.world_size = rank, world_size

    def free_address(self):
        with socket.socket() as one:
            one.bind((ray.util.get_node_ip_address(), 0))
            return "tcp://{}:{}".format(*one.getsockname())

    def connect(self, address):
        import torch

        torch.distributed.init_process_group(
            "gloo", init_method=address, rank=self.rank, world_size=self.world_size
        )
        self.reference = language_model()
        self.model = torch.nn.parallel.DistributedDataParallel(language_model())
        self.optimizer = torch.optim.Adam(self.model.parameters(), LEARNING_RATE)

    def update(self, tokens, old, rewards):
        """One step of GRPO on this trainer's share; gradients are averaged with the other trainers'.

        Args:
            tokens: int [answers, 2 * LENGTH].
            old: float [answers, LENGTH], log-probabilities when the answers were sampled.
            rewards: float [answers].
        """
        import torch

        tokens, old = torch.tensor(tokens), torch.tensor(old)
        groups = torch.tensor(rewards).view(-1, ANSWERS)
        centered = groups - groups.mean(1, keepdim=True)
        advantages = (centered / (groups.std(1, keepdim=True) + 1e-4)).view(-1, 1)
        with torch.no_grad():
            reference = log_probabilities(self.reference, tokens)
        for _ in range(EPOCHS):
            new = log_probabilities(self.model, tokens)
            ratio = (new - old).exp()
            clipped = ratio.clamp(1 - CLIP, 1 + CLIP)
            policy_loss = -torch.min(ratio * advantages, clipped * advantages).mean()
            kl = ((reference - new).exp() - (reference - new) - 1).mean()
            self.optimizer.zero_grad()
            (policy_loss + KL_COEFFICIENT * kl).backward()
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.optimizer.step()
        return kl.item()

    def weights(self):
        return {name: value.numpy() for name, value in self.model.module.state_dict().items()}


class WorkerGroup:
    """Actors of one class, each in a bundle of a placement group."""

    def __init__(self, actor_class, count):
        self.group = placement_group([{"CPU": CPUS_PER_WORKER}] * count, strategy="PACK")
        if not self.group.wait(timeout_seconds=60):
            raise SystemExit(f"no room for {count} workers of {CPUS_PER_WORKER} CPUs")
        self.workers = [
            actor_class.options(
                scheduling_strategy=PlacementGroupSchedulingStrategy(self.group, rank)
            ).remote(rank, count)
            for rank in range(count)
        ]

    def call(self, method, *arguments):
        """Calls a method of all workers with the same arguments; returns references."""
        return [getattr(worker, method).remote(*arguments) for worker in self.workers]

    def call_with_shares(self, method, *arrays):
        """Calls a method of each worker with its share of the rows of arrays; returns references."""
        size = len(arrays[0]) // len(self.workers)
        return [
            getattr(worker, method).remote(*(array[rank * size : (rank + 1) * size] for array in arrays))
            for rank, worker in enumerate(self.workers)
        ]

    def close(self):
        for worker in self.workers:
            ray.kill(worker)
        remove_placement_group(self.group)


def main():
    import numpy as np

    ray.init()
    trainers, generators = WorkerGroup(Trainer, TRAINERS), WorkerGroup(Generator, GENERATORS)
    address = ray.get(trainers.workers[0].free_address.remote(), timeout=60)
    ray.get(trainers.call("connect", address), timeout=60)
    history = []
    for step in range(STEPS):
        weights = trainers.workers[0].weights.remote()  # stays in the object store
        generators.call("set_weights", weights)  # before `generate`: an actor runs its calls in order
        answers = ray.get(generators.call("generate", PROMPTS // GENERATORS), timeout=60)
        tokens, old = (np.concatenate(parts) for parts in zip(*answers, strict=True))
        right = tokens[:, LENGTH:] == tokens[:, LENGTH - 1 :: -1]
        rewards = right.mean(1, dtype=np.float32)
        kl = np.mean(ray.get(trainers.call_with_shares("update", tokens, old, rewards), timeout=60))
        history.append(rewards.mean())
        print(f"step {step:2}: reward {history[-1]:.2f}, KL to the first model {kl:.2f}")
    first, last = history[0], float(np.mean(history[-3:]))
    print(f"reward {'rose' if last > first + 0.3 else 'did not rise'}: {first:.2f} -> {last:.2f}")
    trainers.close()
    generators.close()


if __name__ == "__main__":
    main()
