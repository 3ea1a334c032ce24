"""A replaced run folder is loaded again: new requests get the new model, old ones finish with theirs."""

from __future__ import annotations

import asyncio
import shutil
import threading

import pytest

import own_loop
from anaphora.errors import AnaphoraError, RunError
from anaphora.serving.limits import Limits
from anaphora.serving.metrics import Metrics
from anaphora.serving.naming import named_folders
from anaphora.serving.runs import Runs


@pytest.fixture
def copied(folder_of, tmp_path):
    shutil.copytree(folder_of("classify"), tmp_path / "run")
    return tmp_path / "run"


def replaced(copied, folder_of, kind="classify-transformer"):
    """Put another run in the place of the first, as ``mv`` does."""
    shutil.copytree(folder_of(kind), copied.with_name("new"))
    copied.rename(copied.with_name("old"))
    copied.with_name("new").rename(copied)


def test_a_replaced_folder_is_loaded_and_old_requests_finish(copied, folder_of, monkeypatch):
    said = []
    runs = Runs({"run": copied}, Limits(reload_seconds=0.05), Metrics(), device="cpu", say=said.append)
    old = runs.get()
    gate, answer = threading.Event(), old.exchange.answer
    monkeypatch.setattr(old.exchange, "answer", lambda *given: gate.wait(120) and answer(*given))

    async def swap():
        watching = asyncio.create_task(runs.watch())
        with runs.using() as used:
            asked = asyncio.create_task(used.ask(["a b"], {"details": False}))
            await own_loop.until(lambda: old._batcher.begun is not None)
            replaced(copied, folder_of)
            await own_loop.until(lambda: runs.get() is not old)
            with runs.using() as new:
                assert new.version != old.version
                assert (
                    len(await new.ask(["a b"], {"details": False})) == 1
                )  # while the old one still computes
            gate.set()
            assert len(await asked) == 1
            assert old._batcher._thread.is_alive()
        await own_loop.until(lambda: not old._batcher._thread.is_alive())  # nothing uses it any more
        watching.cancel()

    ended = []
    old.on_close.append(lambda: ended.append(True))
    own_loop.run(swap())
    assert ended == [True]
    assert said == [f"anaphora: run was loaded again (version {runs.get().version})."]
    runs.close()


def test_a_damaged_folder_is_refused_and_the_old_one_goes_on(copied, folder_of):
    said = []
    runs = Runs({"run": copied}, Limits(reload_seconds=0.05), Metrics(), device="cpu", say=said.append)
    old = runs.get()
    content = bytearray((copied / "model.safetensors").read_bytes())
    content[-1] ^= 1
    (copied / "model.safetensors").write_bytes(content)

    async def wait():
        watching = asyncio.create_task(runs.watch())
        await own_loop.until(lambda: said)
        await asyncio.sleep(0.2)
        watching.cancel()
        assert runs.get() is old
        return await old.ask(["a"], {"details": False})

    assert len(own_loop.run(wait())) == 1
    assert len(said) == 1  # not again and again
    assert "was not loaded again" in said[0]
    runs.close()


def test_a_version_that_fails_in_any_way_is_refused_and_the_next_one_is_loaded(
    copied, folder_of, monkeypatch
):
    """B6: whatever its load raised beside our own errors ended the watch for good."""
    said = []
    runs = Runs({"run": copied}, Limits(reload_seconds=0.02), Metrics(), device="cpu", say=said.append)
    old, loaded, failing = runs.get(), Runs._loaded, [AttributeError("x"), MemoryError(), RecursionError(), 0]

    def load(self, name, folder):
        error = failing.pop(0)
        if error:
            raise error
        return loaded(self, name, folder)

    monkeypatch.setattr(Runs, "_loaded", load)

    async def wait():
        watching = asyncio.create_task(runs.watch())
        for number in range(4):
            (copied / "config.json").touch()
            await own_loop.until(lambda n=number: len(said) == n + 1)
        assert not watching.done()
        watching.cancel()

    own_loop.run(wait())
    assert runs.get() is not old
    assert all("was not loaded again" in one and "cannot be read" in one for one in said[:3])
    assert "AttributeError" in said[0]
    assert "was loaded again" in said[3]
    runs.close()


def test_a_damaged_run_is_not_served(copied):
    content = bytearray((copied / "model.safetensors").read_bytes())
    content[-1] ^= 1
    (copied / "model.safetensors").write_bytes(content)
    with pytest.raises(RunError, match=r"model\.safetensors"):
        Runs({"run": copied}, Limits(), Metrics(), device="cpu")


def test_names_of_runs():
    found = named_folders(["runs/a", "b=runs/c"])
    assert {name: str(folder) for name, folder in found.items()} == {"a": "runs/a", "b": "runs/c"}
    with pytest.raises(AnaphoraError, match="two runs are called a"):
        named_folders(["runs/a", "other/a"])
    with pytest.raises(AnaphoraError, match="has no name"):
        named_folders(["=runs/a"])
