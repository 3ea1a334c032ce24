"""What is looked at where a case trains a model: each function is one part, run in a process of its own.

Only the public classes and the command are used, so that the same lines run before and after a restructuring.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import socket
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from cases import Case
from command import command, done

import anaphora
from equality import over_http, plain

RUN, INPUTS = Path("run"), 5
CALLBACK = """\
import os
import signal

import anaphora


class Stop(anaphora.Callback):
    def on_step(self, now):
        if now.step == int(os.environ.get("STOP_AFTER", "0")):
            os.kill(os.getpid(), signal.SIGKILL)
"""


@dataclass(frozen=True)
class Trained:
    """A case with its data written into the current folder."""

    name: str
    case: Case
    train: str
    dev: str | None
    looks: tuple[str, ...]

    def model(self, **more: Any) -> Any:
        return self.case.estimator(self.case.model, **{**self.case.settings, **more})

    def fit(self, out: str, seeds: int = 1, **more: Any) -> Any:
        given: dict[str, Any] = {"seeds": seeds} if seeds > 1 else {}
        return self.model(**more).fit(
            self.train, valid=self.dev, out=out, verbose=False, **self.case.fields, **given
        )

    def words(self, out: str, **more: Any) -> list[str]:
        """The same training as a command."""
        settings = {"model": self.case.model, **self.case.settings, **more}
        model = settings.pop("model")
        written = [f"{key}={_worded(value)}" for key, value in settings.items()]
        return [
            *("train", self.case.task, self.train, "--model", model, "-o", out),
            *(() if self.dev is None else ("--valid", self.dev)),
            *(word for one in written for word in ("--set", one)),
            *(
                word
                for key, value in self.case.fields.items()
                for word in (f"--{key.replace('_', '-')}", value)
            ),
        ]

    @property
    def measured_on(self) -> str:
        return self.dev or self.train

    @property
    def inputs(self) -> list[Any]:
        return self.case.inputs(INPUTS)

    @property
    def python_inputs(self) -> list[Any]:
        return [self.case.python(x) for x in self.inputs]


def _worded(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def parts(name: str, case: Case, looks: tuple[str, ...]) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Write the data of a case, and give the parts that apply to it, each with its name."""
    one = Trained(name, case, *case.write_data(Path()), looks)
    steps, asks = "steps" not in case.lacks, "predict" not in case.lacks
    known: dict[str, tuple[bool, Callable[[Trained], Any]]] = {
        "first weights and batches": (steps, begun),
        "fit": (True, fitted),
        "stopped and resumed": (steps, resumed),
        "two processes": (steps and "two" in looks, shared),
        "two seeds": ("seeds" in looks, seeded),
        "python": (True, asked),
        "command": (True, commanded),
        "bulk": (asks, bulk),
        "server": ("serve" in looks and asks, served),
        "export": ("export" in looks, exported),
        "runtime": ("export" in looks, run_without_torch),
    }
    for part, (applies, call) in known.items():
        if applies:
            yield part, lambda call=call: call(one)


# ---------------------------------------------------------------------- training
def begun(one: Trained) -> Any:
    """The first weights; the tensors that 50 batches give to the model; the loss of each step."""
    found: dict[str, Any] = {"first weights": {}, "batches": [], "steps": []}
    inputs: set[str] = set()
    depth = 0

    def before(module: Any, given: Any) -> None:
        nonlocal depth
        depth += 1

    def after(module: Any, given: Any, named: Mapping[str, Any], result: Any) -> None:
        nonlocal depth
        depth -= 1
        if depth == 0 and module.training:
            inputs.update(_given([*given, *named.values()]))

    class Look(anaphora.Callback):
        def on_start(self, now: Any) -> None:
            found["first weights"] = _weights(now.model)

        def on_step(self, now: Any) -> None:
            found["batches"].append(sorted(inputs))
            inputs.clear()
            found["steps"].append({"loss": now.loss, "lr": now.lr, "grad_norm": now.grad_norm})

    hooks = torch.nn.modules.module
    watched = (
        hooks.register_module_forward_pre_hook(before),
        hooks.register_module_forward_hook(after, with_kwargs=True, always_call=True),
    )
    more = {"steps": 50, "valid_every": 1000, "save_every": 1000, "callbacks": [Look()]}
    one.fit("begun", **more)
    for hook in watched:
        hook.remove()
    return found


def _given(value: Any) -> Iterator[str]:
    """Digests of the tensors in arguments that are data: nothing that was computed with gradients."""
    if isinstance(value, torch.Tensor):
        if not value.requires_grad:
            yield str(plain.plain(value))
    elif isinstance(value, Mapping):
        yield from _given(list(value.values()))
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _given(part)


def _weights(model: Any) -> dict[str, Any]:
    return {name: plain.array(value.detach().cpu().numpy()) for name, value in model.state_dict().items()}


def fitted(one: Trained) -> Any:
    """The run folder, what the estimator holds in memory after training, and what it answers."""
    model = one.fit(str(RUN))
    return {
        "run": plain.folder(RUN),
        "result": _public(model.result_),
        "parameters": model.get_params(),
        "settings": model.settings_.model_dump(),
        "answers in memory": answers(one, model),
    }


def _public(value: Any) -> Any:
    return {
        key: one for key, one in vars(value).items() if key in ("metrics", "step", "steps", "best", "stopped")
    }


def resumed(one: Trained) -> Any:
    """Killed after the fifth step by a callback, continued by the command: the same run as without a stop."""
    Path("stopping.py").write_text(CALLBACK, encoding="utf-8")
    words = one.words("stopped", callbacks="stopping:Stop")
    pid = os.fork()
    if pid == 0:
        os.environ["STOP_AFTER"] = "5"
        command(*words)
        os._exit(0)
    _, status = os.waitpid(pid, 0)
    found = {"ended with": os.waitstatus_to_exitcode(status), "left": plain.folder(Path("stopped"))}
    done("resume", "stopped", "--trust-parts", "--json")
    return {**found, "run": plain.folder(Path("stopped"))}


def shared(one: Trained) -> Any:
    """Two processes over gloo: one run folder, and what each of them holds and answers."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    os.environ.update(WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    ranks = []
    for rank in range(2):
        pid = os.fork()
        if pid == 0:
            os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank))
            os._exit(_written(Path(f"rank-{rank}.json"), lambda: _rank(one)))
        ranks.append(pid)
    codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in ranks]
    held = [json.loads(Path(f"rank-{rank}.json").read_text()) for rank in range(2)]
    return {"codes": codes, "run": plain.folder(Path("shared")), "ranks": held}


def _rank(one: Trained) -> Any:
    model = one.fit("shared")
    return {
        "weights": _weights(model.model_),
        "settings": model.settings_.model_dump(),
        "answers": answers(one, model),
    }


def _written(path: Path, call: Callable[[], Any]) -> int:
    try:
        path.write_text(json.dumps(plain.plain(call())))
    except Exception as error:
        path.write_text(json.dumps(plain.text(f"{type(error).__name__}: {error}")))
        return 1
    return 0


def seeded(one: Trained) -> Any:
    """Two seeds: both runs, the summary, and the better of them as an estimator."""

    def both() -> Any:
        model = one.fit("seeds", seeds=2)
        return {"seeds": str(model.seeds_), "answers": answers(one, model)}

    return {"estimator": _tried(both), "folder": plain.folder(Path("seeds"))}


# ---------------------------------------------------------------------- answers
def answers(one: Trained, model: Any) -> Any:
    """What a model answers in Python: together and alone, with all details, and what else its task can do."""
    case, inputs = one.case, one.python_inputs
    if "predict" in case.lacks:
        return None
    if case.task == "forecast":
        return {
            "plain": [model.predict(x) for x in inputs[:2]],
            "interval": [model.predict(x, interval=0.9) for x in inputs[:2]],
        }
    found: dict[str, Any] = {
        "details": model.predict(inputs, details=True, **case.options),
        "plain": model.predict(inputs),
        "alone": [model.predict([x], details=True, **case.options) for x in inputs[:2]],
    }
    if hasattr(model, "predict_proba"):
        found["probabilities"] = _tried(lambda: model.predict_proba(inputs))
    return found


def asked(one: Trained) -> Any:
    """A run that is loaded: answers, scores, what only its task can do, and what a look inside finds."""
    model, case, inputs = anaphora.load(RUN, device="cpu"), one.case, one.python_inputs
    found = {"answers": answers(one, model), "settings": model.settings_.model_dump()}
    searched = case.options if case.task not in ("forecast", "language", "embed") else {}
    found["score"] = model.score(one.measured_on, **searched)
    found["more"] = {name: _tried(call) for name, call in _more(model, inputs, case).items()}
    if "predict" not in case.lacks:
        found["probe"] = _tried(lambda: _trace(model.probe(inputs[0])))
    model.save("saved")
    found["saved"] = plain.folder(Path("saved"))
    return found


def _tried(call: Callable[[], Any]) -> Any:
    """The value of a call, or the type and text of what it raised."""
    try:
        return call()
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def _more(model: Any, inputs: list[Any], case: Case) -> dict[str, Callable[[], Any]]:
    """What one task alone can do."""
    known: dict[str, dict[str, Callable[[], Any]]] = {
        "classify": {"threshold": lambda: model.predict(inputs, threshold=0.4)},
        "language": {
            "sample": lambda: model.sample("a", length=12, seed=3, n=2),
            "cooler": lambda: model.sample("a", length=12, temperature=0.6, top_k=3, seed=4),
            "rank": lambda: model.rank(["a good day", "so cold"]),
            "read": lambda: model.read(["a good day", ""]),
        },
        "translate": {
            "n best": lambda: model.search(inputs, n_best=3, beam=4, max_length=8),
            "sampled": lambda: model.predict(inputs, decode="sample", seed=5, max_length=8, details=True),
            "no beam": lambda: model.predict(inputs, beam=1, max_length=8, details=True),
        },
        "forecast": {
            "longer": lambda: model.predict(inputs[0], horizon=7),
            "sampled": lambda: model.predict(inputs[0], sample=True, seed=3),
        },
        "transcribe": {
            "transcripts": lambda: model.transcribe(inputs, beam=3),
            "prefixes": lambda: model.predict(inputs, beam=4, details=True),
        },
        "caption": {"n best": lambda: model.search(inputs, n_best=2, beam=3, max_length=6)},
        "embed": {
            "search": lambda: model.search(inputs[:2], inputs, k=3),
            "cluster": lambda: model.cluster(inputs, 2, seed=1),
        },
    }
    return known.get(case.task, {})


def _trace(trace: Any) -> Any:
    return {
        "tokens": trace.tokens,
        "arrays": {name: [list(one.axes), one.values] for name, one in trace.arrays.items()},
        "tables": trace.tables,
        "facts": {key: value for key, value in trace.facts.items() if "seconds" not in key},
    }


# ---------------------------------------------------------------------- the command
def commanded(one: Trained) -> Any:
    """What the commands over one run print."""
    case = one.case
    options = [word for key, value in case.options.items() for word in ("--set", f"{key}={value}")]
    shutil.copytree(RUN, "other")
    words: dict[str, list[object]] = {
        "score": ["score", RUN, one.measured_on, *options, "--json"],
        "verify": ["verify", RUN, "--json"],
        "list of views": ["inspect", RUN, "--list", "--json"],
        "plan": [*one.words("planned"), "--dry-run", "--json"],
    }
    if "predict" not in case.lacks:
        file = case.write_inputs(Path(), INPUTS)
        words |= {
            "predict": ["predict", RUN, file, *options],
            "predict as JSON": ["predict", RUN, file, *options, "--json"],
            "compare": ["compare", RUN, "other", "--samples", 50, "--json"],
            "compare on data": ["compare", RUN, "other", "--data", one.measured_on, "--samples", 50],
        }
    return {name: _ended(*line) for name, line in words.items()}


def _ended(*words: object) -> Any:
    """The exit code of a command, its words, and its JSON as values."""
    ended = command(*words)
    out: Any = plain.said(ended.out)
    if "--json" in words:
        out = [_loaded(line) for line in ended.out.splitlines()]
    return {"code": ended.code, "out": out, "err": plain.said(ended.err)}


def _loaded(line: str) -> Any:
    try:
        return json.loads(line)
    except ValueError:
        return plain.said(line)


def bulk(one: Trained) -> Any:
    """A file of answers in one go, and the same one stopped by a full disk and continued."""
    if "batch" in one.case.lacks:
        return None
    file = one.case.ask(Path(), "many", one.case.rows(2200 if "long" in one.looks else 24, 5))
    words = ("predict", RUN, file, "--workers", 1, "--out")
    found: dict[str, Any] = {"said": _ended(*words, "answers.txt")}
    whole = Path("answers.txt").read_text(encoding="utf-8")
    found["whole"] = whole.splitlines()
    _ended(*words, "answers.jsonl", "--json")
    found["as JSON"] = [_loaded(line) for line in Path("answers.jsonl").read_text("utf-8").splitlines()]
    pid = os.fork()
    if pid == 0:
        most = len(whole.encode()) * 3 // 4
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
        code = command(*words, "stopped.txt").code
        os._exit(code)
    found["stopped with"] = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    found["kept"] = [path.name for path in sorted(Path().glob("*stopped.txt*"))]
    found["continued"] = _ended(*words, "stopped.txt")
    found["the same in the end"] = Path("stopped.txt").read_text(encoding="utf-8") == whole
    return found


# ---------------------------------------------------------------------- server and runtime
def served(one: Trained) -> Any:
    return over_http.served(RUN, one.name, one.case, one.inputs)


def exported(one: Trained) -> Any:
    """The graphs of an export, their inputs, outputs and weights, and what is written beside them."""
    model = anaphora.load(RUN, device="cpu")
    model.export("exported", to="onnx")
    import onnx

    found = {}
    for path in sorted(Path("exported").rglob("*")):
        name = path.relative_to("exported").as_posix()
        if path.suffix == ".onnx":
            graph = onnx.load(path).graph
            found[name] = {
                "inputs": [_shape(value) for value in graph.input],
                "outputs": [_shape(value) for value in graph.output],
                "operations": sorted({node.op_type for node in graph.node}),
            }
        elif path.is_file() and path.suffix != ".data":
            found[name] = plain.file(path)
    return found


def _shape(value: Any) -> str:
    sizes = [one.dim_param or one.dim_value for one in value.type.tensor_type.shape.dim]
    return f"{value.name} {value.type.tensor_type.elem_type} {sizes}"


def run_without_torch(one: Trained) -> Any:
    """What the runtime answers to the same inputs."""
    from anaphora.runtime import load

    model = load("exported")
    if one.case.task == "forecast":
        return [_tried(lambda x=x: model.predict(x)) for x in one.python_inputs[:2]]
    return {
        "plain": _tried(lambda: model.predict(one.python_inputs)),
        "details": _tried(lambda: model.predict(one.python_inputs, details=True, **one.case.options)),
    }
