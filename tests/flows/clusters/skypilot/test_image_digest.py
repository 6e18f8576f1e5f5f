"""Pinning an image, asked of a small registry on loopback that speaks HTTP API v2 with a token, as Docker Hub does."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar
from urllib.parse import parse_qs, urlparse

import pytest

from flows.renting.sky_site import ImageNotFound, parse_image, pinned_image
from tests.loopback import Answering, serving

DIGEST = "sha256:" + "5c" * 32


class _Registry(Answering):
    """One public image behind a token; `asked` are the requests that reached it."""

    asked: ClassVar[list[str]] = []

    def do_HEAD(self) -> None:
        self.asked.append(self.path)
        if self.headers.get("Authorization") != "Bearer anonymous":
            realm = f"http://{self.headers['Host']}/token"
            scope = f"repository:{self.path.split('/manifests/')[0].removeprefix('/v2/')}:pull"
            challenge = f'Bearer realm="{realm}",service="registry",scope="{scope}"'
            self.reply(401, headers={"WWW-Authenticate": challenge})
        elif self.path == "/v2/team/engine/manifests/v1" and "image.index.v1" in self.headers["Accept"]:
            self.reply(200, headers={"Docker-Content-Digest": DIGEST})
        else:
            self.reply(404)

    def do_GET(self) -> None:
        scope = parse_qs(urlparse(self.path).query)["scope"][0]
        self.reply(200 if scope.startswith("repository:team/") else 403, b'{"token": "anonymous"}')


@pytest.fixture
def registry() -> Iterator[str]:
    _Registry.asked.clear()
    with serving(_Registry) as address:
        yield address


def test_a_tag_becomes_the_digest_it_names_today(registry: str) -> None:
    assert pinned_image(f"{registry}/team/engine:v1") == f"{registry}/team/engine@{DIGEST}"


def test_a_pinned_image_is_used_as_it_is_without_asking(registry: str) -> None:
    image = f"{registry}/team/engine@{DIGEST}"
    assert pinned_image(image) == image and pinned_image(f"{registry}/team/engine:v1@{DIGEST}") == image
    assert _Registry.asked == []


@pytest.mark.parametrize("name", ["team/engine:v2", "other/engine:v1"])
def test_an_unknown_or_private_image_is_one_line_with_a_remedy(registry: str, name: str) -> None:
    with pytest.raises(ImageNotFound, match=r"can't be pinned: .* answers 40[14]; check its name and tag") as caught:
        pinned_image(f"{registry}/{name}")
    assert "\n" not in str(caught.value)


def test_a_registry_that_is_not_there_is_said_so() -> None:
    with pytest.raises(ImageNotFound, match=r"127\.0\.0\.1:1 does not answer"):
        pinned_image("127.0.0.1:1/team/engine:v1")


@pytest.mark.parametrize(
    ("image", "parts"),
    [
        ("vllm/vllm-openai:v0.32.0", ("registry-1.docker.io", "vllm/vllm-openai", "v0.32.0")),
        ("docker:ubuntu", ("registry-1.docker.io", "library/ubuntu", "latest")),
        ("ghcr.io/team/sub/engine", ("ghcr.io", "team/sub/engine", "latest")),
        ("localhost:5000/engine:x", ("localhost:5000", "engine", "x")),
    ],
)
def test_names_are_read_as_docker_reads_them(image: str, parts: tuple[str, str, str]) -> None:
    read = parse_image(image)
    assert (read.registry, read.repository, read.tag, read.digest) == (*parts, None)


@pytest.mark.parametrize("image", ["", "two words", "engine@sha256:short"])
def test_what_is_no_image_name_is_refused(image: str) -> None:
    with pytest.raises(ImageNotFound, match="no image name"):
        pinned_image(image)
