"""Own parts: a setting given as an object (a class, a function, a partial), or as the text ``module:Name``.

A part is written into ``config.json`` as that text, with a SHA-256 of its source beside it. Text is imported from
installed packages or the current directory, never from a run folder, and text that a run folder names only where the
user allows it (see `bring`). Nothing here imports torch.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import importlib
import inspect
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema

from anaphora.errors import SettingsError

_TEXT = re.compile(r"([A-Za-z_][\w.]*):([A-Za-z_<][\w.<>]*)(\(.*\))?", re.DOTALL)
_UNKNOWN = "(...)"  # arguments that cannot be written down
IMPORTED: set[str] = set()
"""The files of modules from which own parts were imported by name."""
_OURS = ("anaphora.nn", "torch.optim")
"""Packages whose classes a run folder may name without the user's leave: cells and optimizers do nothing else."""


class Part(str):
    """The text ``module:Name`` or ``module:Name(argument=value)`` of an own part, with the object where it is known.

    ``sha256`` is that of its source when it was given, or when the run that names it was trained; None where Python
    has no source (typed at a prompt).
    """

    sha256: str | None
    _object: Any

    def __new__(cls, text: str, thing: Any = None, sha256: str | None = None) -> Part:
        self = super().__new__(cls, text)
        self._object, self.sha256 = thing, sha256 or (None if thing is None else source_sha256(thing))
        return self

    def __getnewargs__(self) -> tuple[str, Any, str | None]:  # type: ignore[override]
        return str(self), self._object, self.sha256

    @classmethod
    def of(cls, thing: Any) -> Part:
        """The part that ``thing`` is."""
        return thing if isinstance(thing, Part) else cls(name_of(thing), thing)

    @property
    def known(self) -> bool:
        """Whether the object is here."""
        return self._object is not None

    @property
    def object(self) -> Any:
        """The object: a class, a function, a partial, or whatever was given."""
        if self._object is None:
            raise SettingsError([f"{self} is an own part that was not given again; load the run with it."])
        return self._object

    def made(self) -> Any:
        """The object itself, or the instance that a class or a partial of a class makes."""
        thing = self.object
        kind = thing.func if isinstance(thing, functools.partial) else thing
        return thing() if isinstance(kind, type) else thing

    def bring(self, *, where: str = "", run: Path | None = None) -> Part:
        """Import the object that the text names, unless it is here; ``where`` begins a message, ``run`` is a folder
        that nothing is imported from."""
        if self._object is None:
            self._object = _imported(self, where, run)
            self.sha256 = self.sha256 or source_sha256(self._object)
        return self

    @property
    def held(self) -> bool:
        """Whether a run keeps the object itself, so that nothing is imported for it: a tokenizer of these packages."""
        return self.partition(":")[0].partition(".")[0] in ("tokenizers", "transformers", "anaphora")

    @property
    def changed(self) -> bool:
        """Whether the source of the object is another than the one on record."""
        now = source_sha256(self.object)
        return self.sha256 is not None and now is not None and now != self.sha256

    @property
    def harmless(self) -> bool:
        """Whether it names a class of a package that a run may name without the user's leave. Such text is imported."""
        module, name = self.partition("(")[0].split(":")
        if not _within(module) or "." in name:
            return False
        thing = self.bring().object
        kind = thing.func if isinstance(thing, functools.partial) else thing
        return isinstance(kind, type) and _within(kind.__module__)


_trusts = False


def trust_parts() -> None:
    """Let this process import the own parts that run folders name (``--trust-parts``)."""
    global _trusts
    _trusts = True


def trusting() -> bool:
    """Whether `trust_parts` was called."""
    return _trusts


def _within(module: str) -> bool:
    return any(module == name or module.startswith(f"{name}.") for name in _OURS)


def is_part(value: Any) -> bool:
    """Whether a value of a setting is an own part: an object, or the text ``module:Name``."""
    if isinstance(value, Part):
        return True
    return _TEXT.fullmatch(value) is not None if isinstance(value, str) else callable(value)


def source_sha256(thing: Any) -> str | None:
    """SHA-256 of the source of a class or a function; of a partial or an instance, that of its function or class."""
    while isinstance(thing, functools.partial):
        thing = thing.func
    if not inspect.isroutine(thing) and not isinstance(thing, type):
        thing = type(thing)
    try:
        lambda_ = getattr(thing, "__name__", "") == "<lambda>"
        source = _lambda_source(thing) if lambda_ else inspect.getsource(thing)
        return hashlib.sha256(source.encode()).hexdigest()
    except (OSError, TypeError, SyntaxError, LookupError):
        return None


def _lambda_source(function: Any) -> str:
    """The expression alone: `inspect.getsource` gives the whole lines it stands on."""
    lines, _ = inspect.findsource(function)
    places = {(line, column) for line, _, column, _ in function.__code__.co_positions()}
    for node in ast.walk(ast.parse("".join(lines))):
        if isinstance(node, ast.Lambda) and (node.body.lineno, node.body.col_offset) in places:
            return ast.unparse(node)
    raise LookupError("the lambda cannot be found")


def name_of(thing: Any) -> str:
    """``module:Name`` of an object, by the shortest module that exports it, with the arguments of a partial.

    An instance is named ``module:Class()`` where its class takes no arguments, else ``module:Class(...)``, which
    cannot be imported: what it was made with is unknown.
    """
    if isinstance(thing, functools.partial):
        head = name_of(thing.func).removesuffix(_UNKNOWN)
        return head + _arguments(thing.args, thing.keywords)
    if inspect.isroutine(thing) or isinstance(thing, type):
        return f"{_shortest_module(thing)}:{thing.__qualname__}"
    kind = type(thing)
    try:
        bare = not inspect.signature(kind).parameters
    except (TypeError, ValueError):
        bare = False
    return f"{_shortest_module(kind)}:{kind.__qualname__}{'()' if bare else _UNKNOWN}"


def _shortest_module(thing: Any) -> str:
    module = str(getattr(thing, "__module__", None) or "builtins")
    parts = module.split(".")
    for end in range(1, len(parts)):
        shorter = ".".join(parts[:end])
        if getattr(sys.modules.get(shorter), thing.__qualname__, None) is thing:
            return shorter
    return module


def _arguments(args: tuple[Any, ...], keywords: Mapping[str, Any]) -> str:
    words = [repr(value) for value in args] + [f"{key}={value!r}" for key, value in keywords.items()]
    text = f"({', '.join(words)})"
    try:
        return text if _parsed(text) == (list(args), dict(keywords)) else _UNKNOWN
    except (ValueError, SyntaxError):
        return _UNKNOWN


def _parsed(text: str) -> tuple[list[Any], dict[str, Any]]:
    """The arguments in ``(3, peephole=True)``; only numbers, texts, lists and the like."""
    call = ast.parse(f"f{text}", mode="eval").body
    if not isinstance(call, ast.Call) or any(word.arg is None for word in call.keywords):
        raise ValueError("not a call")
    args = [ast.literal_eval(value) for value in call.args]
    if Ellipsis in args:
        raise ValueError("arguments that cannot be written down")
    return args, {str(word.arg): ast.literal_eval(word.value) for word in call.keywords}


def _imported(text: str, where: str, run: Path | None) -> Any:
    match = _TEXT.fullmatch(text)
    assert match, text
    module, name, written = match[1], match[2], match[3]
    if "<" in name or written == _UNKNOWN:
        what = "a function without a name" if "<" in name else "an object made with arguments of its own"
        raise SettingsError([f"{where}{text} is {what}, which no other program can import; give it again."])
    try:
        args, keywords = _parsed(written or "()")
    except (ValueError, SyntaxError):
        raise SettingsError([f"{where}{text}: write the arguments as in module:Name(width=3)."]) from None
    thing = _found(module, name, text, where, run)
    return functools.partial(thing, *args, **keywords) if written else thing


def _found(module: str, name: str, text: str, where: str, run: Path | None) -> Any:
    here = Path.cwd()
    if run is not None and (here == run.resolve() or run.resolve() in here.parents):
        raise SettingsError(
            [f"{where}{text}: nothing is imported from a run folder; call this from another folder."]
        )
    if str(here) not in sys.path and "" not in sys.path:
        sys.path.append(str(here))  # at the end: a file random.py of the user's must not replace Python's
        importlib.invalidate_caches()
    try:
        thing: Any = importlib.import_module(module)
    except Exception as error:
        top = module.partition(".")[0]
        missing = isinstance(error, ModuleNotFoundError) and error.name in (module, top)
        why = (
            f"there is no module {module} in {here} or among the installed packages"
            if missing
            else f"importing {module} failed ({type(error).__name__}: {error})"
        )
        raise SettingsError([f"{where}{text} cannot be used: {why}."]) from None
    file = getattr(thing, "__file__", None)
    if module.partition(".")[0] != "anaphora":
        IMPORTED.add(str(file))
    own = here / f"{module.partition('.')[0]}.py"
    if own.is_file() and file and module != "__main__" and not os.path.abspath(file).startswith(str(here)):
        raise SettingsError([f"{where}{text}: {module} is also the name of {file}; rename {own.name}."])
    try:
        return functools.reduce(getattr, name.split("."), thing)
    except AttributeError:
        raise SettingsError([f"{where}{text} cannot be used: {file or module} has no {name}."]) from None


# ------------------------------------------------------------------ as settings


@dataclass(frozen=True)
class Own:
    """Marks a setting that also takes an own part: ``cell: Annotated[Literal["lstm", "gru"], Own()]``.

    ``objects``: any object is one, whether it can be called or not.
    """

    objects: bool = False

    @property
    def also(self) -> str:
        return "Any" if self.objects else "Callable[..., Any]"

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return _schema(self._take, handler(source))

    def _take(self, value: Any, handler: Callable[[Any], Any], info: Any) -> Any:
        if isinstance(value, str) and not isinstance(value, Part):
            return Part(value) if is_part(value) else handler(value)
        if isinstance(value, Path):
            return handler(str(value))
        whole = self.objects and not isinstance(value, bool | int | float | None)
        return Part.of(value) if whole or is_part(value) else handler(value)


@dataclass(frozen=True)
class OwnMany:
    """Marks a setting of any number of own parts: a tuple, or with ``named`` a dict by name."""

    named: bool = False
    also = "Mapping[str, Any] | Sequence[Any] | Callable[..., Any]"

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return _schema(self._take, core_schema.any_schema())

    def _take(self, value: Any, handler: Callable[[Any], Any], info: Any) -> Any:
        inside = value.values() if isinstance(value, dict) else value
        if isinstance(value, dict if self.named else tuple) and all(isinstance(one, Part) for one in inside):
            return value  # the very object: scikit-learn's clone compares by identity
        if isinstance(value, Mapping):
            if not self.named:
                raise ValueError("it must be a list")
            return {str(key): _one(thing) for key, thing in value.items()}
        several = value if isinstance(value, list | tuple) else [value]
        parts = tuple(_one(thing) for thing in several)
        if not self.named:
            return parts
        return {part.partition("(")[0].rpartition(":")[2].rpartition(".")[2]: part for part in parts}


@dataclass(frozen=True)
class OwnMetric:
    """Marks the setting ``metric``, which also takes the name of one of ``metrics``, with a minus where less is better."""

    also = "str"

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return _schema(self._take, handler(source))

    def _take(self, value: Any, handler: Callable[[Any], Any], info: Any) -> Any:
        known = info.data.get("metrics") or {}
        return value if isinstance(value, str) and value.removeprefix("-") in known else handler(value)


def _one(value: Any) -> Part:
    if isinstance(value, str) and not is_part(value):
        raise ValueError(f"{value!r} is not the name of an own part; write module:Name")
    return Part(value) if isinstance(value, str) and not isinstance(value, Part) else Part.of(value)


def _schema(take: Callable[[Any, Any, Any], Any], inner: CoreSchema) -> CoreSchema:
    return core_schema.with_info_wrap_validator_function(
        take,
        inner,
        serialization=core_schema.plain_serializer_function_ser_schema(lambda value: value),
    )


def parts_of(settings: Any) -> dict[str, Part]:
    """Every own part in the settings, by its place: ``cell``, ``callbacks.0``, ``metrics.kappa``."""
    return dict(_parts(settings))


def _parts(settings: Any) -> Iterator[tuple[str, Part]]:
    for key in type(settings).model_fields:
        value = getattr(settings, key)
        inner: Iterable[tuple[Any, Any]] = ()
        if isinstance(value, dict | tuple):
            inner = value.items() if isinstance(value, dict) else enumerate(value)
        if isinstance(value, Part):
            yield key, value
        for name, part in inner:
            if isinstance(part, Part):
                yield f"{key}.{name}", part
