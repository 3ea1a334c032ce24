"""Requests that are not answered, with the status and the one sentence that the client gets."""

from __future__ import annotations

from collections.abc import Mapping


class Refusal(Exception):  # noqa: N818 (it is an answer)
    """A status with a sentence. Raise it anywhere below a route; the client gets ``{"error": sentence}``."""

    def __init__(self, status: int, sentence: str, headers: Mapping[str, str] | None = None):
        super().__init__(sentence)
        self.status, self.sentence, self.headers = status, sentence, dict(headers or {})


def malformed(sentence: str) -> Refusal:
    """400: the request cannot be read."""
    return Refusal(400, sentence)


def unknown(sentence: str) -> Refusal:
    """404: there is no such run or page."""
    return Refusal(404, sentence)


def too_large(most: int) -> Refusal:
    """413: the body has more bytes than it may."""
    return Refusal(413, f"the body of a request may have {most:,} bytes at most; send less at once.")


def unusable(sentence: str) -> Refusal:
    """422: the request can be read, but not answered."""
    return Refusal(422, sentence)


def busy(name: str) -> Refusal:
    """429: too many requests wait already."""
    return Refusal(429, f"too many requests wait for {name}; try again in a second.", {"retry-after": "1"})


def leaving() -> Refusal:
    """503: the server is about to end."""
    return Refusal(
        503, "the server is shutting down; ask another one.", {"retry-after": "2", "connection": "close"}
    )


def late(seconds: float) -> Refusal:
    """504: the answer took too long."""
    return Refusal(
        504, f"the answer took more than {seconds:g} seconds; send less at once, or try again later."
    )
