"""Errors a user can act on: one sentence that says where, what is wrong and what to do."""

from __future__ import annotations

from collections.abc import Sequence


class AnaphoraError(Exception):
    """A user's mistake or a fault of the outside world.

    The command prints its text and exits with code 2, without a traceback.

    >>> try:
    ...     an.Classifier("lstm", hiden=8)
    ... except an.AnaphoraError as error:
    ...     print(error)
    hiden is not a setting of Classifier. Did you mean hidden?
    """


class DataError(AnaphoraError):
    """A file or an example that cannot be used; the text names the file and the line."""


class RunError(AnaphoraError):
    """A run folder or checkpoint that is missing, damaged, locked or cannot be written."""


class TrainingError(AnaphoraError):
    """Training cannot go on: the text names the step, the place and the likely cause."""


class SettingsError(AnaphoraError):
    """All mistakes in a set of settings at once, one per line."""

    def __init__(self, problems: Sequence[str]):
        self.problems = list(problems)
        super().__init__("\n".join(self.problems))


_NO_MEMORY = (
    "DefaultCPUAllocator", "bad_alloc", "can't start new thread", "Cannot allocate memory", "cannot allocate memory",
    "failed to map segment", "out of memory", "without exception set", "without setting an exception",
)  # fmt: skip
"""What libraries say when memory runs out."""


def out_of_memory(error: BaseException | None) -> bool:
    """Whether memory ran out, also in the forms of others: torch by a class of its own on a GPU and by a RuntimeError on
    the CPU, C++ by bad_alloc, C code that forgets to say why by a SystemError, the loader of libraries by an ImportError (modules) or
    an OSError (``ctypes``).

    ``error``: what was raised; its causes count as well.

    >>> from anaphora.errors import out_of_memory
    >>> out_of_memory(MemoryError()), out_of_memory(ValueError())
    (True, False)
    """
    if error is None:
        return False
    said = (
        isinstance(error, MemoryError)
        or type(error).__name__ == "OutOfMemoryError"
        or (
            isinstance(error, RuntimeError | ImportError | OSError | SystemError)
            and any(word in str(error) for word in _NO_MEMORY)
        )
    )
    return said or out_of_memory(error.__cause__) or out_of_memory(error.__context__)
