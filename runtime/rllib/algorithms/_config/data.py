"""Settings of recorded experience: reading and writing it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

from runtime.rllib.algorithms._config.settings import NotProvided, Settings, setter
from runtime.rllib.core.columns import Columns


class DataSettings(Settings):
    """`offline_data()`."""

    def _init_data(self) -> None:
        self.input_: Any = "sampler"
        self.offline_data_class: type | None = None
        self.input_read_method: str | Callable[..., Any] = "read_parquet"
        self.input_read_method_kwargs: dict[str, Any] = {}
        self.input_read_schema: dict[str, str] = {}
        self.input_read_episodes = False
        self.input_read_sample_batches = False
        self.input_read_batch_size: int | None = None
        self.input_filesystem: Any = None
        self.input_filesystem_kwargs: dict[str, Any] = {}
        self.input_compress_columns: list[str] = [Columns.OBS, Columns.NEXT_OBS]
        self.input_spaces_jsonable = True
        self.materialize_data = False
        self.materialize_mapped_data = True
        self.map_batches_kwargs: dict[str, Any] = {}
        self.iter_batches_kwargs: dict[str, Any] = {}
        self.ignore_final_observation = False
        self.prelearner_class: type | None = None
        self.prelearner_buffer_class: type | None = None
        self.prelearner_buffer_kwargs: dict[str, Any] = {}
        self.prelearner_module_synch_period = 10
        self.prelearner_use_recorded_module_states = False
        self.dataset_num_iters_per_learner: int | None = None
        self.input_config: dict[str, Any] = {}
        self.actions_in_input_normalized = False
        self.postprocess_inputs = False
        self.shuffle_buffer_size = 0
        self.offline_sampling = False
        self.output: Any = None
        self.output_config: dict[str, Any] = {}
        self.output_compress_columns: list[str] = [Columns.OBS, Columns.NEXT_OBS]
        self.output_max_file_size: float | None = 64 * 1024 * 1024
        self.output_max_rows_per_file: int | None = None
        self.output_write_remaining_data = False
        self.output_write_method = "write_parquet"
        self.output_write_method_kwargs: dict[str, Any] = {}
        self.output_filesystem: Any = None
        self.output_filesystem_kwargs: dict[str, Any] = {}
        self.output_write_episodes = True

    @setter
    def offline_data(
        self,
        *,
        input_: Any = NotProvided,
        offline_data_class: type | None = NotProvided,
        input_read_method: str | Callable[..., Any] = NotProvided,
        input_read_method_kwargs: dict[str, Any] = NotProvided,
        input_read_schema: dict[str, str] = NotProvided,
        input_read_episodes: bool = NotProvided,
        input_read_sample_batches: bool = NotProvided,
        input_read_batch_size: int | None = NotProvided,
        input_filesystem: Any = NotProvided,
        input_filesystem_kwargs: dict[str, Any] = NotProvided,
        input_compress_columns: list[str] = NotProvided,
        materialize_data: bool = NotProvided,
        materialize_mapped_data: bool = NotProvided,
        map_batches_kwargs: dict[str, Any] = NotProvided,
        iter_batches_kwargs: dict[str, Any] = NotProvided,
        ignore_final_observation: bool = NotProvided,
        prelearner_class: type | None = NotProvided,
        prelearner_buffer_class: type | None = NotProvided,
        prelearner_buffer_kwargs: dict[str, Any] = NotProvided,
        prelearner_module_synch_period: int = NotProvided,
        prelearner_use_recorded_module_states: bool = NotProvided,
        dataset_num_iters_per_learner: int | None = NotProvided,
        input_config: dict[str, Any] = NotProvided,
        actions_in_input_normalized: bool = NotProvided,
        postprocess_inputs: bool = NotProvided,
        shuffle_buffer_size: int = NotProvided,
        output: Any = NotProvided,
        output_config: dict[str, Any] = NotProvided,
        output_compress_columns: list[str] = NotProvided,
        output_max_file_size: float | None = NotProvided,
        output_max_rows_per_file: int | None = NotProvided,
        output_write_remaining_data: bool = NotProvided,
        output_write_method: str = NotProvided,
        output_write_method_kwargs: dict[str, Any] = NotProvided,
        output_filesystem: Any = NotProvided,
        output_filesystem_kwargs: dict[str, Any] = NotProvided,
        output_write_episodes: bool = NotProvided,
        offline_sampling: bool = NotProvided,
    ) -> Self:
        """Where recorded experience comes from, and where it is recorded.

        Args:
            input_: a path, a URI or a list of them; "sampler": environments.
            offline_data_class: a subclass of `OfflineData`.
            input_read_method: the name of a function of `runtime.data`, or a function that returns a dataset.
            input_read_method_kwargs: its arguments.
            input_read_schema: our names of columns -> those of the files.
            input_read_episodes: whether rows are packed episodes.
            input_read_sample_batches: whether rows are sample batches of the old API stack.
            input_read_batch_size: rows that are read at once.
            input_filesystem: a `pyarrow.fs` or fsspec file system, or "gcs", "s3" or "abs".
            input_filesystem_kwargs: its arguments.
            input_compress_columns: columns that are compressed.
            materialize_data: whether the raw data is kept in the object store.
            materialize_mapped_data: whether the prepared data is.
            map_batches_kwargs: arguments of `Dataset.map_batches` for the prelearner.
            iter_batches_kwargs: arguments of `Dataset.iter_batches`.
            ignore_final_observation: whether the observations after episodes' ends are replaced by zeros.
            prelearner_class: a subclass of `OfflinePreLearner`.
            prelearner_buffer_class: the replay buffer in it.
            prelearner_buffer_kwargs: its arguments.
            prelearner_module_synch_period: batches after which a prelearner gets new weights.
            prelearner_use_recorded_module_states: whether recorded states of recurrent modules are used.
            dataset_num_iters_per_learner: batches of each learner per iteration; None: one pass over the data.
            input_config: free settings for a reader of one's own.
            actions_in_input_normalized: whether recorded actions are in [-1, 1].
            postprocess_inputs: accepted as Ray's.
            shuffle_buffer_size: accepted as Ray's; see iter_batches_kwargs.
            output: a folder or URI, where runners record what they sample.
            output_config: free settings.
            output_compress_columns: columns that are compressed.
            output_max_file_size: bytes of a file.
            output_max_rows_per_file: rows of a file; goes before `output_max_file_size`.
            output_write_remaining_data: whether what does not fill a file is written at the end.
            output_write_method: a method of `Dataset`.
            output_write_method_kwargs: its arguments.
            output_filesystem: as `input_filesystem`.
            output_filesystem_kwargs: its arguments.
            output_write_episodes: whether rows are packed episodes, not time steps.
            offline_sampling: accepted as Ray's.
        """
        return self.apply(
            input_=input_,
            offline_data_class=offline_data_class,
            input_read_method=input_read_method,
            input_read_method_kwargs=input_read_method_kwargs,
            input_read_schema=input_read_schema,
            input_read_episodes=input_read_episodes,
            input_read_sample_batches=input_read_sample_batches,
            input_read_batch_size=input_read_batch_size,
            input_filesystem=input_filesystem,
            input_filesystem_kwargs=input_filesystem_kwargs,
            input_compress_columns=input_compress_columns,
            materialize_data=materialize_data,
            materialize_mapped_data=materialize_mapped_data,
            map_batches_kwargs=map_batches_kwargs,
            iter_batches_kwargs=iter_batches_kwargs,
            ignore_final_observation=ignore_final_observation,
            prelearner_class=prelearner_class,
            prelearner_buffer_class=prelearner_buffer_class,
            prelearner_buffer_kwargs=prelearner_buffer_kwargs,
            prelearner_module_synch_period=prelearner_module_synch_period,
            prelearner_use_recorded_module_states=prelearner_use_recorded_module_states,
            dataset_num_iters_per_learner=dataset_num_iters_per_learner,
            input_config=input_config,
            actions_in_input_normalized=actions_in_input_normalized,
            postprocess_inputs=postprocess_inputs,
            shuffle_buffer_size=shuffle_buffer_size,
            output=output,
            output_config=output_config,
            output_compress_columns=output_compress_columns,
            output_max_file_size=output_max_file_size,
            output_max_rows_per_file=output_max_rows_per_file,
            output_write_remaining_data=output_write_remaining_data,
            output_write_method=output_write_method,
            output_write_method_kwargs=output_write_method_kwargs,
            output_filesystem=output_filesystem,
            output_filesystem_kwargs=output_filesystem_kwargs,
            output_write_episodes=output_write_episodes,
            offline_sampling=offline_sampling,
        )
