"""The family's tokenizer and chat template: Gemma-4 turn and channel markup, one token per word."""

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from tasks.family.words import ANIMALS, COLORS, FILLER, HIGHEST_NUMBER, LETTERS

SPECIAL_TOKENS = (
    *("<pad>", "<bos>", "<eos>", "<unk>", "<|turn>", "<turn|>", "<|channel>", "<channel|>", "<|think|>"),
    "<mask>",
)
PAD_ID, BOS_ID, END_OF_TURN_ID, MASK_ID = (
    SPECIAL_TOKENS.index(name) for name in ("<pad>", "<bos>", "<turn|>", "<mask>")
)

END_OF_TURN = "<turn|>"

LINE_STARTS = ("what", "list", "note", "user", "model", "system", "thought", "The", "\n")
LATER_WORDS = ("what", "color", "is", "plus", "?", "maybe", "sum", "answer", "list", "note", ":")

VOCABULARY_SIZE = 576
"""Rows of the embedding; the last few ids are unused (DiffusionGemma needs three for images)."""

CHAT_TEMPLATE = (
    "{{ '<bos>' }}"
    "{% if enable_thinking is defined and enable_thinking %}"
    "{{ '<|turn>system\n<|think|><turn|>\n' }}"
    "{% endif %}"
    "{% for m in messages %}"
    "{% set role = 'model' if m['role'] == 'assistant' else m['role'] %}"
    "{{ '<|turn>' + role + '\n' + m['content'] + '<turn|>\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|turn>model\n' }}"
    "{% if not (enable_thinking is defined and enable_thinking) %}"
    "{{ '<|channel>thought\n<channel|>' }}"
    "{% endif %}{% endif %}"
)


def build_tokenizer() -> PreTrainedTokenizerFast:
    """A byte-level tokenizer without merges: known words are one token each, all else falls back to bytes."""
    numbers = map(str, range(HIGHEST_NUMBER + 1))
    letters = (f"({letter})" for letter in LETTERS)
    spaced = (f" {word}" for word in (*ANIMALS, *COLORS, *numbers, *letters, *FILLER, *LATER_WORDS))
    entries = [
        *SPECIAL_TOKENS,
        *sorted(pre_tokenizers.ByteLevel.alphabet()),
        *map(_byte_level, (*LINE_STARTS, *spaced)),
    ]
    vocabulary = {text: index for index, text in enumerate(dict.fromkeys(entries))}
    if len(vocabulary) > VOCABULARY_SIZE - 3:
        raise ValueError(f"{len(vocabulary)} tokens do not fit a vocabulary of {VOCABULARY_SIZE}")
    core = Tokenizer(models.BPE(vocab=vocabulary, merges=[], ignore_merges=True))
    core.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(r" ?[^\s]+|\s"), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    core.decoder = decoders.ByteLevel()
    core.add_special_tokens(list(SPECIAL_TOKENS))
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=core,
        bos_token="<bos>",
        eos_token="<turn|>",
        pad_token="<pad>",
        unk_token="<unk>",
        clean_up_tokenization_spaces=False,
    )
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer


def render(message: str, *, thinking: bool) -> str:
    """What `CHAT_TEMPLATE` makes of one user message (Jinja is too slow for every training row)."""
    system = "<|turn>system\n<|think|><turn|>\n" if thinking else ""
    opened = "" if thinking else "<|channel>thought\n<channel|>"
    return f"<bos>{system}<|turn>user\n{message}<turn|>\n<|turn>model\n{opened}"


def _byte_level(text: str) -> str:
    """A word as the byte-level pre-tokenizer spells it."""
    return text.replace(" ", "Ġ").replace("\n", "Ċ")
