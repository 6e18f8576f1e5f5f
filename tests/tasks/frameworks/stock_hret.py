"""HRET's adapter with HRET's own OpenAI backend, as it was released: for showing what ours prevents."""

from functools import partial
from typing import Any

from llm_eval.models import register_model
from llm_eval.models.openai_backend import OpenAIModel

from tasks.frameworks import hret_adapter
from tasks.frameworks.job import serve


class Stock(OpenAIModel):  # type: ignore[misc]
    """Only keeps the text besides: the evaluator overwrites it."""

    async def _send_single_request_async(self, *args: Any, **settings: Any) -> dict[str, Any]:
        answered: dict[str, Any] = await super()._send_single_request_async(*args, **settings)
        return {**answered, "response": answered["prediction"]}


register_model("stock")(Stock)

if __name__ == "__main__":
    serve(hret_adapter.FRAMEWORK, partial(hret_adapter.run, backend="stock"))
