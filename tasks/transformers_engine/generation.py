"""One request through `generate`: greedy or sampled, assisted or not, with each step and each draft seen.

transformers reports no acceptance. So `CandidateGenerator.update_candidate_strategy(input_ids, scores, num_matches)` is
wrapped (transformers 5.19, `generation/utils.py`, `_assisted_decoding`). `generate` calls it once per step with the
logits of the drafted tokens and of one more, and with the number that it keeps.

K is constant, or where a schedule begins (`--num-assistant-tokens-schedule`): two more after a draft that was kept
whole, else one fewer. A step drafts fewer near the answer's end, and prompt lookup also where it finds less. Accepted
tokens are those that are committed beyond one a step. Nothing after an answer's end is counted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from transformers import GenerationConfig, StoppingCriteria, StoppingCriteriaList

from tasks.transformers_engine.arguments import Arguments
from tasks.transformers_engine.asked import Asked, BadRequest, asked
from tasks.transformers_engine.loading import HOOK, Loaded, Memory
from tasks.transformers_engine.turns import Logprob

LOGPROB_ROWS = 64  # normalised at a time: a vocabulary of 262 144 in float32 takes 64 MiB for each 64
OnDraft = Callable[[int, int], None]


class Generator:
    """A loaded target, and whatever drafts for it."""

    def __init__(self, loaded: Loaded, arguments: Arguments, memory: Memory) -> None:
        self._loaded, self._arguments, self._memory = loaded, arguments, memory
        self._on_draft: OnDraft
        if arguments.k is not None:
            _count_drafts(loaded.model, lambda drafted, accepted: self._on_draft(drafted, accepted))

    def tokens_of(self, wanted: Asked) -> list[int]:
        """The prompt as the model's own chat template renders it. Raises BadRequest: it refuses the messages."""
        tokenizer = self._loaded.tokenizer
        try:
            text = tokenizer.apply_chat_template(
                wanted.messages,
                tokenize=False,
                add_generation_prompt=wanted.add_generation_prompt,
                **wanted.template_kwargs,
            )
        except Exception as error:  # a template raises whatever it likes: jinja's errors, or a plain TypeError
            raise BadRequest(f"messages: the chat template refuses them: {error}") from error
        ids: list[int] = tokenizer(text, add_special_tokens=False)["input_ids"]
        return ids

    def decode(self, token_ids: Sequence[int]) -> str:
        """Tokens as text, without special ones."""
        return str(self._loaded.tokenizer.decode(token_ids, skip_special_tokens=True))

    def token_text(self, token: int) -> str:
        """A single token, special ones included."""
        return str(self._loaded.tokenizer.decode([token]))

    def id_of(self, token: str) -> int:
        """The id of a special token."""
        return int(self._loaded.tokenizer.convert_tokens_to_ids(token))

    def ends(self, token: int) -> bool:
        """Whether the token ends an answer."""
        return token in self._loaded.eos

    def warm_up(self) -> None:
        """A few tokens: what can't be served shows before anyone asks, and the first request pays for no set-up.

        A K that moves begins again behind it.
        """
        wanted = asked({"messages": [{"role": "user", "content": "hello"}], "temperature": 0, "ignore_eos": True})
        self.generate(self.tokens_of(wanted), wanted, 8, lambda drafted, accepted: None, lambda new: False)
        if self._loaded.assistant is not None:
            self._loaded.assistant.generation_config.num_assistant_tokens = self._arguments.num_assistant_tokens

    def generate(
        self,
        prompt: Sequence[int],
        wanted: Asked,
        max_tokens: int,
        on_draft: OnDraft,
        on_tokens: Callable[[list[int]], bool],
    ) -> list[Logprob] | None:
        """Decode one request; as `turns.Generates` says."""
        if wanted.seed is not None:
            torch.manual_seed(wanted.seed)
        self._on_draft = on_draft
        input_ids = torch.tensor([list(prompt)], dtype=torch.long, device=self._loaded.device)
        with self._memory.of_request(counts=wanted.top_logprobs is None):
            output = self._loaded.model.generate(
                input_ids=input_ids,
                attention_mask=torch.ones_like(input_ids),
                generation_config=GenerationConfig(**self._config(wanted, max_tokens)),
                stopping_criteria=StoppingCriteriaList([_EachStep(len(prompt), on_tokens)]),
                **({} if self._loaded.assistant is None else {"assistant_model": self._loaded.assistant}),
            )
        if wanted.top_logprobs is None:
            return None
        return _logprobs(output.logits, output.sequences[0, len(prompt) :], wanted.top_logprobs)

    def _config(self, wanted: Asked, max_tokens: int) -> Mapping[str, Any]:
        config: dict[str, Any] = {
            "max_new_tokens": max_tokens,
            "do_sample": wanted.temperature > 0,
            # without an end token, one that is written ends nothing: as vLLM's ignore_eos, which suppresses none
            "eos_token_id": None if wanted.ignore_eos else sorted(self._loaded.eos) or None,
            "pad_token_id": self._loaded.tokenizer.pad_token_id,
            "return_dict_in_generate": True,
            "output_logits": wanted.top_logprobs is not None,
        }
        if wanted.temperature > 0:
            config |= {"temperature": wanted.temperature, "top_p": wanted.top_p, "top_k": wanted.top_k}
        if self._arguments.prompt_lookup_num_tokens is not None:
            config["prompt_lookup_num_tokens"] = self._arguments.prompt_lookup_num_tokens
            config["max_matching_ngram_size"] = self._arguments.max_matching_ngram_size
        return config


class _EachStep(StoppingCriteria):  # type: ignore[misc]  # transformers isn't installed where this is checked
    """Is asked after each step whether to stop, and so sees what the step wrote."""

    def __init__(self, prompt_tokens: int, on_tokens: Callable[[list[int]], bool]) -> None:
        self._seen, self._on_tokens = prompt_tokens, on_tokens

    def __call__(self, input_ids: Any, scores: Any, **kwargs: Any) -> Any:
        new = input_ids[0, self._seen :].tolist()
        self._seen = input_ids.shape[1]
        return torch.full((1,), self._on_tokens(new), dtype=torch.bool, device=input_ids.device)


def _count_drafts(model: Any, on_draft: OnDraft) -> None:
    """Let each candidate generator of a model tell how many tokens a step drafted, and how many of them were kept."""
    make = getattr(model, HOOK)

    def make_counted(*args: Any, **kwargs: Any) -> Any:
        generator = make(*args, **kwargs)
        update = generator.update_candidate_strategy

        def update_and_count(input_ids: Any, scores: Any, num_matches: Any) -> None:
            on_draft(scores.shape[1] - 1, int(num_matches))
            update(input_ids, scores, num_matches)

        generator.update_candidate_strategy = update_and_count
        return generator

    setattr(model, HOOK, make_counted)


def _logprobs(logits: Sequence[Any], token_ids: Any, top: int) -> list[Logprob]:
    """Log-softmax of the target's own logits, before temperature, at each written token; the best `top` beside it."""
    found: list[Logprob] = []
    for begin in range(0, len(logits), LOGPROB_ROWS):
        rows = torch.cat(list(logits[begin : begin + LOGPROB_ROWS])).float().log_softmax(-1)
        ids = token_ids[begin : begin + len(rows)].to(rows.device)
        written = rows.gather(1, ids[:, None])[:, 0].tolist()
        values, places = rows.topk(top, dim=-1) if top else (rows[:, :0], rows[:, :0].long())
        best = [list(zip(*each, strict=True)) for each in zip(places.tolist(), values.tolist(), strict=True)]
        found += [Logprob(*each) for each in zip(ids.tolist(), written, best, strict=True)]
    return found
