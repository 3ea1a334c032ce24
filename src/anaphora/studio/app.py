"""The page's server: a list of runs, their pictures, and a stream that says when something changed."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import AsyncIterator, Callable, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from anaphora._version import __version__
from anaphora.errors import AnaphoraError
from anaphora.studio import comparing, lessons
from anaphora.studio.explaining import able, example_text, explained
from anaphora.studio.guard import Guard
from anaphora.studio.panels import answered, panels, reasons
from anaphora.studio.pictures import Pictures, all_views, read_wanted
from anaphora.studio.runs import Runs, Stamp
from anaphora.studio.starting import BIGGEST_FILE, Starter
from anaphora.studio.starting_routes import StartingRoutes
from anaphora.studio.studies import VIEW as STUDIES
from anaphora.studio.studies import Studies
from anaphora.studio.worker import Worker
from anaphora.training.film import frames
from anaphora.training.journal import plain
from anaphora.training.run import RunFolder
from anaphora.views.colour import DARK, LEVELS, LIGHT, SERIES
from anaphora.views.registry import VIEWS
from anaphora.views.room import fitted
from anaphora.views.view import QUESTIONS
from anaphora.web.answers import shortened

WAITING = 12
"""Requests for pictures that may wait; one is drawn at a time."""
WATCHERS = 8
MOST_ABLE = 256
"""Runs of which it is kept what can be drawn of them."""
TICK = 0.5
"""Seconds between looks at the journals."""
SEARCH = 5.0
"""Seconds between searches for new runs while a page watches."""
KEEP_ALIVE = 15.0
LONGEST_WORK = 45.0
"""Seconds that one list or picture may take."""
WRITES = {
    **{f"/api/{name}": ("application/json", 20_000) for name in ("plan", "start", "stop", "resume")},
    "/api/upload": ("application/octet-stream", BIGGEST_FILE),
}
"""Requests that change something: what they are sent as, and how large they may be."""
_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript",
    ".css": "text/css",
    ".svg": "image/svg+xml",
}
_FORMS = {"svg": "image/svg+xml", "png": "image/png", "csv": "text/csv; charset=utf-8", "html": "text/html"}


class Studio:
    """The requests of the page."""

    def __init__(self, folders: Sequence[Path], starter: Starter):
        self.runs = Runs(folders)
        self.studies = Studies(folders)
        self.starting = StartingRoutes(starter, self.runs, self._work)
        self.pictures = Pictures()
        self._drawing = Worker("pictures", LONGEST_WORK, self._forget)
        self._listing = Worker("runs", LONGEST_WORK)
        self.comparisons = comparing.Comparisons()
        self._comparing = Worker("comparisons", comparing.LONGEST_WORK, self._forget_comparisons)
        self.gathered = Pictures()  # of many examples, which take longer and must not hold up others
        self._gathering = Worker("examples", comparing.LONGEST_WORK, self._forget_gathered)
        self._able: dict[tuple[str, int], dict[str, str | None]] = {}
        self._waiting = 0
        self._watching = 0

    def routes(self) -> list[Route]:
        static = [Route("/", _static("index.html")), Route("/favicon.ico", _static("icon.svg"))]
        static += [Route(f"/{name}", _static(name)) for name in ("app.js", "app.css", "icon.svg")]
        return [
            *static,
            Route("/api/about", self.about),
            Route("/api/runs", self.list_runs),
            Route("/api/views", self.list_views),
            Route("/api/picture", self.picture),
            Route("/api/explain", self.explain),
            Route("/api/able", self.able),
            Route("/api/panel", self.panel),
            Route("/api/example", self.example),
            Route("/api/compare", self.compare),
            Route("/api/film", self.film),
            Route("/api/studies", self.list_studies),
            Route("/api/study", self.study),
            Route("/api/save", self.save),
            Route("/api/watch", self.watch),
            *self.starting.routes(),
            *lessons.routes(),
        ]

    async def about(self, request: Request) -> Response:
        def colours(theme: Any) -> dict[str, str]:
            roles = ["name", "page", "text", "muted", "grid", "clear"]
            roles += [f"{kind}{i}" for kind in "cd" for i in range(LEVELS)]
            roles += [f"{kind}{i}" for kind in "sp" for i in range(SERIES)]
            return {role: theme.colour(role) for role in roles}

        return JSONResponse(
            {
                "version": __version__,
                "light": colours(LIGHT),
                "dark": colours(DARK),
                "questions": QUESTIONS,
            }
        )

    async def list_runs(self, request: Request) -> Response:
        return await self._work(self.runs.list, self._listing)

    async def list_views(self, request: Request) -> Response:
        own = [panel.listed() for panel in panels().values()]
        return JSONResponse([*all_views(), *own, comparing.VIEW, STUDIES])

    async def picture(self, request: Request) -> Response:
        query = request.query_params
        keys = query.getlist("run")
        plain = dict(query)
        many = _of_many(plain)
        pictures = self.gathered if many else self.pictures
        return await self._work(
            lambda: pictures.draw(
                read_wanted(plain.get("view", ""), [self.runs.get(key) for key in keys[:9]], plain)
            ),
            self._gathering if many else None,
        )

    async def explain(self, request: Request) -> Response:
        query = dict(request.query_params)
        return await self._work(lambda: explained(self.pictures, self.runs.get(query.get("run", "")), query))

    async def panel(self, request: Request) -> Response:
        """What a panel of the page shows of a run: the search that is steered, and others."""
        query = dict(request.query_params)
        return await self._work(lambda: answered(self.pictures, self.runs.get(query.get("run", "")), query))

    async def example(self, request: Request) -> Response:
        """What stands in the page's box for a dev example of a run."""
        query = request.query_params

        def found() -> dict[str, Any]:
            asked, _ = self.pictures.model_of(self.runs.get(query.get("run", "")))
            text, number, _ = example_text(asked, query.get("example", "1"))
            return {"text": text, "example": number}

        return await self._work(found)

    async def able(self, request: Request) -> Response:
        """Which views the run can give, and why not the others; kept until it writes other weights."""
        key = request.query_params.get("run", "")

        def look() -> dict[str, str | None]:
            run = self.runs.get(key)
            weights = run.path / "model.safetensors"
            stamp = (key, weights.stat().st_mtime_ns if weights.is_file() else 0)
            if stamp not in self._able:
                if len(self._able) >= MOST_ABLE:
                    self._able.clear()
                self._able[stamp] = able(self.pictures, run) | reasons(self.pictures, run)
            return self._able[stamp]

        return await self._work(look)

    async def compare(self, request: Request) -> Response:
        query = request.query_params
        keys, plain = query.getlist("run"), dict(query)
        return await self._work(
            lambda: self.comparisons.of([self.runs.get(key) for key in keys[:9]], plain), self._comparing
        )

    async def film(self, request: Request) -> Response:
        """The steps of which the run has frames."""
        key = request.query_params.get("run", "").partition("@")[0]
        return await self._work(lambda: {"frames": frames(RunFolder(self.runs.get(key).path))}, self._listing)

    async def list_studies(self, request: Request) -> Response:
        return await self._work(self.studies.list, self._listing)

    async def study(self, request: Request) -> Response:
        query = request.query_params

        def drawn() -> dict[str, Any]:
            name, made = self.studies.picture(query.get("study", ""))
            width = query.get("w", "")
            with fitted(float(width) if re.fullmatch("[0-9]{2,4}", width) else None):
                return {"view": "studies", "pictures": [self.pictures.json(made, name)], "missing": {}}

        return await self._work(drawn)

    async def save(self, request: Request) -> Response:
        query = request.query_params
        keys, plain = query.getlist("run"), dict(query)
        form = plain.get("form", "")
        many = _of_many(plain)

        def made() -> Response:
            if form not in _FORMS:
                raise AnaphoraError(f"a picture is saved as one of {', '.join(_FORMS)}.")
            if "study" in plain:
                chosen = [self.studies.picture(plain["study"])]
            else:
                wanted = read_wanted(plain.get("view", ""), [self.runs.get(key) for key in keys[:9]], plain)
                chosen = (self.gathered if many else self.pictures).made(wanted)
            wanted_number = plain.get("number", "0")
            number = int(wanted_number) if re.fullmatch("[0-9]{1,4}", wanted_number) else len(chosen)
            if number >= len(chosen):
                raise AnaphoraError("there is no such picture.")
            drawn = chosen[number][1]
            if isinstance(drawn, AnaphoraError):
                raise drawn
            content = getattr(drawn, form)()
            return Response(content, media_type=_FORMS[form], headers={"content-disposition": "attachment"})

        return await self._work(made, self._gathering if many else None)

    async def watch(self, request: Request) -> Response:
        """Server-sent events: ``changed`` with the ids of the runs whose journals grew."""
        if self._watching >= WATCHERS:
            return _sentence(503, "too many pages are watching already; close one.")
        self._watching += 1
        return StreamingResponse(self._changes(request), media_type="text/event-stream")

    async def _changes(self, request: Request) -> AsyncIterator[str]:
        try:
            seen = await self._listing.do(self._searched)
            quiet = searched = 0.0
            yield "event: ready\ndata: {}\n\n"
            while not await request.is_disconnected():
                begun = time.monotonic()
                search = begun - searched > SEARCH
                now = await self._listing.do(self._searched if search else self.runs.stamps)
                searched = begun if search else searched
                # a look at very many runs takes its time; most of the time is left to others
                pause = max(TICK, 4 * (time.monotonic() - begun))
                changed = [key for key, stamp in now.items() if seen.get(key) != stamp]
                changed += [key for key in seen if key not in now]
                seen, quiet = now, quiet + pause
                if changed:
                    quiet = 0.0
                    yield f"event: changed\ndata: {json.dumps(changed)}\n\n"
                elif quiet >= KEEP_ALIVE:
                    quiet = 0.0
                    yield ": still here\n\n"
                await asyncio.sleep(pause)
        except AnaphoraError:
            return  # the runs cannot be read in time; the page asks again
        finally:
            self._watching -= 1

    def _searched(self) -> dict[str, Stamp]:
        self.runs.all()
        return self.runs.stamps()

    def _forget(self) -> None:
        """A thread whose time ran out may still change these pictures, so that others are made from now on."""
        self.pictures = Pictures()

    def _forget_gathered(self) -> None:
        self.gathered = Pictures()

    def _forget_comparisons(self) -> None:
        self.comparisons = comparing.Comparisons()

    async def _work(self, job: Callable[[], Any], worker: Worker | None = None) -> Response:
        """Do ``job`` in the one worker; refuse when too many wait, and answer mistakes with their sentence."""
        if self._waiting >= WAITING:
            return _sentence(
                503, "too many pictures are being drawn; try again in a moment.", {"retry-after": "2"}
            )
        self._waiting += 1
        try:
            found = await (worker or self._drawing).do(job)
        except AnaphoraError as error:
            return _sentence(422, str(error))
        finally:
            self._waiting -= 1
        return found if isinstance(found, Response) else _json(found)


def create_app(
    folders: Sequence[Path], *, token: str, port: Callable[[], int], starter: Starter | None = None
) -> Guard:
    """The guarded application over the runs below ``folders``; ``starter`` starts trainings for the page, where it is allowed to."""
    starter = starter or Starter(folders[0], allowed=False)
    routes = Studio(folders, starter).routes()
    return Guard(Starlette(routes=routes), token=token, port=port, writes=WRITES if starter.allowed else None)


def _of_many(query: dict[str, str]) -> bool:
    """Whether a view takes many dev examples."""
    chosen = VIEWS.get(query.get("view", ""))
    return chosen is not None and chosen.of == "dev"


def _static(name: str) -> Any:
    async def serve(request: Request) -> Response:
        content = (resources.files("anaphora.studio") / "static" / name).read_bytes()
        return Response(content, media_type=_TYPES[Path(name).suffix])

    return serve


def _json(found: Any) -> Response:
    """JSON that every page can read: numbers that are not finite are null, halves of characters escaped."""
    try:
        return JSONResponse(found)
    except ValueError:
        return Response(json.dumps(plain(found), allow_nan=False), media_type="application/json")


def _sentence(status: int, text: str, headers: dict[str, str] | None = None) -> Response:
    return JSONResponse({"error": shortened(text)}, status_code=status, headers=headers)
