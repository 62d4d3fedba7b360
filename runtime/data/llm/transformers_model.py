"""A model of the `transformers` library with its tokenizer, for the engines of batch inference and of serving."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


class TransformersModel:
    """A loaded model.

    Attributes:
        torch: the module.
        device: "cuda" if there is a GPU, else "cpu".
        model, tokenizer: of the library.
        pad: the token to pad with.
        ends: the tokens that end a text.
    """

    def __init__(
        self,
        source: str,
        generates: bool,
        options: Mapping[str, Any],
        user: str,
        tokenizer: str | None = None,
    ) -> None:
        """Loads the model.

        Args:
            source: a name or a folder.
            generates: whether it has to predict tokens, too.
            options: of `from_pretrained`.
            user: who needs the packages, for the error.
            tokenizer: its name or folder; None: as `source`.

        Raises:
            ImportError: torch or transformers is missing.
        """
        try:
            import torch
            import transformers
        except ImportError as error:
            raise ImportError(
                f"{user} needs torch and transformers: pip install torch 'clusterctl[llm]' ({error})."
            ) from error
        self.torch = torch
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        self.tokenizer = transformers.AutoTokenizer.from_pretrained(tokenizer or source)
        kind = transformers.AutoModelForCausalLM if generates else transformers.AutoModel
        self.model = kind.from_pretrained(source, **options).to(self.device).eval()
        self.pad = self.tokenizer.pad_token_id
        if self.pad is None:
            self.pad = self.tokenizer.eos_token_id or 0
        self.ends = self._ends()

    def _ends(self) -> frozenset[int]:
        generation = getattr(self.model, "generation_config", None)
        end = getattr(generation, "eos_token_id", None)
        return frozenset([end] if isinstance(end, int) else end or ())

    def padded(self, prompts: Sequence[Sequence[int]], on_the_left: bool) -> dict[str, Any]:
        """`input_ids` and `attention_mask` of shape (prompts, longest prompt), on the device.

        Args:
            on_the_left: for texts to be continued.
        """
        torch = self.torch
        width = max(map(len, prompts))
        ids = torch.full((len(prompts), width), self.pad)
        mask = torch.zeros((len(prompts), width), dtype=torch.long)
        for row, tokens in enumerate(prompts):
            place = slice(width - len(tokens), width) if on_the_left else slice(0, len(tokens))
            ids[row, place] = torch.tensor(tokens)
            mask[row, place] = 1
        return {"input_ids": ids.to(self.device), "attention_mask": mask.to(self.device)}

    def embeddings(self, prompts: Sequence[Sequence[int]]) -> list[Any]:
        """For each prompt the mean of the last hidden states, of length 1: an array of floats."""
        torch = self.torch
        inputs = self.padded(prompts, on_the_left=False)
        with torch.inference_mode():
            states = self.model.base_model(**inputs).last_hidden_state
            weights = inputs["attention_mask"].unsqueeze(-1).to(states.dtype)
            means = (states * weights).sum(1) / weights.sum(1)
            vectors = torch.nn.functional.normalize(means, dim=-1)
        return list(vectors.float().cpu().numpy())


def render_chat(tokenizer: Any, messages: Sequence[Any], options: Mapping[str, Any]) -> str:
    """The prompt that a chat template makes of messages. If the last one is the assistant's, the model continues it.

    Args:
        options: variables of the template; `chat_template` is another template.
    """
    asks = messages[-1]["role"] != "assistant"
    prompt: str = tokenizer.apply_chat_template(
        messages, tokenize=False, add_generation_prompt=asks, continue_final_message=not asks, **options
    )
    return prompt
