"""A language model of two layers with random weights, and its tokenizer, made from scratch."""

from __future__ import annotations

TEXT = "the cat sat on the mat, and the dog ran after the cat"
TEMPLATE = (
    "{% for m in messages %}<{{ m['role'] }}>{{ m['content'] }}{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}{% if loud is defined %}!{% endif %}"
)


def save_tiny_llm(path: str, positions: int = 64) -> None:
    """Saves the model in a folder. Its end token is 2. Needs torch and transformers."""
    import tokenizers
    import torch
    import transformers

    bpe = tokenizers.Tokenizer(tokenizers.models.BPE(unk_token="<unk>"))
    bpe.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=300,
        special_tokens=["<unk>", "<s>", "</s>"],
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    bpe.train_from_iterator([TEXT] * 5, trainer)
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=bpe, unk_token="<unk>", bos_token="<s>", eos_token="</s>"
    )
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained(path)
    torch.manual_seed(0)
    shape = transformers.GPT2Config(
        vocab_size=len(tokenizer),
        n_layer=2,
        n_head=2,
        n_embd=32,
        n_positions=positions,
        bos_token_id=1,
        eos_token_id=2,
    )
    transformers.GPT2LMHeadModel(shape).save_pretrained(path)
