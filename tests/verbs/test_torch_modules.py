"""Autocast's emulation on modules of every kind."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from halfwise import InputError

torch = pytest.importorskip("torch", reason="PyTorch is not installed (the extra 'torch')")

from torch import nn  # noqa: E402

from halfwise.torch import check_autocast  # noqa: E402
from tests.support.says import Says  # noqa: E402
from tests.support.torch_modules import Net  # noqa: E402


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)


# -- what modules are like ---------------------------------------------------------------------------------------------


@dataclass
class Answer:
    boxes: Any
    extra: Any = None


class Odd(nn.Module):
    """Keywords, nested results, a submodule called twice, one that returns nothing, work in place, state of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.shared = nn.Linear(4, 4)
        self.twin = self.shared
        self.silent = Silent()
        self.norm = nn.BatchNorm1d(4)
        self.register_buffer("count", torch.zeros(()))
        self.cache: Any = None

    def forward(self, x: Any, *, mask: Any = None, flag: bool = False) -> Any:
        assert not self.training and flag
        self.count += 1
        self.cache = x
        y = self.shared(self.twin(x))
        y += 1
        self.silent(y)
        return Answer(self.norm(y).masked_fill_(mask, 0.0), {"parts": [y.relu_(), None, 3]})


class Silent(nn.Module):
    def forward(self, x: Any) -> None:
        x.mul_(2)


def test_odd_modules_and_their_state() -> None:
    module = Odd()
    module.train()
    module.norm.eval()
    state = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    held = {name: id(p) for name, p in (*module.named_parameters(), *module.named_buffers())}
    x = torch.randn(3, 4)
    given = x.clone()
    check = check_autocast(module, [((x,), {"mask": x > 2, "flag": True})] * 2)
    assert check.met and check.samples == 2
    assert set(check.half.outputs) == {"boxes", "extra.parts.0"}
    assert [each.name for each in check.submodules] == ["shared", "shared (2)", "silent", "norm"]
    assert module.training and not module.norm.training and module.cache is None
    assert all(torch.equal(tensor, state[name]) for name, tensor in module.state_dict().items())
    assert held == {name: id(p) for name, p in (*module.named_parameters(), *module.named_buffers())}
    assert torch.equal(x, given)
    for each in module.modules():
        assert not each._forward_hooks and not each._forward_pre_hooks
    assert not torch.is_autocast_enabled("cuda") and torch.is_grad_enabled()


def test_a_module_that_fails_is_left_alone_and_said_in_one_line(says: Says) -> None:
    class Fails(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(4, 4)

        def forward(self, x: Any) -> Any:
            self.mark = 1
            return self.fc(x)

    module = Fails()
    with says.raises(InputError):
        check_autocast(module, torch.randn(2, 5))
    assert module.training and not hasattr(module, "mark") and not module.fc._forward_hooks


def test_bad_calls(says: Says) -> None:
    with says.raises(InputError):
        check_autocast("model.onnx", torch.ones(1))
    with says.raises(InputError):
        check_autocast(torch.jit.trace(nn.Linear(2, 2), torch.ones(1, 2)), torch.ones(1, 2))
    with says.raises(InputError):
        check_autocast(Net(), torch.full((8, 16), float("nan")))
    with pytest.raises(InputError, match="give at least one sample"):
        check_autocast(Net(), [])
    with pytest.raises(InputError, match="returns no tensor"):
        check_autocast(Silent(), torch.ones(1))
    with says.raises(InputError):
        check_autocast(Net(), torch.randn(8, 16), tolerance=["nothing:rel_l2<=1"])
    with pytest.raises(InputError, match="the module is on cpu"):
        check_autocast(Net(), torch.randn(8, 16), emulate=False)


def test_attention_is_judged_with_its_softmax_in_fp32_and_without() -> None:
    attention = nn.MultiheadAttention(16, 2, batch_first=True)
    x = torch.randn(1, 8, 16)
    check = check_autocast(attention, ((x, x, x), {"need_weights": False}))
    kept = {each.name: each for each in check.kept}
    assert kept["scaled_dot_product_attention"].family == "softmax"
    assert kept["scaled_dot_product_attention"].without != check.autocast.ratio
    weighted = check_autocast(attention, (x, x, x))
    assert "softmax" in {each.name for each in weighted.kept}


def test_convolutions_between_norms_run() -> None:
    """Under autocast a convolution takes FP16 and holds FP32 weights."""
    net = nn.Sequential(
        nn.Conv2d(3, 8, 3),
        nn.BatchNorm2d(8),
        nn.PReLU(),
        nn.Conv2d(8, 8, 3),
        nn.GroupNorm(2, 8),
        nn.ConvTranspose2d(8, 1, 2),
    )
    check = check_autocast(net, torch.randn(1, 3, 8, 8))
    assert check.met and check.autocast.met and not check.autocast.failure
    assert "group_norm" in {each.name for each in check.kept}


def test_recurrent_networks_run() -> None:
    check = check_autocast(nn.LSTM(8, 8), torch.randn(4, 2, 8))
    assert check.met and set(check.half.outputs) == {"0", "1.0", "1.1"}


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU to compare the emulation with")
@pytest.mark.parametrize("name", ["net", "loud net", "encoder", "convolutions", "lstm", "attention"])
def test_the_emulation_is_what_a_gpu_does(name: str) -> None:
    x, tokens = torch.randn(64, 16) * 3, torch.randn(4, 32, 64)
    layer = nn.TransformerEncoderLayer(64, 4, 128, batch_first=True)
    convolutions = nn.Sequential(
        nn.Conv2d(3, 32, 3), nn.BatchNorm2d(32), nn.GELU(), nn.Conv2d(32, 32, 3), nn.GroupNorm(4, 32), nn.Softmax(1)
    )
    module, given = {
        "net": (Net(1.0), (x,)),
        "loud net": (Net(), (x,)),
        "encoder": (nn.TransformerEncoder(layer, 3), (tokens,)),
        "convolutions": (convolutions, (torch.randn(4, 3, 32, 32),)),
        "lstm": (nn.LSTM(64, 32), (tokens,)),
        "attention": (nn.MultiheadAttention(64, 4, batch_first=True), (tokens, tokens, tokens)),
    }[name]
    inputs = tuple(tensor.cuda() for tensor in given)
    real, emulated = check_autocast(module.cuda(), inputs), check_autocast(module, inputs, emulate=True)
    assert (real.autocast.how, emulated.autocast.how) == ("real", "emulated")
    for ours, theirs in ((emulated.autocast, real.autocast), (emulated.half, real.half)):
        for output, metrics in theirs.outputs.items():
            assert ours.outputs[output].rel_l2 == pytest.approx(metrics.rel_l2, rel=0.15)
    assert [cause.name for cause in emulated.causes] == [cause.name for cause in real.causes]
