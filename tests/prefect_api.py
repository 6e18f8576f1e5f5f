"""How tests look at a Prefect server: by one client, as `httpx.get` loads all certificates for each look (17 ms)."""

from __future__ import annotations

from typing import Any

import httpx

from flows.terminal.prefect_session import PrefectSession

SELDOM_S = 0.5
"""Between two looks at what takes half a minute: each costs the server 10 ms, on the cores that the thing needs."""

_CLIENT = httpx.Client(timeout=120, trust_env=False, limits=httpx.Limits(max_keepalive_connections=0))


def api(session: PrefectSession, method: str, path: str, body: object = None) -> Any:
    for _ in range(20):
        answer = _CLIENT.request(method, f"{session.url}/api/{path}", json=body)
        if answer.status_code != httpx.codes.SERVICE_UNAVAILABLE:  # while its database is busy Prefect's own asks again
            break
    assert answer.is_success, answer.text
    return answer.json() if answer.content else None
