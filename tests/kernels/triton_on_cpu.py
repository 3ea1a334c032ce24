"""Triton's interpreter as the tests need it: two gaps of it filled."""

from __future__ import annotations

from typing import Any


def filled() -> None:
    """Numbers serve as indices, and products take bfloat16."""
    from triton.runtime import interpreter

    patch = interpreter._patch_lang_tensor

    def patched(tensor: Any, scope: Any) -> None:
        """It holds a number as an array of one, which newer versions of NumPy do not take for an index."""
        patch(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.reshape(-1)[0]))

    interpreter._patch_lang_tensor = patched
    import triton.language as tl

    builder = interpreter.InterpreterBuilder
    dot = builder.create_dot

    def wide(self: Any, a: Any, b: Any, *rest: Any) -> Any:
        """It holds bfloat16 as whole numbers of 16 bits, and multiplies these."""
        a, b = (self.cast_impl(x, tl.float32) if x.dtype.scalar == tl.bfloat16 else x for x in (a, b))
        return dot(self, a, b, *rest)

    builder.create_dot = wide
