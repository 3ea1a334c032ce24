"""``/`` to try a run in a browser, ``/docs`` to read what can be asked: four small files, nothing from elsewhere."""

from __future__ import annotations

from importlib import resources
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

if TYPE_CHECKING:
    from anaphora.serving.app import Server

PAGES = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/docs": ("docs.html", "text/html; charset=utf-8"),
    "/page.js": ("page.js", "text/javascript; charset=utf-8"),
    "/page.css": ("page.css", "text/css; charset=utf-8"),
}


def routes(server: Server) -> list[BaseRoute]:
    """The pages, with their script and their style."""

    def page(name: str, media: str) -> Any:
        content = (resources.files("anaphora.serving") / "static" / name).read_bytes()

        async def sent(request: Request) -> Response:
            return Response(content, media_type=media)

        return sent

    return [Route(path, page(*named)) for path, named in PAGES.items()]
