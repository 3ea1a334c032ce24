"""Modules that count what is done to them, so that finding nothing changed takes no time."""

from __future__ import annotations

from typing import Any

from torch import nn

changes: list[object] = [object()]  # holds another object after each change of any watched module


class Watched(nn.Module):
    """A module whose attributes, parts and hooks are counted as changed when they are set or removed.

    What bypasses these methods is not counted: a value put into ``vars(module)``, the inside of a container.
    """

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        changes[0] = object()

    def __delattr__(self, name: str) -> None:
        super().__delattr__(name)
        changes[0] = object()

    def register_buffer(self, *args: Any, **kwargs: Any) -> None:
        super().register_buffer(*args, **kwargs)
        changes[0] = object()

    def register_parameter(self, *args: Any, **kwargs: Any) -> None:
        super().register_parameter(*args, **kwargs)
        changes[0] = object()

    def add_module(self, *args: Any, **kwargs: Any) -> None:
        super().add_module(*args, **kwargs)
        changes[0] = object()

    def register_forward_hook(self, *args: Any, **kwargs: Any) -> Any:
        return _counted(super().register_forward_hook(*args, **kwargs))

    def register_forward_pre_hook(self, *args: Any, **kwargs: Any) -> Any:
        return _counted(super().register_forward_pre_hook(*args, **kwargs))

    def register_full_backward_hook(self, *args: Any, **kwargs: Any) -> Any:
        return _counted(super().register_full_backward_hook(*args, **kwargs))

    def register_full_backward_pre_hook(self, *args: Any, **kwargs: Any) -> Any:
        return _counted(super().register_full_backward_pre_hook(*args, **kwargs))


def _counted(handle: Any) -> Any:
    """Return the handle of a new hook; its removal counts as a change, too."""
    remove = handle.remove

    def removed() -> None:
        remove()
        changes[0] = object()

    handle.remove = removed
    changes[0] = object()
    return handle
