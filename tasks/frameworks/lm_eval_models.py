"""Who answers lm-eval: the tape over HTTP, or answers that are already there.

Runs inside the lm-eval environment. What lm-eval gets to grade has no thoughts in it, also where the engine left them
in the body: lm-eval removes them for models that it runs itself (`think_end_token`), but not behind an API.
"""

from __future__ import annotations

import json
import os
from typing import Any

from lm_eval.api.model import LM
from lm_eval.models.openai_completions import LocalChatCompletion

from tasks.frameworks.job import Job
from tasks.frameworks.thoughts import without_thoughts

TIMEOUT_S = 24 * 3600
"""Longer than any answer: whether a request makes progress is the tape's to judge."""

TRIES = 3
"""Of one request. The tape holds back what an engine may still answer, so a failure that comes through is for good."""

LEFT_TO_THE_TAPE = ("stop", "seed", "temperature")


class Tape(LocalChatCompletion):  # type: ignore[misc]
    """lm-eval's own chat client; silent about sampling, and an answer without choices is an error, not a blank."""

    def __init__(self, job: Job) -> None:
        # one request at a time goes through `requests`, which would send it to the node's proxy
        os.environ["NO_PROXY"] = os.environ["no_proxy"] = f"{os.environ.get('NO_PROXY', '')},127.0.0.1,localhost"
        super().__init__(
            base_url=f"{job.base_url}/chat/completions",
            model=job.model,
            num_concurrent=job.concurrency,
            max_retries=TRIES,
            max_gen_toks=job.max_tokens,
            timeout=TIMEOUT_S,
            tokenizer_backend=None,
        )

    def _create_payload(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        payload: dict[str, Any] = super()._create_payload(*args, **kwargs)
        return {key: value for key, value in payload.items() if key not in LEFT_TO_THE_TAPE}

    def parse_generations(self, outputs: Any, **kwargs: Any) -> list[str]:
        """The texts, thoughts removed; lm-eval makes "" of null content, and would of a reply that is no answer."""
        for output in outputs if isinstance(outputs, list) else [outputs]:
            if not output.get("choices"):
                raise ValueError(f"an answer without choices: {json.dumps(output)[:200]}")
        answers: list[str] = super().parse_generations(outputs, **kwargs)
        return [without_thoughts(answer) for answer in answers]


class Answered(LM):  # type: ignore[misc]
    """Answers by item id, so that what was asked once is graded again without an engine."""

    tokenizer_name = ""

    def __init__(self, answers: dict[str, str]) -> None:
        super().__init__()
        self.answers = answers

    def generate_until(self, requests: Any, disable_tqdm: bool = False) -> list[str]:
        """The answers that there are, thoughts removed."""
        return [without_thoughts(self.answers[request.doc["item_id"]]) for request in requests]

    def apply_chat_template(self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True) -> str:
        """The messages as JSON, as lm-eval's chat clients keep them."""
        return json.dumps(chat_history, ensure_ascii=False)

    def loglikelihood(self, requests: Any, disable_tqdm: bool = False) -> Any:
        """No suite asks for it."""
        raise NotImplementedError

    def loglikelihood_rolling(self, requests: Any, disable_tqdm: bool = False) -> Any:
        """No suite asks for it."""
        raise NotImplementedError
