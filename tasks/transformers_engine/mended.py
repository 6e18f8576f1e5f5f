"""A fault of transformers without which the engine's best pair doesn't start, mended where it is there."""

from __future__ import annotations

import inspect
from functools import partialmethod

from transformers.generation import candidate_generator

GEMMA4 = "SinglePositionMultiTokenCandidateGenerator"
"""What drafts with Gemma 4's own assistants."""

UNREAD = ("input_ids", "model_kwargs")
"""Arguments that its constructor requires, calls deprecated, and never reads."""


def mend() -> None:
    """Let Gemma 4's assistants draft in transformers 5.19.0.

    There `generate` no longer passes `UNREAD`, and the constructor still has no defaults for them: each request
    ends with a TypeError. Other releases have no such class, pass them, or don't require them.
    """
    found = getattr(candidate_generator, GEMMA4, None)
    if found is None:
        return
    required = inspect.signature(found.__init__).parameters
    if all(name in required and required[name].default is inspect.Parameter.empty for name in UNREAD):
        found.__init__ = partialmethod(found.__init__, **dict.fromkeys(UNREAD))
