"""Check what is installed and from where, without a network: ``python tools/pins.py`` (``make lint``).

Every direct dependency is pinned within its bounds; every pin but torch has a hash; nothing is installed unpinned by the
Makefile, CI or a Dockerfile; the page's packages are exact and have hashes; licences are ones we may ship with.
"""

from __future__ import annotations

import json
import re
import sys
import tomllib
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement

from lock import BY_SOURCE, normal

ROOT = Path(__file__).resolve().parents[1]
NOT_PINNED = {"bench", "foreign", "ray"}
"""Extras of peers that only benchmarks and tests/foreign compare with; and Ray, whose version is that of the cluster."""
LICENCES = re.compile(
    r"apache|\bbsd\b|bsd-|\bmit\b|\bmit-|\bisc\b|\bpsf\b|python software foundation|mpl|mozilla public|"
    r"unlicense|zlib|\b0bsd\b|public domain|cnri-python|lgpl",
    re.IGNORECASE,
)
READ_BY_HAND = {"axe-playwright-python": "MIT"}
"""Licences of packages whose metadata name none, as the file LICENSE in them says."""
_PIN = re.compile(r"([A-Za-z0-9._-]+)==([A-Za-z0-9.+!_-]+)")
_HASHED = re.compile(r"^([a-z0-9-]+)==(\S+) \\\n    --hash=sha256:([0-9a-f]{64})$", re.MULTILINE)


def pins(root: Path) -> dict[str, str]:
    """Name → version of constraints.txt."""
    text = (root / "constraints.txt").read_text(encoding="utf-8")
    plain = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return {normal(m[1]): m[2] for line in plain if (m := _PIN.fullmatch(line.strip()))}


def check(root: Path = ROOT) -> list[str]:
    """A sentence for each thing that is wrong."""
    return [*_dependencies(root), *_hashes(root), *_installs(root), *_page(root), *_licences(root)]


def _dependencies(root: Path) -> Iterator[str]:
    text = (root / "constraints.txt").read_text(encoding="utf-8")
    for line in text.splitlines():
        if line.strip() and not line.startswith("#") and not _PIN.fullmatch(line.strip()):
            yield f"constraints.txt: {line.strip()!r} is not NAME==VERSION."
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = {k: v for k, v in project["optional-dependencies"].items() if k not in NOT_PINNED}
    known = pins(root)
    for text in [*project["dependencies"], *(one for group in extras.values() for one in group)]:
        wanted = Requirement(text)
        name = normal(wanted.name)
        if name == normal(project["name"]):
            continue
        if name not in known:
            yield f"pyproject.toml: {wanted.name} has no pin in constraints.txt."
        elif not wanted.specifier.contains(known[name], prereleases=True):
            yield f"constraints.txt: {name}=={known[name]} is not within {wanted.specifier} of pyproject.toml."


def _hashes(root: Path) -> Iterator[str]:
    text = (root / "requirements-hashed.txt").read_text(encoding="utf-8")
    hashed = {m[1]: m[2] for m in _HASHED.finditer(text)}
    plain = [line for line in text.splitlines() if line and not line.startswith("#")]
    if len(plain) != 2 * len(hashed):
        yield "requirements-hashed.txt: a line is not NAME==VERSION with one sha256; run python tools/lock.py."
    for name, version in pins(root).items():
        if not BY_SOURCE.fullmatch(name) and hashed.get(name) != version:
            yield f"requirements-hashed.txt: {name}=={version} is not in it; run python tools/lock.py."


def _installs(root: Path) -> Iterator[str]:
    files = [root / "Makefile", *sorted((root / ".ci").glob("*")), *sorted(root.glob("*Dockerfile*"))]
    files += sorted(root.glob("deploy/*Dockerfile*"))
    for path in (path for path in files if path.is_file()):
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            where = f"{path.relative_to(root)}:{number}"
            held = ("-c constraints.txt", "--require-hashes", "--no-deps")
            if re.search(r"\bpip3? install\b", line) and not any(word in line for word in held):
                yield f"{where}: pip install without -c constraints.txt or --require-hashes."
            if re.search(r"\bnpm (install|i|add)\b", line):
                yield f"{where}: npm install takes newer versions; use npm ci."
            if re.search(r"(curl|wget)\b.*\|\s*(ba|z)?sh\b", line):
                yield f"{where}: a script from the network is run without a look at it."


def _page(root: Path) -> Iterator[str]:
    asked = json.loads((root / "page" / "package.json").read_text(encoding="utf-8"))
    for name, version in (asked.get("dependencies", {}) | asked.get("devDependencies", {})).items():
        if not re.fullmatch(r"\d+\.\d+\.\d+", version):
            yield f"page/package.json: {name} is {version}, not one version."
    locked = json.loads((root / "page" / "package-lock.json").read_text(encoding="utf-8"))["packages"]
    for name, facts in locked.items():
        if name and not facts.get("link") and not str(facts.get("integrity", "")).startswith("sha512-"):
            yield f"page/package-lock.json: {name} has no sha512."


def licence(name: str) -> str | None:
    """What the metadata of an installed package say of its licence; None where it is not installed."""
    try:
        facts = metadata.metadata(name)
    except metadata.PackageNotFoundError:
        return None
    stated = [facts.get("License-Expression") or "", (facts.get("License") or "").partition("\n")[0]]
    stated += [
        text.rpartition(" :: ")[2] for text in facts.get_all("Classifier") or [] if text.startswith("License")
    ]
    return " / ".join(text for text in stated if text) or READ_BY_HAND.get(name, "")


def _licences(root: Path) -> Iterator[str]:
    for name in pins(root):
        found = licence(name)
        if found is not None and not LICENCES.search(found):
            yield f"{name}: its licence is {found or 'not named'!r}, which tools/pins.py does not know."


if __name__ == "__main__":
    wrong = check()
    print("\n".join(wrong) or f"{len(pins(ROOT))} pins: versions, hashes, installs and licences agree.")
    sys.exit(1 if wrong else 0)
