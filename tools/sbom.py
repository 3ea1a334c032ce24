"""A software bill of materials (CycloneDX 1.6, JSON) of this installation: ``python tools/sbom.py > sbom.json``.

Lists what anaphora needs and what that needs, as installed here, and the packages bundled into the studio's page. Made of
installed metadata alone: no network, and the same installation gives the same bytes.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import uuid
from importlib import metadata
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

from lock import ROOT, normal
from pins import licence

EXTRAS = ("studio", "audio", "image", "tables")


def bom(extras: tuple[str, ...] = EXTRAS, page: Path = ROOT / "page" / "package-lock.json") -> dict[str, Any]:
    """The document."""
    links = closure("anaphora", extras)
    bundled = npm(page)
    components = [library(name) for name in sorted(links) if name != "anaphora"]
    components += [component("npm", name, version, stated) for name, version, stated in bundled]
    root = component("pypi", "anaphora", metadata.version("anaphora"), "Apache-2.0") | {"type": "application"}
    refs = {one["name"]: one["bom-ref"] for one in [root, *components[: len(links) - 1]]}
    depends = [
        {"ref": refs[name], "dependsOn": sorted(refs[other] for other in needed if other in refs)}
        for name, needed in sorted(links.items())
    ]
    depends[[d["ref"] for d in depends].index(root["bom-ref"])]["dependsOn"] += [
        one["bom-ref"] for one in components[len(links) - 1 :]
    ]
    document = {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "component": root,
            "tools": {"components": [{"type": "application", "name": "tools/sbom.py"}]},
        },
        "components": components,
        "dependencies": depends,
    }
    serial = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(document, sort_keys=True))
    return {**document, "serialNumber": f"urn:uuid:{serial}"}


def closure(name: str, extras: tuple[str, ...]) -> dict[str, set[str]]:
    """Installed package → those of its requirements that are installed, from ``name`` on."""
    links: dict[str, set[str]] = {}
    waiting = [(name, frozenset(extras))]
    seen = set()
    while waiting:
        one = waiting.pop()
        if one in seen:
            continue
        seen.add(one)
        here, wanted = one
        needed = links.setdefault(here, set())
        for text in metadata.requires(here) or []:
            asked = Requirement(text)
            marker = asked.marker
            if marker and not any(marker.evaluate({"extra": extra}) for extra in wanted | {""}):
                continue
            other = normal(asked.name)
            try:
                metadata.version(other)
            except metadata.PackageNotFoundError:
                continue
            if other != here:
                needed.add(other)
            waiting.append((other, frozenset(asked.extras) | (wanted if other == here else frozenset())))
    return links


def library(name: str) -> dict[str, Any]:
    return component("pypi", name, metadata.version(name), licence(name) or "")


def component(kind: str, name: str, version: str, stated: str) -> dict[str, Any]:
    purl = f"pkg:{kind}/{name.replace('@', '%40')}@{version.replace('+', '%2B')}"
    known = {"licenses": [{"license": {"name": stated[:200]}}]} if stated else {}
    return {"type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl, **known}


def npm(lock: Path) -> list[tuple[str, str, str]]:
    """Name, version and licence of the packages that are built into the page; tools that build it are not shipped."""
    if not lock.is_file():
        return []
    packages = json.loads(lock.read_text(encoding="utf-8"))["packages"]
    return sorted(
        (re.sub(r"^.*node_modules/", "", path), facts["version"], facts.get("license", ""))
        for path, facts in packages.items()
        if path and not facts.get("dev")
    )


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--extras", default=",".join(EXTRAS), help="extras that count as installed")
    given = options.parse_args()
    json.dump(bom(tuple(given.extras.split(","))), sys.stdout, indent=2)
    print()
