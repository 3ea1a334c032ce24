"""How far back a loss reaches: gradients over time, and products of Jacobians."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from anaphora.errors import AnaphoraError
from anaphora.nn.recurrent import Recurrent

MAX_STEPS = 512
"""Longest sequence: every step costs one pass back."""
MAX_STATE = 1024
"""Widest state whose Jacobian is computed whole."""
MAX_SPECTRUM = 384
"""Widest state whose Jacobians have their singular values and eigenvalues computed, all of them at each step."""

Losses = Callable[[Tensor], Tensor]
"""From what the model computed to one loss for each place ``(T,)``."""


def input_gradients(source: nn.Module, call: Callable[[], Tensor], losses: Losses) -> NDArray[Any]:
    """‖∂L_t/∂x_k‖ ``(t, k)``, where x ``(1, K, width)`` is what the module ``source`` (an embedding) puts out.

    Works for every model: nothing is asked of it but that it calls ``source`` once.
    """
    given: list[Tensor] = []

    def cut(module: nn.Module, arguments: Any, output: Tensor) -> Tensor:
        leaf = output.detach().requires_grad_()
        given.append(leaf)
        return leaf

    handle = source.register_forward_hook(cut)
    try:
        with torch.enable_grad():
            each = losses(call())
    finally:
        handle.remove()
    if len(given) != 1:
        raise AnaphoraError(f"the input was looked up {len(given)} times, so its gradient has no one place.")
    _check_length(len(each))
    rows = [_norms(torch.autograd.grad(loss, given[0], retain_graph=True)[0]) for loss in each.unbind()]
    return np.stack(rows)


def pair_gradients(
    sources: Sequence[nn.Module], call: Callable[[], Tensor], losses: Losses
) -> list[NDArray[Any]]:
    """For every call of one of the modules ``sources`` (embeddings, perhaps one for both sides) the lengths
    ‖∂L_t/∂x_k‖ ``(t, k)`` of what it put out ``(1, K, width)``, in the order of the calls."""
    given: list[Tensor] = []

    def cut(module: nn.Module, arguments: Any, output: Tensor) -> Tensor:
        given.append(output.detach().requires_grad_())
        return given[-1]

    handles = [module.register_forward_hook(cut) for module in dict.fromkeys(sources)]
    try:
        with torch.enable_grad():
            each = losses(call())
    finally:
        for handle in handles:
            handle.remove()
    _check_length(len(each))
    if not given:
        return []
    rows = [
        torch.autograd.grad(loss, given, retain_graph=True, materialize_grads=True) for loss in each.unbind()
    ]
    return [np.stack([_norms(row[i]) for row in rows]) for i in range(len(given))]


def state_gradients(
    recurrent: Recurrent, x: Tensor, losses: Callable[[Tensor, tuple[Tensor, ...]], Tensor]
) -> NDArray[Any]:
    """‖∂L_t/∂s_k‖ ``(t, k)``; s_k is the whole state after step k: every layer, h and c.

    x ``(1, T, inputs)``; ``losses`` takes the outputs y ``(1, T, hidden)`` and the last states, and gives one loss per
    step, of which L_t may use y_t only, or any other number of losses of the whole.
    """
    if recurrent.bidirectional:
        raise AnaphoraError("the layer reads in both directions, so its states have no one order in time.")
    _check_length(x.shape[1])
    with torch.enable_grad():
        states, outputs = _unrolled(recurrent, x.detach())
        each = losses(torch.stack(outputs, 1), states[-1])
    found = np.zeros((len(each), len(outputs)))
    stepwise = len(each) == len(outputs)
    for t, loss in enumerate(each.unbind()):
        reached = t + 1 if stepwise else len(states)
        parts = [part for state in states[:reached] for part in state]
        grads = torch.autograd.grad(loss, parts, retain_graph=True, allow_unused=True)
        size = len(states[0])
        for k in range(reached):
            mine = [g for g in grads[k * size : (k + 1) * size] if g is not None]
            found[t, k] = (
                float(torch.stack([g.double().square().sum() for g in mine]).sum().sqrt()) if mine else 0
            )
    return found


def jacobian_norms(recurrent: Recurrent, x: Tensor) -> tuple[NDArray[Any], NDArray[Any]]:
    """``(own, products)``, each ``(T,)``: σ_max(∂s_t/∂s_{t−1}), and σ_max(∂s_T/∂s_k) for the state after step k.

    ‖∂s_T/∂s_k‖ ≤ ∏ σ_max(∂s_i/∂s_{i−1}): where the first are below 1, the products vanish.
    """
    return norms_of(state_jacobians(recurrent, x))


def norms_of(jacobians: Sequence[Tensor]) -> tuple[NDArray[Any], NDArray[Any]]:
    """The same of Jacobians that `state_jacobians` found."""
    own = [float(torch.linalg.matrix_norm(j, 2)) for j in jacobians]
    return np.array(own), np.array([float(torch.linalg.matrix_norm(p, 2)) for p in _products(jacobians)])


def jacobian_spectrum(
    jacobians: Sequence[Tensor],
) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Of Jacobians ∂s_t/∂s_{t−1}, each ``(n, n)``, as `state_jacobians` finds them:

    singular ``(T, n)``     those of ∂s_T/∂s_k for the state after each step k, the greatest first
    eigenvalues ``(T, 2, n)``   real and imaginary parts of those of ∂s_t/∂s_{t−1}, by size, the greatest first
    growth ``(T,)``         log ‖J_t q‖ / ‖q‖ of a vector that is carried along from the first step: its mean is the largest
                            Lyapunov exponent, as soon as the vector has turned into the direction that grows most
    """
    singular = [torch.linalg.svdvals(product).cpu().numpy() for product in _products(jacobians)]
    eigenvalues, growth = [], []
    carried = torch.ones(len(jacobians[0]), dtype=jacobians[0].dtype, device=jacobians[0].device)
    carried = carried / carried.norm()
    for jacobian in jacobians:
        found = torch.linalg.eigvals(jacobian).cpu().numpy()
        found = found[np.argsort(-np.abs(found), kind="stable")]
        eigenvalues.append(np.stack((found.real, found.imag)))
        carried = jacobian @ carried
        size = float(carried.norm())
        growth.append(float(np.log(max(size, 1e-300))))
        carried = carried / max(size, 1e-300)
    return np.stack(singular), np.stack(eigenvalues), np.array(growth)


def state_jacobians(recurrent: Recurrent, x: Tensor) -> list[Tensor]:
    """∂s_t/∂s_{t−1} ``(n, n)`` in double precision for each step of x ``(1, T, inputs)``, from a state of zeros; n counts all
    numbers of the state, h and c of every layer."""
    if recurrent.bidirectional:
        raise AnaphoraError("the layer reads in both directions, so its states have no one order in time.")
    width = len(recurrent.state) * recurrent.layers * recurrent.hidden
    if width > MAX_STATE:
        raise AnaphoraError(f"a state of {width} numbers is too wide for its Jacobian ({MAX_STATE} at most).")
    _check_length(x.shape[1])
    shape = (len(recurrent.state), recurrent.layers, 1, recurrent.hidden)
    state = torch.zeros(shape, dtype=x.dtype, device=x.device)
    jacobians = []
    for now in x.unbind(1):

        def advance(flat: Tensor, now: Tensor = now) -> Tensor:
            _, new = recurrent.step(now, tuple(flat.view(shape).unbind(0)))
            return torch.stack(new).reshape(-1)

        whole: Tensor = torch.autograd.functional.jacobian(advance, state.reshape(-1))  # type: ignore[no-untyped-call]
        jacobians.append(whole.double())
        with torch.no_grad():
            state = advance(state.reshape(-1)).view(shape)
    return jacobians


def _products(jacobians: Sequence[Tensor]) -> list[Tensor]:
    """∂s_T/∂s_k for each k."""
    product = torch.eye(len(jacobians[0]), dtype=torch.float64, device=jacobians[0].device)
    products = [product]
    for jacobian in reversed(jacobians[1:]):
        product = product @ jacobian
        products.append(product)
    return products[::-1]


def _unrolled(recurrent: Recurrent, x: Tensor) -> tuple[list[tuple[Tensor, ...]], list[Tensor]]:
    state = recurrent.initial_state(x.shape[0], x)
    states: list[tuple[Tensor, ...]] = []
    outputs: list[Tensor] = []
    for now in x.unbind(1):
        y, state = recurrent.step(now, state)
        states.append(state)
        # read the output from the state, so that the loss of a step reaches the state after that step as well
        outputs.append(state[0][-1] if recurrent.connections == "plain" else y)
    return states, outputs


def _norms(gradient: Tensor) -> NDArray[Any]:
    return np.asarray(gradient[0].double().norm(dim=-1).cpu().numpy())


def _check_length(steps: int) -> None:
    if steps > MAX_STEPS:
        raise AnaphoraError(f"{steps} steps are too many for gradients over time ({MAX_STEPS} at most).")
