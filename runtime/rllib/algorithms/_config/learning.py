"""Settings of learners and modules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

from runtime.rllib.algorithms._config.settings import NotProvided, Settings, setter


class LearningSettings(Settings):
    """`training()`, `learners()`, `rl_module()` and `framework()`."""

    def _init_learning(self) -> None:
        self.gamma = 0.99
        self.lr: Any = 0.001
        self.grad_clip: float | None = None
        self.grad_clip_by = "global_norm"
        self._train_batch_size_per_learner: int | None = None
        self.train_batch_size = 32
        self.num_epochs = 1
        self.minibatch_size: int | None = None
        self.shuffle_batch_per_epoch = False

        self.num_learners = 0
        self.num_gpus_per_learner: float = 0
        self.num_cpus_per_learner: float | str = "auto"
        self.custom_resources_per_learner: dict[str, float] = {}
        self.num_aggregator_actors_per_learner = 0
        self.max_requests_in_flight_per_aggregator_actor: float = 3
        self.local_gpu_idx = 0
        self.max_requests_in_flight_per_learner = 3
        self._learner_class: type | None = None
        self._learner_connector: Callable[..., Any] | None = None
        self.add_default_connectors_to_learner_pipeline = True
        self.learner_config_dict: dict[str, Any] = {}

        self._model_config: Any = {}
        self._rl_module_spec: Any = None
        self.algorithm_config_overrides_per_module: dict[str, Any] = {}

        self.framework_str = "torch"
        self.torch_compile_learner = False
        self.torch_compile_learner_what_to_compile: Any = "forward_train"
        self.torch_compile_learner_dynamo_backend = "inductor"
        self.torch_compile_learner_dynamo_mode: str | None = None
        self.torch_compile_worker = False
        self.torch_compile_worker_dynamo_backend = "onnxrt"
        self.torch_compile_worker_dynamo_mode: str | None = None
        self.torch_ddp_kwargs: dict[str, Any] = {}
        self.torch_skip_nan_gradients = False

    @setter
    def training(
        self,
        *,
        gamma: float = NotProvided,
        lr: Any = NotProvided,
        grad_clip: float | None = NotProvided,
        grad_clip_by: str = NotProvided,
        train_batch_size: int = NotProvided,
        train_batch_size_per_learner: int = NotProvided,
        num_epochs: int = NotProvided,
        minibatch_size: int | None = NotProvided,
        shuffle_batch_per_epoch: bool = NotProvided,
        learner_class: type = NotProvided,
        learner_connector: Callable[..., Any] | None = NotProvided,
        add_default_connectors_to_learner_pipeline: bool = NotProvided,
        learner_config_dict: dict[str, Any] = NotProvided,
    ) -> Self:
        """How the loss is made smaller. Algorithms add their own settings.

        Args:
            gamma: the discount factor.
            lr: the learning rate, or a schedule [[timestep, value], ...] that is interpolated linearly.
            grad_clip: the limit of gradients; None: none.
            grad_clip_by: "value", "norm" (of each parameter) or "global_norm".
            train_batch_size: of all learners together; `train_batch_size_per_learner` goes before it.
            train_batch_size_per_learner: rows of one update of one learner.
            num_epochs: passes over a train batch.
            minibatch_size: rows per gradient; None: the train batch.
            shuffle_batch_per_epoch: whether rows are shuffled before each pass.
            learner_class: see `learners`.
            learner_connector: see `learners`.
            add_default_connectors_to_learner_pipeline: see `learners`.
            learner_config_dict: see `learners`.
        """
        if learner_config_dict is not NotProvided:
            self.learner_config_dict = {**self.learner_config_dict, **learner_config_dict}
        return self.apply(
            gamma=gamma,
            lr=lr,
            grad_clip=grad_clip,
            grad_clip_by=grad_clip_by,
            train_batch_size=train_batch_size,
            _train_batch_size_per_learner=train_batch_size_per_learner,
            num_epochs=num_epochs,
            minibatch_size=minibatch_size,
            shuffle_batch_per_epoch=shuffle_batch_per_epoch,
            _learner_class=learner_class,
            _learner_connector=learner_connector,
            add_default_connectors_to_learner_pipeline=add_default_connectors_to_learner_pipeline,
        )

    @setter
    def learners(
        self,
        *,
        num_learners: int = NotProvided,
        num_cpus_per_learner: float | str = NotProvided,
        num_gpus_per_learner: float = NotProvided,
        custom_resources_per_learner: dict[str, float] = NotProvided,
        num_aggregator_actors_per_learner: int = NotProvided,
        max_requests_in_flight_per_aggregator_actor: float = NotProvided,
        local_gpu_idx: int = NotProvided,
        max_requests_in_flight_per_learner: int = NotProvided,
        learner_class: type = NotProvided,
        learner_connector: Callable[..., Any] | None = NotProvided,
        add_default_connectors_to_learner_pipeline: bool = NotProvided,
        learner_config_dict: dict[str, Any] = NotProvided,
    ) -> Self:
        """Who computes gradients, and where.

        Args:
            num_learners: actors with data-parallel copies of the modules; 0: the algorithm's own process.
            num_cpus_per_learner: CPUs of an actor; "auto": one, or none if it has a GPU.
            num_gpus_per_learner: GPUs of an actor, also a fraction.
            custom_resources_per_learner: other resources of an actor.
            num_aggregator_actors_per_learner: has no effect: learners make their train batches.
            max_requests_in_flight_per_aggregator_actor: has no effect, either.
            local_gpu_idx: the GPU of a learner in the algorithm's process.
            max_requests_in_flight_per_learner: updates that a learner may have waiting.
            learner_class: a subclass of the algorithm's learner.
            learner_connector: function of (observation space, action space) that returns a connector or a list of them.
            add_default_connectors_to_learner_pipeline: whether the default pieces follow the given ones.
            learner_config_dict: free settings for a learner's code; merged with those of earlier calls.
        """
        self.warn_without_effect(
            "learners make their train batches themselves",
            num_aggregator_actors_per_learner=num_aggregator_actors_per_learner,
            max_requests_in_flight_per_aggregator_actor=max_requests_in_flight_per_aggregator_actor,
        )
        if learner_config_dict is not NotProvided:
            self.learner_config_dict = {**self.learner_config_dict, **learner_config_dict}
        return self.apply(
            num_learners=num_learners,
            num_cpus_per_learner=num_cpus_per_learner,
            num_gpus_per_learner=num_gpus_per_learner,
            custom_resources_per_learner=custom_resources_per_learner,
            num_aggregator_actors_per_learner=num_aggregator_actors_per_learner,
            max_requests_in_flight_per_aggregator_actor=max_requests_in_flight_per_aggregator_actor,
            local_gpu_idx=local_gpu_idx,
            max_requests_in_flight_per_learner=max_requests_in_flight_per_learner,
            _learner_class=learner_class,
            _learner_connector=learner_connector,
            add_default_connectors_to_learner_pipeline=add_default_connectors_to_learner_pipeline,
        )

    @setter
    def rl_module(
        self,
        *,
        model_config: Any = NotProvided,
        rl_module_spec: Any = NotProvided,
        algorithm_config_overrides_per_module: dict[str, Any] = NotProvided,
    ) -> Self:
        """The neural networks.

        Args:
            model_config: a `DefaultModelConfig`, or a dict: of its fields for a default module, or free for a module of
                one's own.
            rl_module_spec: an `RLModuleSpec` or `MultiRLModuleSpec`; None: the algorithm's default.
            algorithm_config_overrides_per_module: module id -> settings of its own, as a dict or as
                `PPOConfig.overrides(lr=...)`.
        """
        if algorithm_config_overrides_per_module is not NotProvided:
            self.algorithm_config_overrides_per_module = {
                **self.algorithm_config_overrides_per_module,
                **algorithm_config_overrides_per_module,
            }
        return self.apply(_model_config=model_config, _rl_module_spec=rl_module_spec)

    @setter
    def framework(
        self,
        framework: str = NotProvided,
        *,
        torch_compile_learner: bool = NotProvided,
        torch_compile_learner_what_to_compile: Any = NotProvided,
        torch_compile_learner_dynamo_mode: str | None = NotProvided,
        torch_compile_learner_dynamo_backend: str = NotProvided,
        torch_compile_worker: bool = NotProvided,
        torch_compile_worker_dynamo_backend: str = NotProvided,
        torch_compile_worker_dynamo_mode: str | None = NotProvided,
        torch_ddp_kwargs: dict[str, Any] = NotProvided,
        torch_skip_nan_gradients: bool = NotProvided,
    ) -> Self:
        """Settings of PyTorch.

        Args:
            framework: only "torch".
            torch_compile_learner: whether learners compile their modules with `torch.compile`.
            torch_compile_learner_what_to_compile: "forward_train" or "complete_update".
            torch_compile_learner_dynamo_mode: the mode of `torch.compile`.
            torch_compile_learner_dynamo_backend: its backend.
            torch_compile_worker: whether runners compile theirs.
            torch_compile_worker_dynamo_backend: their backend.
            torch_compile_worker_dynamo_mode: their mode.
            torch_ddp_kwargs: has no effect: learners average gradients themselves.
            torch_skip_nan_gradients: whether an update with gradients that are not finite is left out.

        Raises:
            ValueError: another framework.
        """
        self.warn_without_effect(
            "learners average gradients themselves, without DistributedDataParallel",
            torch_ddp_kwargs=torch_ddp_kwargs,
        )
        if framework is not NotProvided and framework != "torch":
            raise ValueError(f"framework must be 'torch', not {framework!r}: modules are torch modules only.")
        return self.apply(
            framework_str=framework,
            torch_compile_learner=torch_compile_learner,
            torch_compile_learner_what_to_compile=torch_compile_learner_what_to_compile,
            torch_compile_learner_dynamo_mode=torch_compile_learner_dynamo_mode,
            torch_compile_learner_dynamo_backend=torch_compile_learner_dynamo_backend,
            torch_compile_worker=torch_compile_worker,
            torch_compile_worker_dynamo_backend=torch_compile_worker_dynamo_backend,
            torch_compile_worker_dynamo_mode=torch_compile_worker_dynamo_mode,
            torch_ddp_kwargs=torch_ddp_kwargs,
            torch_skip_nan_gradients=torch_skip_nan_gradients,
        )
