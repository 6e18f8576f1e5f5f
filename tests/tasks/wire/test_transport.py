"""The wire against a real server: whole answers and none other, connections that are reused, and what ends a wait."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from time import monotonic

import httpx
import pytest

from tasks.wire import connection
from tasks.wire.connection import Arrivals, Patience
from tasks.wire.transport import Transport
from tests.busy_machine import PATIENCE_S
from tests.tasks.wire.scripted_server import OK, Play, Scripted, close, hang, moved_by_hand, then_close


@asynccontextmanager
async def talking(*script: bytes | Play) -> AsyncIterator[tuple[httpx.AsyncClient, Transport, Scripted]]:
    """A client, its wire, and a server that plays `script`; they have 30 s."""
    async with asyncio.timeout(PATIENCE_S), Scripted(*script) as server:
        wire = Transport()
        async with httpx.AsyncClient(base_url=server.url, transport=wire, trust_env=False) as client:
            yield client, wire, server


def in_pieces(*pieces: bytes) -> Play:
    async def play(writer: asyncio.StreamWriter) -> None:
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0)

    return play


CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nhel\r\n2\r\nlo\r\n"
LARGE = b"x-large: " + b"v" * 200_000 + b"\r\n"


@pytest.mark.parametrize(
    ("answer", "body"),
    [
        (OK, b"ok"),
        (CHUNKED + b"0\r\n\r\n", b"hello"),
        (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: a\r\n\r\n" + OK, b"ok"),
        (then_close(b"HTTP/1.0 200 OK\r\n\r\nto the end"), b"to the end"),
        (then_close(b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nok"), b"ok"),
        (
            in_pieces(b"HTTP/1.1 20", b"0 OK\r\n" + LARGE[:1000], LARGE[1000:], b"content-length: 2\r\n\r\no", b"k"),
            b"ok",
        ),
        (b"HTTP/1.1 204 No Content\r\n\r\n", b""),
    ],
    ids=["length", "chunked", "1xx", "http-1.0", "close", "large-header-in-pieces", "no-content"],
)
async def test_an_answer_is_whole_however_it_is_framed(answer: bytes | Play, body: bytes) -> None:
    async with talking(answer) as (client, _, server):
        for _ in range(2):
            assert (await client.post("/x", content=b"{}")).content == body
        assert len(server.requests) == 2


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (then_close(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf"), "cut short after 4 bytes"),
        (then_close(CHUNKED), "cut short after 5 bytes"),
        (then_close(b"HTTP/1.1 200 OK\r\ncontent-le"), "cut short after 0 bytes"),
        (close, "closed before a byte of the answer came"),
        (b"what is this\r\n\r\n", "no HTTP/1.1"),
        (b"HTTP/1.1 200 OK\r\nx: " + b"v" * (2 << 20), "a header of more than"),
    ],
    ids=["length", "chunked", "head", "nothing", "other-protocol", "endless-header"],
)
async def test_an_answer_that_is_not_whole_is_an_error(answer: bytes | Play, said: str) -> None:
    async with talking(answer) as (client, _, server):
        with pytest.raises(httpx.RemoteProtocolError, match=said):
            await client.post("/x", content=b"{}")
        assert len(server.requests) == 1, "a POST is never sent twice"


async def test_connections_are_opened_beforehand_and_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async with talking(OK) as (client, wire, server):
        await wire.connect(client.base_url, 4)
        for _ in range(3):
            await asyncio.gather(*(client.post("/x", content=b"{}") for _ in range(4)))
        await wire.connect(client.base_url, 4)
        assert (server.connections, len(server.requests)) == (4, 12)
        await asyncio.gather(*(client.post("/x", content=b"{}") for _ in range(6)))
        assert server.connections == 6, "more requests than connections open some instead of waiting"
        monkeypatch.setattr(connection, "REUSE_S", 0.0)
        await client.post("/x", content=b"{}")
        assert server.connections == 7, "one that idled too long is not used again"


async def test_a_get_on_a_connection_that_the_server_closes_is_sent_anew_once_and_a_post_never() -> None:
    async with talking(OK, close, OK) as (client, _, server):
        await client.get("/a")
        assert (await client.get("/b")).content == b"ok"
        assert [request.split()[1] for request in server.requests] == [b"/a", b"/b", b"/b"]
    async with talking(OK, close, OK) as (client, _, server):
        await client.post("/a", content=b"{}")
        with pytest.raises(connection.Closed):
            await client.post("/b", content=b"{}")
        assert len(server.requests) == 2, "what was sent into a closing connection may have been done"


async def test_a_connection_that_the_server_closed_between_two_windows_is_replaced_before_the_next() -> None:
    async with talking(then_close(OK), OK) as (client, wire, server):
        await client.post("/a", content=b"{}")
        await asyncio.wait_for(server.gone.wait(), PATIENCE_S)  # the client has seen the end and hung up, too
        await wire.connect(client.base_url, 1)
        assert (await client.post("/b", content=b"{}")).content == b"ok"
        assert server.connections == 2


async def trickle(writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 99999\r\n\r\n")
    while True:
        writer.write(b".")
        await asyncio.sleep(0.01)


@pytest.mark.parametrize(
    ("play", "patience", "said"),
    [
        (hang, Patience(quiet_s=0.1), r"no progress for 0\.1 s: its first byte didn't come"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf", Patience(quiet_s=0.1), "its next byte didn't come"),
        (trickle, Patience(quiet_s=20.0, whole_s=0.2), r"not answered in 0\.2 s"),
    ],
    ids=["nothing", "half", "trickles"],
)
async def test_an_answer_that_does_not_come_is_ended_with_its_time(
    play: bytes | Play, patience: Patience, said: str
) -> None:
    async with talking(play) as (client, _, server):
        with pytest.raises(httpx.ReadTimeout, match=said):
            await client.post("/x", content=b"{}", extensions={"patience": patience})
        await server.gone.wait()


async def test_a_server_known_to_work_keeps_a_quiet_request_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, bounds = moved_by_hand(monkeypatch), {"patience": Patience(quiet_s=20.0)}
    async with talking(hang) as (client, wire, server):
        asking = asyncio.create_task(client.post("/x", content=b"{}", extensions=bounds))
        await server.asked()
        for _ in range(3):  # more than twice its patience
            clock.now_s += 15
            looked = clock.asked
            while clock.asked == looked:
                await asyncio.sleep(0)
            assert not asking.done()
            wire.still_working()
        clock.now_s += 21
        with pytest.raises(httpx.ReadTimeout):
            await asking


async def test_cancelling_a_request_closes_its_connection() -> None:
    async with talking(hang) as (client, _, server):
        asking = asyncio.create_task(client.post("/x", content=b"{}"))
        await server.asked()
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        await server.gone.wait()


async def test_what_nobody_asked_for_is_nobody_s_answer() -> None:
    late = in_pieces(OK, b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nstale")
    async with talking(late, OK) as (client, _, server):
        await client.post("/a", content=b"{}")
        await server.gone.wait()
        assert (await client.post("/b", content=b"{}")).content == b"ok"
        assert server.connections == 2


async def test_each_piece_has_the_moment_at_which_it_came() -> None:
    first_seen = asyncio.Event()

    async def play(writer: asyncio.StreamWriter) -> None:
        writer.write(CHUNKED[: CHUNKED.index(b"2\r\n")])
        await first_seen.wait()
        writer.write(b"2\r\nlo\r\n0\r\n\r\n")

    async with talking(play) as (client, _, server):
        asking = asyncio.create_task(client.post("/x", content=b"{}"))
        await server.asked()
        await asyncio.sleep(0.05)
        between_s = monotonic()
        first_seen.set()
        arrivals: Arrivals = (await asking).extensions["arrivals"]
        assert list(arrivals.sizes) == [3, 5]
        assert arrivals.sent_s < arrivals.pieces_s[0] < between_s < arrivals.pieces_s[1] <= arrivals.ended_s


async def test_a_connection_that_is_lost_before_anything_is_sent_is_an_error_at_once() -> None:
    async with talking(OK) as (_, _, server):
        lost = connection.Connection(lambda _: None)
        host, port = server.url.removeprefix("http://").split(":")
        await asyncio.get_running_loop().create_connection(lambda: lost, host, int(port))
        lost.close()
        with pytest.raises(connection.Closed, match="before anything was sent"):
            await lost.ask(b"GET / HTTP/1.1\r\n\r\n", Patience())
        assert server.requests == []


@pytest.mark.parametrize(("method", "url"), [("HEAD", "http://127.0.0.1:1/"), ("GET", "https://127.0.0.1:1/")])
async def test_what_it_does_not_speak_is_refused(method: str, url: str) -> None:
    async with talking(OK) as (client, _, _):
        with pytest.raises(httpx.UnsupportedProtocol):
            await client.request(method, url)
