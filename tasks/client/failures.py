"""What goes wrong with a request."""

from __future__ import annotations

from configs.errors import SpecsweepError


class RequestFailed(SpecsweepError):
    """An answer that can't be measured: an error status, a broken stream, or a request that the engine gave up."""


class Unanswered(RequestFailed):
    """No answer at all: nobody listens, or nothing moves. The next request would fare no better."""
