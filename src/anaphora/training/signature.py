"""A signature over every file of a run folder, made and checked with a key that two sides share.

``signature.json`` lists the sha256 and the size of each file, and an HMAC-SHA256 over that list:

    signature = HMAC(key, canonical JSON of {format, algorithm, key, files})

Checksums inside a run prove that its files belong together; an intruder who changes one can write new checksums. Without the
key no one can write a new signature. With it anyone can: it proves "someone with the key", not which of them.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, StringConstraints

from anaphora.errors import RunError
from anaphora.files import clause, parse_json, read_bytes, streamed
from anaphora.files.parsing import canonical
from anaphora.files.schemas import checked
from anaphora.files.writing import replace_file, writing
from anaphora.training.run import RunFolder

NAME = "signature.json"
FORMAT: Literal[1] = 1
ALGORITHM = "hmac-sha256"
SHORTEST_KEY, LONGEST_KEY = 16, 4096
MOST_FILES = 100_000
_LARGEST = 1 << 26
_NOT_SIGNED = {NAME, "lock"}  # the lock says who trains now
_Hash = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]


class Signed(BaseModel):
    """``signature.json``."""

    model_config = ConfigDict(strict=True, extra="forbid")

    format: Literal[1]
    algorithm: Literal["hmac-sha256"]
    key: str
    """The first 16 digits of a hash of the key: which key was used, and nothing else about it."""
    files: dict[str, tuple[_Hash, int]]
    signature: _Hash


class Key:
    """A secret from a file; ``repr`` shows its fingerprint only."""

    def __init__(self, secret: bytes):
        self._secret = secret
        self.fingerprint = hashlib.sha256(b"anaphora key " + secret).hexdigest()[:16]

    def __repr__(self) -> str:
        return f"Key({self.fingerprint})"

    @classmethod
    def read(cls, path: str | Path) -> Key:
        """The key in a file: its bytes, white space at both ends left out."""
        try:
            secret = read_bytes(path, most=LONGEST_KEY).strip()
        except OSError as error:
            raise RunError(f"{path}: the key cannot be read ({clause(error)}); check the path.") from None
        if len(secret) < SHORTEST_KEY:
            raise RunError(
                f"{path}: a key of {len(secret)} bytes is too short; make one with `openssl rand -hex 32 > {path}`."
            )
        return cls(secret)

    def seal(self, document: dict[str, Any]) -> str:
        return hmac.new(self._secret, canonical(document).encode(), hashlib.sha256).hexdigest()


def sign(run: RunFolder, key: Path | str) -> Signed:
    """Hash every file of ``run`` and write ``signature.json``; no process may train there meanwhile."""
    secret = Key.read(key)
    if Path(key).resolve().is_relative_to(run.path.resolve()):
        raise RunError(f"{key}: the key lies inside the run; keep it where the run is not copied from.")
    with run.lock():
        run.sweep()
        document = {
            "format": FORMAT,
            "algorithm": ALGORITHM,
            "key": secret.fingerprint,
            "files": dict(_files(run.path)),
        }
        text = canonical({**document, "signature": secret.seal(document)})
        with writing(run.path / NAME):
            replace_file(run.path / NAME, text.encode())
    return Signed.model_validate_json(text)


def is_signed(run: RunFolder) -> bool:
    return os.path.lexists(run.path / NAME)


def check(run: RunFolder, key: Path | str) -> tuple[str, list[tuple[str, str]]]:
    """``(fingerprint of the key, [(file, what is wrong with it), …])``; the list is empty where the signature holds."""
    secret = Key.read(key)
    path = run.path / NAME
    if not is_signed(run):
        return secret.fingerprint, [
            (NAME, f"is missing: the run is not signed; `anaphora sign {run.path} --key FILE`")
        ]
    try:
        document = parse_json(read_bytes(path, most=_LARGEST, follow=False))
        checked(Signed, document)
        reason = ""
    except OSError as error:
        reason = clause(error)
    except ValueError as error:
        reason = str(error)
    if reason:
        return secret.fingerprint, [(NAME, f"is damaged ({reason}); sign the run again")]
    sealed = document.pop("signature")
    if document["key"] != secret.fingerprint:
        theirs = str(document["key"])[:16]
        return secret.fingerprint, [(NAME, f"was made with another key ({theirs}, not {secret.fingerprint})")]
    if not hmac.compare_digest(secret.seal(document), sealed):
        return secret.fingerprint, [(NAME, "was changed after it was made: it does not fit the key")]
    return secret.fingerprint, list(_differences(run.path, document["files"]))


def _differences(folder: Path, signed: dict[str, list[Any]]) -> Iterator[tuple[str, str]]:
    try:
        there = dict(_files(folder))
    except RunError as error:
        yield NAME, str(error)
        return
    for name in sorted(there.keys() | signed.keys()):
        if name not in there:
            yield name, "was removed after the run was signed"
        elif name not in signed:
            yield name, "was added after the run was signed"
        elif list(there[name]) != list(signed[name]):
            yield name, "was changed after the run was signed"


def _files(folder: Path) -> Iterator[tuple[str, tuple[str, int]]]:
    """``(name below folder, (sha256, size))`` of every file; a `RunError` names what is neither file nor folder."""
    waiting, found = [""], 0
    while waiting:
        below = waiting.pop()
        try:
            with os.scandir(folder / below) as entries:
                listed = sorted(entries, key=lambda entry: entry.name)
            for entry in listed:
                name = f"{below}/{entry.name}" if below else entry.name
                mode = entry.stat(follow_symlinks=False).st_mode
                if stat.S_ISDIR(mode):
                    waiting.append(name)
                elif name not in _NOT_SIGNED:
                    found += 1
                    if found > MOST_FILES:
                        raise RunError(f"{folder}: holds more than {MOST_FILES} files; a run has fewer.")
                    yield _spelled(folder, name), _digest(folder / name)
        except OSError as error:
            where = error.filename or folder / below
            raise RunError(
                f"{where}: cannot be read ({clause(error)}); a run holds plain files only."
            ) from None


def _spelled(folder: Path, name: str) -> str:
    try:
        name.encode()
    except UnicodeEncodeError:
        raise RunError(f"{folder}: holds a name that is not UTF-8 ({name!r}); rename or remove it.") from None
    return name


def _digest(path: Path) -> tuple[str, int]:
    with streamed(path, follow=False) as file:
        digest, size = hashlib.sha256(), 0
        while block := file.read(1 << 20):
            digest.update(block)
            size += len(block)
        return digest.hexdigest(), size
