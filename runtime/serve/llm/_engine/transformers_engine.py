"""Models of the `transformers` library with continuous batching: for small models, CPUs and tests."""

from __future__ import annotations

import asyncio
import importlib.util
import logging
import threading
from collections import deque
from collections.abc import AsyncGenerator, Callable, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from runtime.data.llm.transformers_model import TransformersModel
from runtime.serve.llm._engine.batch import Batch, Row, check_cache
from runtime.serve.llm._engine.interface import Sampling, Token
from runtime.serve.llm._engine.sampling import Chooser

if TYPE_CHECKING:
    from runtime.serve.llm.config import LLMConfig

log = logging.getLogger(__name__)

MAX_NUM_SEQS = 32
"""Default of `max_num_seqs`: how many requests run at a time; further ones wait."""

_NO_PEFT = "LoRA adapters need the package peft: pip install peft."

CLOSE_S = 5.0
"""How long `close` waits for a step to end. The thread ends by itself after a longer one."""


class _Request:
    """A request, shared by the event loop, which reads `tokens`, and the engine's thread, which runs it."""

    def __init__(self, prompt: Sequence[int], sampling: Sampling, adapter: str | None) -> None:
        self.prompt = prompt
        self.sampling = sampling
        self.adapter = adapter
        self.tokens: asyncio.Queue[Token | BaseException] = asyncio.Queue()  # at most max_tokens
        self.is_over = False


class TransformersEngine:
    """See `interface.Engine`. One thread runs the model; requests for the same adapter share a batch.

    Of `engine_kwargs` it takes `max_num_seqs` and `max_model_len`; all others go to `from_pretrained`.
    """

    def __init__(self, llm_config: LLMConfig) -> None:
        options = dict(llm_config.engine_kwargs)
        self._max_num_seqs = int(options.pop("max_num_seqs", MAX_NUM_SEQS))
        if self._max_num_seqs < 1:
            raise ValueError(f"engine_kwargs: max_num_seqs must be at least 1, not {self._max_num_seqs}.")
        self.max_model_len: int | None = options.pop("max_model_len", None)
        self._options = options
        self._config = llm_config
        self._loaded: TransformersModel | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._wake = threading.Condition()
        self._waiting: deque[_Request] = deque()  # as many as the replica has slots
        self._calls: deque[tuple[Callable[[], Any], Future[Any]]] = deque()
        self._batches: dict[str | None, Batch] = {}
        self._adapters: Any = None  # peft's view of the model, once it has had an adapter
        self._closing = False
        self._broken: BaseException | None = None

    @property
    def tokenizer(self) -> Any:
        """Of the model."""
        return self._model.tokenizer

    @property
    def running(self) -> int:
        """How many requests run."""
        return sum(len(batch.rows) for batch in self._batches.values())

    @property
    def _model(self) -> TransformersModel:
        if self._loaded is None:
            raise RuntimeError("The engine has not been started: await start().")
        return self._loaded

    async def start(self) -> None:
        """See `interface.Engine`."""
        self._loop = asyncio.get_running_loop()
        self._loaded = loaded = await asyncio.to_thread(self._load)
        config = loaded.model.config.get_text_config()
        longest = getattr(config, "max_position_embeddings", None)
        if self.max_model_len is None:
            self.max_model_len = longest
        elif longest is not None and self.max_model_len > longest:
            raise ValueError(
                f"engine_kwargs: max_model_len is {self.max_model_len}, but the model has {longest} positions."
            )
        self._thread = threading.Thread(target=self._run, name="llm-engine", daemon=True)
        self._thread.start()

    def _load(self) -> TransformersModel:
        if self._config.lora_config is not None and importlib.util.find_spec("peft") is None:
            raise ImportError(_NO_PEFT)
        loading = self._config.model_loading_config
        user = "llm_engine='transformers'"
        loaded = TransformersModel(
            loading.local_source(), True, self._options, user, loading.tokenizer_source
        )
        check_cache(loaded)
        return loaded

    async def generate(
        self, prompt: Sequence[int], sampling: Sampling, adapter: str | None = None
    ) -> AsyncGenerator[Token, None]:
        """See `interface.Engine`."""
        request = _Request(prompt, sampling, adapter)
        with self._wake:
            self._refuse_closed()
            self._waiting.append(request)
            self._wake.notify()
        try:
            while True:
                token = await request.tokens.get()  # the thread ends every request, when it ends itself too
                if isinstance(token, BaseException):
                    raise token
                yield token
                if token.finish is not None:
                    return
        finally:
            request.is_over = True

    async def embed(self, prompts: Sequence[Sequence[int]]) -> list[Any]:
        """See `interface.Engine`: the mean of the last hidden states, of length 1."""

        def embeddings() -> list[Any]:
            self._use(None)
            return self._model.embeddings(prompts)

        return list(await self._on_thread(embeddings))

    async def load_lora(self, name: str, path: str) -> None:
        """See `interface.Engine`. Needs peft."""
        try:
            import peft  # takes seconds
        except ImportError as error:
            raise ImportError(f"{_NO_PEFT} ({error})") from error

        def load() -> None:
            if self._adapters is None:
                # Changes the model's layers; it is still called itself.
                self._adapters = peft.PeftModel.from_pretrained(
                    self._model.model, path, adapter_name=name
                ).eval()
            else:
                self._adapters.load_adapter(path, adapter_name=name)

        await self._on_thread(load)

    def unload_lora(self, name: str) -> None:
        """See `interface.Engine`."""

        def unload() -> None:
            self._batches.pop(name, None)
            self._adapters.delete_adapter(name)

        with self._wake:
            if not self._closing:
                self._calls.append((unload, Future()))
                self._wake.notify()

    async def check_health(self) -> None:
        """Raises the error of the model's last step, if it failed.

        Raises:
            RuntimeError: the engine does not run.
        """
        if self._thread is None or not self._thread.is_alive():
            raise RuntimeError("The engine's thread does not run.")
        if self._broken is not None:
            raise RuntimeError(f"The model failed in its last step: {self._broken!r}") from self._broken

    def close(self) -> None:
        """See `interface.Engine`. Waits for the step that runs."""
        with self._wake:
            self._closing = True
            self._wake.notify()
        if self._thread is not None:
            self._thread.join(CLOSE_S)

    def _refuse_closed(self) -> None:
        if self._closing or self._thread is None:
            raise RuntimeError("The engine is closed or was not started.")

    async def _on_thread(self, call: Callable[[], Any]) -> Any:
        """Runs a call on the engine's thread, between two steps."""
        future: Future[Any] = Future()
        with self._wake:
            self._refuse_closed()
            self._calls.append((call, future))
            self._wake.notify()
        return await asyncio.wrap_future(future)

    # ------------------------------------------------------------ the engine's thread

    def _run(self) -> None:
        try:
            while self._wait():
                self._make_calls()
                self._tell(self._step())
        except BaseException as error:
            log.exception("The engine's thread failed")
            self._broken = error
            raise
        finally:
            self._end()

    def _wait(self) -> bool:
        with self._wake:
            while not (self._closing or self._calls or self._waiting or self.running):
                self._wake.wait()  # until a request, a call or close() comes
            return not self._closing

    def _end(self) -> None:
        with self._wake:
            self._closing = True
        error = self._broken or RuntimeError("The engine was closed.")
        running = [row.key for batch in self._batches.values() for row in batch.rows]
        self._tell([(request, error) for request in [*running, *self._waiting]])
        for _, future in self._calls:
            if future.set_running_or_notify_cancel():
                future.set_exception(error)

    def _make_calls(self) -> None:
        while self._calls:
            call, future = self._calls.popleft()
            if not future.set_running_or_notify_cancel():
                continue
            try:
                future.set_result(call())
            except Exception as error:
                future.set_exception(error)

    def _step(self) -> list[tuple[_Request, Token | BaseException]]:
        """One step of every batch: requests that are over leave, waiting ones join, each gets a token."""
        told: list[tuple[_Request, Token | BaseException]] = []
        for batch in self._batches.values():
            batch.leave({row for row in batch.rows if row.key.is_over})
        joining = self._joining()
        for adapter in {**self._batches, **joining}:
            batch = self._batches.setdefault(adapter, Batch(self._model))
            new = joining.get(adapter, [])
            try:
                made = self._step_of(adapter, batch, new)
                self._broken = None
            except Exception as error:
                log.exception("A step of the model failed")
                self._broken = error
                told += [(row.key, error) for row in {*batch.rows, *new}]
                del self._batches[adapter]
                continue
            told += [(row.key, token) for row, token in made]
        for adapter in [adapter for adapter, batch in self._batches.items() if not batch.rows]:
            del self._batches[adapter]
        return told

    def _joining(self) -> dict[str | None, list[Row]]:
        """Waiting requests that may run now."""
        loaded = self._model
        joining: dict[str | None, list[Row]] = {}
        free = self._max_num_seqs - self.running
        while free > 0 and self._waiting:
            request = self._waiting.popleft()
            if request.is_over:
                continue
            chooser = Chooser(loaded.torch, request.sampling, loaded.ends, loaded.device)
            joining.setdefault(request.adapter, []).append(Row(request, request.prompt, chooser))
            free -= 1
        return joining

    def _step_of(self, adapter: str | None, batch: Batch, new: list[Row]) -> list[tuple[Row, Token]]:
        made: list[tuple[Row, Token]] = []
        self._use(adapter)
        if batch.rows:
            made += batch.step()
            batch.leave({row for row, token in made if token.finish is not None})
        if new:
            first = batch.join(new)
            batch.leave({row for row, token in first if token.finish is not None})
            made += first
        return made

    def _use(self, adapter: str | None) -> None:
        if adapter is not None:
            self._adapters.set_adapter(adapter)
            self._adapters.base_model.enable_adapter_layers()
        elif self._adapters is not None:
            self._adapters.base_model.disable_adapter_layers()

    def _tell(self, told: list[tuple[_Request, Token | BaseException]]) -> None:
        if not told:
            return

        def deliver() -> None:
            for request, token in told:
                request.tokens.put_nowait(token)

        assert self._loop is not None
        try:
            self._loop.call_soon_threadsafe(deliver)
        except RuntimeError:  # the loop is closed: nobody waits
            log.debug("Tokens came after the event loop was closed")
