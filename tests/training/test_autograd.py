"""Autograd in a training step: hooks, functions with a backward of their own, custom operators, double backward, grad modes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import triton
import triton.language as tl
from torch import nn

from tests.training.harness import WIDTH, Scenario, compare

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


def network() -> tuple[Any, torch.optim.Optimizer]:
    model = nn.Sequential(nn.Linear(8, WIDTH), nn.Tanh(), nn.Linear(WIDTH, 1))
    return model, torch.optim.SGD(model.parameters(), lr=0.1)


def inputs(tokens: torch.Tensor) -> torch.Tensor:
    return tokens[:, :8].float() / 32


def training(loss_of: Callable[..., Any], build: Callable[[], tuple[Any, ...]] = network) -> Callable[[], Scenario]:
    """The scenario of a step around a loss; what else `loss_of` gives is compared too."""

    def scenario() -> Scenario:
        def step(model, optimizer, tokens):
            optimizer.zero_grad()
            loss, *rest = loss_of(model, inputs(tokens))
            loss.backward()
            optimizer.step()
            return loss, rest

        return build, step

    return scenario


# --------------------------------------------------------------------------------------------------------------- hooks
def test_hooks_of_tensors() -> None:
    seen: list[float] = []

    def loss_of(model, x):
        hidden = model[0](x)
        hidden.register_hook(lambda grad: grad * 2)
        removed = hidden.register_hook(lambda grad: grad * 100)
        removed.remove()
        hidden.retain_grad()
        out = model[2](model[1](hidden))
        out.register_hook(lambda grad: seen.append(grad.sum().item()))
        loss = out.pow(2).mean()
        loss.backward(retain_graph=True)
        return loss, hidden.grad.clone(), seen[-1], len(seen)

    def scenario() -> Scenario:
        seen.clear()
        return training(loss_of)()

    compare(scenario, 24)


def _halve_gradient(parameter: torch.Tensor) -> None:
    assert parameter.grad is not None
    parameter.grad.mul_(0.5)


def test_hooks_of_modules_and_parameters() -> None:
    def build():
        model, optimizer = network()
        model.seen = []
        model[0].register_forward_hook(lambda module, args, out: out * 1.5)
        model[0].register_forward_pre_hook(lambda module, args: (args[0] * 1.1,))
        model[2].register_full_backward_hook(lambda module, gradients, outer: model.seen.append(outer[0].sum().item()))
        model[2].register_full_backward_pre_hook(lambda module, outer: (outer[0] * 2,))
        model[0].weight.register_hook(lambda grad: grad * 0.5)
        for parameter in model[2].parameters():
            parameter.register_post_accumulate_grad_hook(_halve_gradient)
        model.register_forward_hook(lambda module, args, out: model.seen.append(out.sum().item()))
        return model, optimizer

    compare(training(lambda model, x: (model(x).pow(2).mean(), model.seen[-1], model.seen[0]), build), 24)


def test_the_optimizer_steps_in_hooks() -> None:
    def scenario() -> Scenario:
        def build():
            model, _ = network()
            optimizers = {p: torch.optim.AdamW([p], lr=0.01) for p in model.parameters()}

            def hook(parameter):
                optimizers[parameter].step()
                optimizers[parameter].zero_grad()

            for parameter in model.parameters():
                parameter.register_post_accumulate_grad_hook(hook)
            return model, *optimizers.values()

        def step(model, *rest):
            loss = model(inputs(rest[-1])).pow(2).mean()
            loss.backward()
            return loss

        return build, step

    compare(scenario, 24)


def test_hooks_of_saved_tensors() -> None:
    def loss_of(model, x):
        with torch.autograd.graph.saved_tensors_hooks(lambda t: t.clone(), lambda t: t * 1.0):
            return (model(x).pow(2).mean(),)

    compare(training(loss_of), 12)


# ----------------------------------------------------------------------------------------------------------- functions
class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, by):
        ctx.save_for_backward(x)
        ctx.by = by
        return x * x * by

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return 2 * x * grad * ctx.by, None


class Both(torch.autograd.Function):
    """With `setup_context`, a result that needs no gradient and one that is not used."""

    @staticmethod
    def forward(x, by):
        return x * by, x > 0, x + 1

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.by = inputs[1]
        ctx.mark_non_differentiable(output[1])
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx, grad, _, unused):
        assert unused is None and ctx.needs_input_grad == (True, False)
        return grad * ctx.by, None


class InPlace(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.mark_dirty(x)
        return x.mul_(2)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, grad):
        return grad * 2


def test_functions() -> None:
    def loss_of(model, x):
        hidden, positive, _ = Both.apply(model[0](x), 3)
        out = model[2](InPlace.apply(Scaled.apply(hidden, 0.5) + 1))
        with torch.no_grad():
            other = Scaled.apply(model[0](x), 2)
        return out.pow(2).mean(), positive, other, hidden.grad_fn.name()

    compare(training(loss_of), 24)


@triton.jit
def square_kernel(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + i, mask=i < n)
    tl.store(out + i, value * value, mask=i < n)


@triton.jit
def square_backward_kernel(x, grad, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, 2 * tl.load(x + i, mask=i < n) * tl.load(grad + i, mask=i < n), mask=i < n)


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        out = torch.empty_like(x)
        square_kernel[(triton.cdiv(x.numel(), 16),)](x, out, x.numel(), BLOCK=16)
        return out

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        grad, out = grad.contiguous(), torch.empty_like(x)
        square_backward_kernel[(triton.cdiv(x.numel(), 16),)](x, grad, out, x.numel(), BLOCK=16)
        return out


@pytest.mark.parametrize("device", DEVICES)
def test_a_function_of_triton_kernels(device: str) -> None:
    def build():
        model, _ = network()
        model = model.to(device)
        return model, torch.optim.SGD(model.parameters(), lr=0.1)

    compare(training(lambda model, x: (model[2](Square.apply(model[0](x.to(device)))).pow(2).mean(),), build), 24)


# ---------------------------------------------------------------------------------------------------- custom operators
@torch.library.custom_op("trident_tests::scaled", mutates_args=())
def scaled(x: torch.Tensor, by: float) -> torch.Tensor:
    return x * x * by


@torch.library.custom_op("trident_tests::add_to", mutates_args=("x",))
def add_to(x: torch.Tensor, by: float) -> None:
    x.add_(by)


def _keep(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.save_for_backward(inputs[0])
    ctx.by = inputs[1]


scaled.register_autograd(lambda ctx, grad: (2 * ctx.saved_tensors[0] * grad * ctx.by, None), setup_context=_keep)


@torch.library.triton_op("trident_tests::square", mutates_args=())
def square(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    torch.library.wrap_triton(square_kernel)[(triton.cdiv(x.numel(), 16),)](x, out, x.numel(), BLOCK=16)
    return out


square.register_autograd(lambda ctx, grad: 2 * ctx.saved_tensors[0] * grad,
                         setup_context=lambda ctx, inputs, output: ctx.save_for_backward(inputs[0]))


def test_custom_operators() -> None:
    def loss_of(model, x):
        hidden = scaled(model[0](x), 0.5) + torch.ops.trident_tests.scaled(x.mean(), 2.0)
        count = torch.zeros(3)
        add_to(count, 2.0)
        return model[2](square(hidden)).pow(2).mean(), count

    compare(training(loss_of), 24)


# ------------------------------------------------------------------------------------------- derivatives of derivatives
def test_double_backward() -> None:
    def loss_of(model, x):
        x = x.requires_grad_()
        (gradient,) = torch.autograd.grad(Scaled.apply(model(x), 1.5).sum(), x, create_graph=True)
        return (gradient.norm(2, dim=1) - 1).pow(2).mean(), gradient

    compare(training(loss_of), 24)


def test_retained_graphs_and_chosen_inputs() -> None:
    def loss_of(model, x):
        loss = model(x).pow(2).mean()
        loss.backward(retain_graph=True)
        loss.backward(inputs=[model[0].weight], retain_graph=True)
        return loss, torch.autograd.grad(loss, list(model.parameters()), retain_graph=True)

    compare(training(loss_of), 24)


def test_grad_modes() -> None:
    def loss_of(model, x):
        @torch.no_grad()
        def frozen():
            return model(x)

        with torch.no_grad():
            first = model(x)
            with torch.enable_grad():
                second = model(x)
        with torch.inference_mode():
            third = model(x)
        with torch.set_grad_enabled(False):
            fourth = model(x)
        kinds = [t.requires_grad for t in (first, second, third, fourth, frozen())]
        return second.pow(2).mean() + first.mean(), kinds, third.is_inference(), third

    compare(training(loss_of), 24)


def test_anomaly_mode() -> None:
    def loss_of(model, x):
        with torch.autograd.detect_anomaly(check_nan=False):
            loss = model(x).pow(2).mean()
            loss.backward(retain_graph=True)
        return (loss,)

    with pytest.warns(UserWarning, match="Anomaly Detection"):
        compare(training(loss_of), 12)


def test_batch_norm_dropout_and_parametrizations() -> None:
    def build():
        model = nn.Sequential(nn.Linear(8, WIDTH), nn.BatchNorm1d(WIDTH), nn.Dropout(0.3), nn.Linear(WIDTH, 1))
        nn.utils.parametrizations.weight_norm(model[0])
        nn.utils.parametrizations.spectral_norm(model[3])
        return model, torch.optim.SGD(model.parameters(), lr=0.1)

    compare(training(lambda model, x: (model(x).pow(2).mean(),), build), 24)


# ---------------------------------------------------------------------------------------------- what changes in between
def test_parameters_are_frozen_and_the_mode_changes_in_between() -> None:
    def scenario() -> Scenario:
        calls: list[None] = []

        def build():
            model = nn.Sequential(nn.Linear(8, WIDTH), nn.Dropout(0.5), nn.Linear(WIDTH, 1))
            return model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

        def step(model, optimizer, tokens):
            optimizer.zero_grad()
            loss = model(inputs(tokens)).pow(2).mean()
            loss.backward()
            optimizer.step()
            return loss

        def outer(model, optimizer, tokens):
            calls.append(None)
            model[0].requires_grad_(len(calls) % 8 < 4)
            model.train(len(calls) % 6 < 3)
            optimizer.param_groups[0]["lr"] = 0.1 / len(calls)
            return step(model, optimizer, tokens)

        return build, outer

    compare(scenario, 48)
