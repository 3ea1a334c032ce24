"""The files in deploy/ agree with the package: commands, options, ports, paths and users exist and are the same everywhere."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from anaphora.cli.commands import serve
from anaphora.serving.guard import OPEN
from anaphora.serving.limits import Limits

ROOT = Path(__file__).resolve().parent.parent
DEPLOY = ROOT / "deploy"
IMAGES = ["Dockerfile", "Dockerfile.cuda"]
KNOWN = {
    "FROM",
    "RUN",
    "WORKDIR",
    "COPY",
    "ENV",
    "USER",
    "EXPOSE",
    "STOPSIGNAL",
    "HEALTHCHECK",
    "ENTRYPOINT",
    "CMD",
}


def instructions(name: str) -> list[tuple[str, str]]:
    """(instruction, rest) of a Dockerfile, continued lines joined and comments left out."""
    text = re.sub(r"^#.*\n", "", (DEPLOY / name).read_text(encoding="utf-8"), flags=re.MULTILINE)
    lines = [line for line in re.sub(r"\\\n\s*", " ", text).splitlines() if line.strip()]
    return [(word, rest.strip()) for word, _, rest in (line.partition(" ") for line in lines)]


def one(name: str, word: str) -> str:
    """The last such instruction, which is that of the final image."""
    return [rest for found, rest in instructions(name) if found == word][-1]


@pytest.mark.parametrize("name", IMAGES)
def test_an_image_runs_the_server_without_rights(name):
    assert {word for word, _ in instructions(name)} <= KNOWN
    command = json.loads(one(name, "ENTRYPOINT"))
    assert command[:2] == ["anaphora", "serve"]
    options = {option for parameter in serve.command.params for option in parameter.opts}
    assert {word for word in command if word.startswith("--")} <= options
    assert command[command.index("--port") + 1] == one(name, "EXPOSE")
    user = one(name, "USER")
    assert int(user) > 0
    assert f"--uid {user}" in one(name, "RUN")
    order = [word for word, _ in instructions(name)]
    assert order.index("USER") > max(i for i, word in enumerate(order) if word in ("RUN", "COPY"))
    assert one(name, "STOPSIGNAL") == "SIGTERM"


@pytest.mark.parametrize("name", IMAGES)
def test_the_health_check_asks_the_port_without_a_token(name):
    check = one(name, "HEALTHCHECK")
    words = json.loads(check.partition("CMD ")[2])
    compile(words[2], "health check", "exec")
    port, path = re.search(r"http://127\.0\.0\.1:(\d+)(/[^']*)'", words[2]).groups()
    assert port == one(name, "EXPOSE")
    assert path in OPEN


@pytest.mark.parametrize("name", IMAGES)
def test_an_image_installs_what_was_tested_and_copies_what_is_there(name):
    installs = [rest for word, rest in instructions(name) if word == "RUN" and "pip install" in rest]
    assert len(installs) == 2
    assert all("-c constraints.txt" in line for line in installs)
    extras = re.search(r"\[([a-z,]+)\]", installs[-1])[1].split(",")
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert set(extras) <= project["optional-dependencies"].keys()
    assert "serve" in extras
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    kept = {line[1:] for line in ignored if line.startswith("!")}
    assert ignored[1] == "*"
    for word, rest in instructions(name):
        if word == "COPY" and not rest.startswith("--from"):
            for source in shlex.split(rest)[:-1]:
                assert (ROOT / source).exists(), source
                assert source in kept, source
    assert "3.11" in one(name, "FROM")
    assert ">=3.11" in project["requires-python"].replace(" ", "")


def test_the_manifest_fits_the_image():
    yaml = pytest.importorskip("yaml")
    service = yaml.safe_load((DEPLOY / "kserve.yaml").read_text(encoding="utf-8"))
    assert service["kind"] == "InferenceService"
    predictor = service["spec"]["predictor"]
    (container,) = predictor["containers"]
    port = int(one("Dockerfile", "EXPOSE"))
    assert [entry["containerPort"] for entry in container["ports"]] == [port]
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        asked = container[probe]["httpGet"]
        assert asked["port"] == port
        assert asked["path"] in OPEN
    assert predictor["securityContext"]["runAsUser"] == int(one("Dockerfile", "USER"))
    assert predictor["terminationGracePeriodSeconds"] > Limits().grace
    environment = {entry["name"] for entry in container["env"]}
    assert serve.TOKEN in environment
    mounted = {entry["name"] for entry in container["volumeMounts"]}
    assert mounted == {entry["name"] for entry in predictor["volumes"]}
    assert predictor["minReplicas"] <= predictor["maxReplicas"]
    cache = next(entry["value"] for entry in container["env"] if entry["name"] == "ANAPHORA_CACHE")
    assert cache in {entry["mountPath"] for entry in container["volumeMounts"]}
