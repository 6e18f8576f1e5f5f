"""Questions to what may never answer: on a node whose sshd lives, commands may hang, and SkyPilot waits for ever.

Who waits with it neither sees that the node is silent nor that its money is spent.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

Answer = TypeVar("Answer")

PATIENCE_S = 60.0
"""How long an answer is waited for; SkyPilot's own takes 1 to 20 s."""


class NoAnswer(Exception):
    """Nobody has answered, or the question before this one is still open."""


class Questions:
    """Asked one at a time, each in a thread of its own, that a question without an answer keeps."""

    def __init__(self) -> None:
        """Nothing is asked yet."""
        self._thread: threading.Thread | None = None

    def ask(self, question: Callable[[], Answer]) -> Answer:
        """The answer to a question; it raises what the question raises.

        Raises:
            NoAnswer: there is none within `PATIENCE_S`, or to an earlier one.
        """
        if self._thread is not None and self._thread.is_alive():
            raise NoAnswer("an earlier question has no answer yet")
        answer: Future[Answer] = Future()

        def wait() -> None:
            try:
                answer.set_result(question())
            except BaseException as error:
                answer.set_exception(error)

        self._thread = threading.Thread(target=wait, name="question", daemon=True)
        self._thread.start()
        self._thread.join(PATIENCE_S)
        if self._thread.is_alive():
            raise NoAnswer(f"no answer within {PATIENCE_S:.0f} s")
        return answer.result()
