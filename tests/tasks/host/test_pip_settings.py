"""Uv asks the indexes that pip was told to ask, or is not used."""

from __future__ import annotations

from pathlib import Path

import pytest

from tasks.host.pip_settings import UntoldError, for_uv

BEST = {"UV_INDEX_STRATEGY": "unsafe-best-match"}


@pytest.mark.parametrize(
    ("listed", "variables", "arguments"),
    [
        ("", {}, []),
        ("global.index-url='https://u:p@a/root'", {"UV_DEFAULT_INDEX": "https://u:p@a/root"}, []),
        ("global.extra-index-url='\\nfile:///b\\nhttps://c'", {"UV_INDEX": "file:///b https://c"}, []),
        (":env:.find-links='/wheels https://d'", {"UV_FIND_LINKS": "/wheels,https://d"}, []),
        (":env:.find-links='wheels'", {"UV_FIND_LINKS": str(Path.cwd() / "wheels")}, []),
        ("user.index-url='https://a'\nwheel.no-binary=':all:'", {}, []),
        ("global.cert='/ca.pem'\nglobal.client-cert='/me'", {"SSL_CERT_FILE": "/ca.pem", "SSL_CLIENT_CERT": "/me"}, []),
        ("global.constraint='/c'", {"UV_CONSTRAINT": "/c", "UV_BUILD_CONSTRAINT": "/c"}, []),
        ("global.trusted-host='a:8080 b'", {"UV_INSECURE_HOST": "a:8080 b"}, []),
        ("global.proxy='http://p:1'", {"HTTP_PROXY": "http://p:1", "HTTPS_PROXY": "http://p:1"}, []),
        ("global.timeout='15'\n:env:.default-timeout='180.5'", {"UV_HTTP_TIMEOUT": "180"}, []),
        ("global.retries='9'", {"UV_HTTP_RETRIES": "9"}, []),
        ("global.no-index='true'\nglobal.find-links='/w'", {"UV_FIND_LINKS": "/w"}, ["--no-index"]),
        ("global.no-index='false'", {}, []),
        (":env:.index-url='https://e'\nglobal.index-url='https://g'", {"UV_DEFAULT_INDEX": "https://e"}, []),
        (":env:.index-url='https://e'\ninstall.index-url='https://i'", {"UV_DEFAULT_INDEX": "https://e"}, []),
        ("install.index-url='https://i'\nglobal.index-url='https://g'", {"UV_DEFAULT_INDEX": "https://i"}, []),
        (":env:.disable-pip-version-check='1'\nglobal.progress-bar='off'", {}, []),
    ],
)
def test_uv_is_told_what_pip_was_told(listed: str, variables: dict[str, str], arguments: list[str]) -> None:
    assert for_uv(listed) == (BEST | variables, arguments)


@pytest.mark.parametrize("key", ["only-binary", "no-binary", "target", "use-feature", "never-heard-of"])
def test_what_uv_can_not_be_told_is_named_without_its_value(key: str) -> None:
    with pytest.raises(UntoldError) as error:
        for_uv(f"global.index-url='https://a'\ninstall.{key}='secret'")
    assert key in str(error.value) and "secret" not in str(error.value)
