"""Start the server on this machine alone, and say where the page is."""

from __future__ import annotations

import asyncio
import secrets
import socket
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path

import uvicorn

from anaphora.errors import AnaphoraError
from anaphora.studio.app import create_app
from anaphora.studio.starting import Starter
from anaphora.web.listening import LOCAL, Patient, Server, listen

CONNECTIONS = 64
FIRST_PORT, PORTS = 20_000, 10_000
"""Where the ports of folders lie: outside those that a system hands out by itself."""


def _listen_again(folders: Sequence[Path]) -> socket.socket:
    """A socket on the port that follows from the folders' paths or, where that is taken, on any other."""
    paths = "\0".join(str(folder.resolve()) for folder in folders)
    try:
        return listen(FIRST_PORT + zlib.crc32(paths.encode(errors="surrogateescape")) % PORTS)
    except AnaphoraError:
        return listen(0)


def serve(
    folders: Sequence[Path], *, port: int = 0, ready: Callable[[str], None], allow_training: bool = False
) -> None:
    """Serve until SIGINT, SIGTERM or SIGHUP. ``port`` 0 takes the one that these folders have at each start, so that an address is
    found again, or any free one where another program has it; ``ready`` is called with the address once it answers.

    With ``allow_training`` the page can start trainings, which are stopped and saved when the server ends.
    """
    listening = listen(port) if port else _listen_again(folders)
    number = int(listening.getsockname()[1])
    token = secrets.token_urlsafe(24)
    starter = Starter(folders[0], allowed=allow_training)
    app = create_app(folders, token=token, port=lambda: number, starter=starter)
    config = uvicorn.Config(
        app,
        http=Patient,
        log_level="error",  # what strangers send is no news
        access_log=False,
        server_header=False,
        limit_concurrency=CONNECTIONS,
        timeout_keep_alive=10,
        h11_max_incomplete_event_size=70_000,
        timeout_graceful_shutdown=1,
        lifespan="off",
        ws="none",
    )
    server = Server(config)

    async def run() -> None:
        serving = asyncio.create_task(server.serve(sockets=[listening]))
        while not server.started and not serving.done():
            await asyncio.sleep(0.01)
        if server.started:
            ready(f"http://{LOCAL}:{number}/#token={token}")
        await serving

    try:
        asyncio.run(run())
    finally:
        starter.close()
