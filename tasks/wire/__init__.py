"""HTTP/1.1 on the wire: a transport for httpx that can be timed with, since its own queues above 16 connections."""
