"""Attention to the last steps only, with a memory of fixed size: what stands between the recurrences of Griffin."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from anaphora.nn import inside
from anaphora.nn.attention.scaled_dot import local_scaled_dot, scaled_dot
from anaphora.nn.linear.layer import LinearLayer, States, last_steps
from anaphora.nn.positions import rotary_rates, rotated


class LocalAttention(LinearLayer):
    """Each step attends to itself and to the ``window`` steps before it (De et al. 2024, section 2.3).

        q_t = R_t W_q x_t,   k_t = R_t W_k x_t,   v_t = W_v x_t,   out_t = W_o Σ_s softmax_s(q_t · k_s / √D) v_s

    R_t rotates by the place (`Rotary`); all heads of queries share ``kv_heads`` heads of keys and values (multi-query).
    No linear recurrence, but a state that does not grow: how many steps were read ``(B,)``, and the keys and values of the
    last ``window`` steps ``(B, window, ·)``. Notes ``weights`` ``(B, heads, T, T)``.

    >>> an.nn.linear.LocalAttention(16, heads=2)(torch.zeros(2, 5, 16))[0].shape
    torch.Size([2, 5, 16])
    """

    def __init__(self, width: int, heads: int = 4, *, window: int = 1024, kv_heads: int = 1):
        super().__init__(width, heads)
        self.size, self.window, self.kv_heads = width // heads, window, kv_heads
        if self.size % 2:
            raise ValueError(f"LocalAttention: heads must have an even width, not {self.size}.")
        if window < 1 or kv_heads < 1 or heads % kv_heads:
            raise ValueError(
                f"LocalAttention: needs a window of at least 1 and kv_heads that divide the {heads} heads, "
                f"got {window} and {kv_heads}."
            )
        self.project = nn.Linear(width, width + 2 * kv_heads * self.size, bias=False)
        self.output = nn.Linear(width, width, bias=False)

    def initial_state(self, batch: int, like: Tensor) -> States:
        read = torch.zeros(batch, dtype=torch.long, device=like.device)
        kind = torch.promote_types(like.dtype, torch.float32)
        empty = like.new_zeros(batch, self.window, self.kv_heads * self.size, dtype=kind)
        return read, empty, empty

    def mix(self, x: Tensor, state: States, lengths: Tensor | None) -> tuple[Tensor, States]:
        read, old_keys, old_values = state
        time, kept = x.shape[1], self.kv_heads * self.size
        q, k, v = self.project(x).split((self.width, kept, kept), -1)
        places = read[:, None] + torch.arange(time, device=x.device)  # rows may have read unequally much
        angles = places[..., None, None] * rotary_rates(self.size).to(x.device)
        cos, sin = (f(angles).to(old_keys.dtype) for f in (torch.cos, torch.sin))  # (B, T, 1, size/2)
        q, k = (rotated(part.reshape(*part.shape[:-1], -1, self.size), cos, sin) for part in (q, k))
        keys = torch.cat((old_keys.to(k.dtype), k.flatten(-2)), 1)  # (B, window + T, kept)
        values = torch.cat((old_values.to(v.dtype), v), 1)
        y = self._attend(q, keys, values, read)
        after = read + (time if lengths is None else lengths.to(read))
        held = (last_steps(part, self.window, lengths).to(old_keys.dtype) for part in (keys, values))
        return self.output(y.flatten(-2)), (after, *held)

    def _attend(self, q: Tensor, keys: Tensor, values: Tensor, read: Tensor) -> Tensor:
        """q ``(B, T, heads, size)``; keys and values of the window before and of all steps: ``(B, T, heads, size)``."""
        time, window = q.shape[1], self.window
        q = q.transpose(1, 2)
        k, v = (
            x.reshape(*x.shape[:-1], -1, self.size)
            .repeat_interleave(self.heads // self.kv_heads, 2)
            .transpose(1, 2)
            for x in (keys, values)
        )  # (B, heads, window + T, size)
        place = torch.arange(window + time, device=q.device)
        there = (
            place >= window - read[:, None]
        )  # (B, window + T): what stands before the first step is nothing
        if (
            time > 2 * window and not inside.recording()
        ):  # blocks of queries, so that the cost grows with the window
            padded = torch.nn.functional.pad(q, (0, 0, window, 0))
            return local_scaled_dot(padded, k, v, window, there, causal=True)[:, :, window:].transpose(1, 2)
        back = place[None, :] - place[:time, None]  # of query i, key i + window is its own
        seen = ((back >= 0) & (back <= window)) & there[:, None]  # (B, T, window + T)
        y, alpha = scaled_dot(q, k, v, seen[:, None], weights=inside.recording())
        if alpha is not None:
            inside.note(self, "weights", alpha[..., window:])
        return y.transpose(1, 2)
