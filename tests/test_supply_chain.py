"""What is installed: pins, hashes, licences and the bill of materials agree with each other."""

from __future__ import annotations

import json
import re
import shutil
import sys
from importlib import metadata
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tools"))

import lock  # noqa: E402
import pins  # noqa: E402
import sbom  # noqa: E402


@pytest.fixture
def copy(tmp_path):
    for name in ("constraints.txt", "pyproject.toml", "requirements-hashed.txt", "Makefile"):
        shutil.copy(ROOT / name, tmp_path)
    (tmp_path / "page").mkdir()
    for name in ("package.json", "package-lock.json"):
        shutil.copy(ROOT / "page" / name, tmp_path / "page")
    return tmp_path


def test_this_checkout_is_as_it_should_be():
    assert pins.check() == []


@pytest.mark.parametrize(
    ("file", "old", "new", "said"),
    [
        ("constraints.txt", r"(?m)^click==.*$", "click>=8", "'click>=8' is not NAME==VERSION"),
        ("constraints.txt", r"(?m)^click==.*\n", "", "click has no pin"),
        ("constraints.txt", r"(?m)^click==.*$", "click==7.0", "click==7.0 is not within >=8.1"),
        ("constraints.txt", r"(?m)^click==.*$", "click==99.0", "requirements-hashed.txt: click==99.0 is not in it"),
        ("requirements-hashed.txt", r"--hash=sha256:[0-9a-f]{4}", "--hash=sha256:", "a line is not NAME==VERSION"),
        ("Makefile", r"\Z", "x:\n\tpip install requests\n", "pip install without"),
        ("Makefile", r"\Z", "x:\n\tcurl https://example.org/a.sh | sh\n", "a script from the network"),
        ("Makefile", r"npm ci", "npm install", "use npm ci"),
        ("page/package.json", r'"preact": "', '"preact": "^', "preact is ^"),
        ("page/package-lock.json", r"sha512-", "sha1-", "has no sha512"),
    ],
)  # fmt: skip
def test_each_weakness_is_named(copy, file, old, new, said):
    path = copy / file
    text = path.read_text(encoding="utf-8")
    changed = re.sub(old, new, text, count=1)
    assert changed != text
    path.write_text(changed, encoding="utf-8")
    assert any(said in sentence for sentence in pins.check(copy)), pins.check(copy)


def test_a_licence_that_nobody_looked_at_is_named(copy, monkeypatch):
    monkeypatch.setattr(pins, "licence", lambda name: "Proprietary" if name == "click" else None)
    assert pins.check(copy) == ["click: its licence is 'Proprietary', which tools/pins.py does not know."]


def test_hashed_lines_leave_torch_and_its_kind_out():
    def one(name):
        facts = {"archive_info": {"hashes": {"sha256": "ab" * 32}}}
        return {"metadata": {"name": name, "version": "1.0"}, "download_info": facts}

    made = lock.lines([one("torch"), one("nvidia-cublas-cu12"), one("triton"), one("Pillow"), one("a_b.c")])
    digest = "ab" * 32
    assert made == [f"{name}==1.0 \\\n    --hash=sha256:{digest}\n" for name in ("a-b-c", "pillow")]


def test_the_bill_of_materials_names_what_is_installed():
    document = json.loads(json.dumps(sbom.bom()))
    assert (document["bomFormat"], document["specVersion"]) == ("CycloneDX", "1.6")
    assert re.fullmatch(r"urn:uuid:[0-9a-f-]{36}", document["serialNumber"])
    parts = {part["name"]: part for part in document["components"]}
    assert parts["numpy"]["version"] == metadata.version("numpy")
    assert parts["torch"]["purl"].startswith("pkg:pypi/torch@")
    assert parts["llvmlite"]  # what numba needs
    assert parts["preact"]["purl"].startswith("pkg:npm/preact@")  # built into the page
    assert "esbuild" not in parts  # only builds it
    assert "pytest" not in parts
    refs = [part["bom-ref"] for part in document["components"]]
    assert len(refs) == len(set(refs))
    known = {*refs, document["metadata"]["component"]["bom-ref"]}
    links = {one["ref"]: one["dependsOn"] for one in document["dependencies"]}
    assert {ref for needed in links.values() for ref in needed} <= known
    assert any("/llvmlite@" in ref for ref in links[parts["numba"]["bom-ref"]])
    assert sbom.bom() == sbom.bom()
