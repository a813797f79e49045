"""Against autocast: casts are those of CUDA's autocast, the module stays as it was, the answer names the cause."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from halfwise import InputError
from halfwise.core.notes import NoteKind

torch = pytest.importorskip("torch", reason="PyTorch is not installed (the extra 'torch')")

from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402, N812

from halfwise.torch import check_autocast  # noqa: E402
from halfwise.verbs.torch.half_mode import half_arithmetic  # noqa: E402
from halfwise.verbs.torch.policy import FP16_OPERATORS, FP32_FUNCTIONS, FP32_OPERATORS  # noqa: E402

half, single = torch.float16, torch.float32


class PlainNorm(nn.Module):
    """A norm written out: its square leaves FP16."""

    def forward(self, x: Any) -> Any:
        return x / (x.pow(2).mean(-1, keepdim=True) + 1e-6).sqrt()


class Net(nn.Module):
    def __init__(self, scale: float = 400.0) -> None:
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(16, 16), PlainNorm(), nn.Linear(16, 4)
        self.scale = scale

    def forward(self, x: Any) -> Any:
        return {"boxes": self.last(self.norm(self.first(x) * self.scale))}


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)


# -- the casts ---------------------------------------------------------------------------------------------------------

FUNCTIONS = {
    "softmax": lambda x: torch.softmax(x, -1),
    "log_softmax": lambda x: F.log_softmax(x, -1),
    "softmin": lambda x: F.softmin(x, -1),
    "logsumexp": lambda x: torch.logsumexp(x, -1),
    "layer_norm": lambda x: F.layer_norm(x, x.shape[-1:]),
    "group_norm": lambda x: F.group_norm(x.reshape(1, 4, 4), 2),
    "norm": lambda x: x.norm(),
    "normalize": lambda x: F.normalize(x, dim=-1),
    "exp": torch.exp,
    "expm1": torch.expm1,
    "log": lambda x: torch.log(x.abs() + 1),
    "log2": lambda x: torch.log2(x.abs() + 1),
    "pow": lambda x: x**2,
    "pow tensor": lambda x: torch.pow(2.0, x),
    "rsqrt": lambda x: torch.rsqrt(x.abs() + 1),
    "reciprocal": torch.reciprocal,
    "sum": lambda x: x.sum(-1),
    "sum all": torch.sum,
    "cumsum": lambda x: x.cumsum(0),
    "prod": lambda x: x.prod(),
    "softplus": F.softplus,
    "acos": lambda x: torch.acos(x.clamp(-1, 1)),
    "cosine_similarity": lambda x: F.cosine_similarity(x, x),
    "cdist": lambda x: torch.cdist(x, x),
    "mse_loss": lambda x: F.mse_loss(x, x),
    "l1_loss": lambda x: F.l1_loss(x, x),
    "cross_entropy": lambda x: F.cross_entropy(x, torch.zeros(x.shape[0], dtype=torch.int64, device=x.device)),
    "upsample": lambda x: F.interpolate(x.reshape(1, 1, 4, 4), scale_factor=2, mode="bilinear"),
    "mean": lambda x: x.mean(-1),
    "var": lambda x: x.var(-1),
    "sqrt": lambda x: x.abs().sqrt(),
    "sigmoid": torch.sigmoid,
    "gelu": F.gelu,
    "add": lambda x: x + 1,
    "mixed": lambda x: x + torch.ones(4, 4, device=x.device),
    "cat": lambda x: torch.cat([x, torch.ones(4, 4, device=x.device)]),
    "matmul": lambda x: x @ x,
    "linear": lambda x: F.linear(x, torch.ones(2, 4, device=x.device)),
    "conv": lambda x: F.conv1d(x.reshape(1, 4, 4), torch.ones(2, 4, 1, device=x.device)),
    "bmm": lambda x: torch.bmm(x.reshape(1, 4, 4), x.reshape(1, 4, 4)),
    "einsum": lambda x: torch.einsum("ij,kj->ik", x, x),
    "conv2d": lambda x: F.conv2d(x.reshape(1, 1, 4, 4), torch.ones(2, 1, 3, 3, device=x.device)),
    "prelu": lambda x: F.prelu(x, torch.ones(1, device=x.device)),
    "layer_norm weight": lambda x: F.layer_norm(x, [4], torch.ones(4, device=x.device)),
    "group_norm weight": lambda x: F.group_norm(x.reshape(1, 4, 4), 2, torch.ones(4, device=x.device)),
    "dot": lambda x: torch.dot(x.reshape(-1), torch.ones(16, device=x.device)),
    "atan2": lambda x: torch.atan2(x, torch.ones(4, 4, device=x.device)),
    "batch_norm": lambda x: F.batch_norm(
        x, torch.zeros(4, device=x.device), torch.ones(4, device=x.device), training=False
    ),
    "fp32": lambda x: torch.autocast("cuda", enabled=False)(lambda y: torch.exp(y))(x),
    "float": lambda x: (x.float() * 2).sqrt(),
}


def of_cuda_autocast(function: Any, dtype: Any) -> Any:
    """What the type would be on a GPU, by PyTorch itself: tensors without memory that say they are on one."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    before = torch.is_autocast_enabled("cuda"), torch.get_autocast_dtype("cuda")
    try:
        with FakeTensorMode():
            x = torch.empty(4, 4, device="cuda", dtype=dtype)
            torch.set_autocast_enabled("cuda", True)
            torch.set_autocast_dtype("cuda", half)
            return function(x).dtype
    finally:
        torch.set_autocast_enabled("cuda", before[0])
        torch.set_autocast_dtype("cuda", before[1])


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dtype", [half, single], ids=["half", "single"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_operators_are_cast_as_cudas_autocast_casts_them(name: str, dtype: Any) -> None:
    x = torch.rand(4, 4).to(dtype)
    with torch.no_grad(), half_arithmetic(autocast=True):
        made = FUNCTIONS[name](x)
    assert made.dtype is of_cuda_autocast(FUNCTIONS[name], dtype)


def test_the_lists_are_of_operators_that_autocast_knows() -> None:
    known = {
        name.removeprefix("aten::").split(".")[0]
        for name in torch._C._dispatch_get_registrations_for_dispatch_key("AutocastCUDA")
    }
    from halfwise.verbs.torch.policy import public_name

    ours = {public_name(name) for name in (*FP32_OPERATORS, *FP32_FUNCTIONS)}
    assert {"softmax", "log_softmax", "layer_norm", "exp", "log", "pow", "sum", "mse_loss"} <= ours & known
    assert ours - known <= {"norm", "cdist", "pdist"} | {name for name in ours if name in FP32_FUNCTIONS}
    assert not set(FP32_OPERATORS) & FP16_OPERATORS


# -- the arithmetic ----------------------------------------------------------------------------------------------------


def test_a_result_is_rounded_once() -> None:
    x, y = torch.randn(64, 64).half(), torch.randn(64, 64).half()
    with half_arithmetic(autocast=False):
        assert torch.equal(x @ y, (x.float() @ y.float()).half())
        assert torch.equal(torch.softmax(x, -1), torch.softmax(x.float(), -1).half())
        assert (x.sum(-1)).dtype is half


def test_the_bias_of_a_convolution_is_added_to_what_is_rounded() -> None:
    x, w, b = torch.randn(1, 3, 8, 8).half(), torch.randn(4, 3, 3, 3).half(), torch.randn(4).half()
    with half_arithmetic(autocast=False):
        made = F.conv2d(x, w, b)
    product = F.conv2d(x.float(), w.float()).half().float()
    assert torch.equal(made, (product + b.float().reshape(-1, 1, 1)).half())


def test_in_place_and_out_and_views_keep_their_tensors() -> None:
    x = torch.randn(4, 4).half()
    kept, view = x, x[0]
    with half_arithmetic(autocast=False):
        assert x.mul_(2).add_(1) is kept
        x[1:3] = 7.0
        out = torch.empty(4, dtype=half)
        assert torch.add(x[0], x[1], out=out) is out
    assert torch.equal(view, kept[0]) and torch.equal(out, (x[0].float() + x[1].float()).half())
    assert (x[1:3] == 7).all()


def test_a_product_of_two_types_is_refused_as_pytorch_does() -> None:
    with half_arithmetic(autocast=False), pytest.raises(RuntimeError, match="is given both float16 and float32"):
        torch.ones(2, 2).half() @ torch.ones(2, 2)


# -- the answer --------------------------------------------------------------------------------------------------------


def test_the_square_that_autocast_keeps_in_fp32_is_named() -> None:
    check = check_autocast(Net(), torch.randn(8, 16) * 3)
    assert check.autocast.met and not check.half.met and not check.met
    assert [cause.name for cause in check.causes] == ["pow"]
    cause = check.causes[0]
    assert (cause.family, cause.calls, cause.modules) == ("pow", 1, ("norm",))
    assert cause.largest_result > 65504
    assert check.answer == "Net is right under autocast and wrong in FP16, for autocast keeps in FP32: pow"
    assert check.first_autocast is None
    assert check.first_half is not None and (check.first_half.name, check.first_half.type) == ("norm", "PlainNorm")
    assert [each.name for each in check.submodules] == ["first", "norm", "last"]
    text = str(check)
    assert "FP16: norm (PlainNorm) is the first whose output leaves the tolerance" in text
    assert "autocast casts as on a GPU" in text
    document = check.to_json()
    assert document["schema"] == "halfwise.autocast/1" and document["causes"] == ["pow"]
    assert document["first_out_of_tolerance"] == {"autocast": None, "half": "norm"}


def test_a_harmless_module() -> None:
    check = check_autocast(Net(scale=1.0), torch.randn(8, 16))
    assert check.met and check.causes == ()
    assert check.answer == "Net keeps the tolerance in FP16, with autocast and without it"


def test_overflowing_activations_are_counted() -> None:
    class Loud(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Identity()

        def forward(self, x: Any) -> Any:
            return self.scale(x * 1e5).mean()

    check = check_autocast(Loud(), torch.tensor([0.5, 1.0, 2.0]))
    assert (check.submodules[0].overflowing, check.submodules[0].max_abs) == (2, 200000.0)
    assert check.submodules[0].half == float("inf")
    assert check.to_json()["submodules"][0]["half_load"] == "inf"


def test_ids_and_coordinates_as_fp16_inputs_are_told() -> None:
    class Difference(nn.Module):
        def forward(self, *, corners: Any) -> Any:
            return corners[:, 1] - corners[:, 0]

    corners = torch.tensor([[3000.3, 3001.1], [2500.7, 2502.2]])
    check = check_autocast(Difference(), {"corners": corners})
    assert [cause.name for cause in check.causes] == ["inputs"]


def test_a_module_that_makes_fp32_tensors_is_narrowed_whole() -> None:
    class Makes(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(4, 4)

        def forward(self, x: Any) -> Any:
            return self.fc(x + torch.arange(4.0))

    check = check_autocast(Makes(), torch.randn(2, 4))
    assert check.met and NoteKind.HALF_FAILS in [note.kind for note in check.notes]


def test_the_modules_own_islands_are_heeded() -> None:
    class InFp32(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(4, 4)

        def forward(self, x: Any) -> Any:
            with torch.autocast("cuda", enabled=False):
                return self.fc(x.float() * 1e5)

    check = check_autocast(InFp32(), torch.randn(2, 4))
    assert check.autocast.ratio == 0 and not check.half.met


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


def test_a_module_that_fails_is_left_alone_and_said_in_one_line() -> None:
    class Fails(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(4, 4)

        def forward(self, x: Any) -> Any:
            self.mark = 1
            return self.fc(x)

    module = Fails()
    with pytest.raises(InputError, match="Fails does not run on these inputs: RuntimeError: "):
        check_autocast(module, torch.randn(2, 5))
    assert module.training and not hasattr(module, "mark") and not module.fc._forward_hooks


def test_bad_calls() -> None:
    with pytest.raises(InputError, match=r"takes a torch\.nn\.Module, not a str"):
        check_autocast("model.onnx", torch.ones(1))
    with pytest.raises(InputError, match=r"give the torch\.nn\.Module that it was made from"):
        check_autocast(torch.jit.trace(nn.Linear(2, 2), torch.ones(1, 2)), torch.ones(1, 2))
    with pytest.raises(InputError, match="gives no finite value for any input"):
        check_autocast(Net(), torch.full((8, 16), float("nan")))
    with pytest.raises(InputError, match="give at least one sample"):
        check_autocast(Net(), [])
    with pytest.raises(InputError, match="returns no tensor"):
        check_autocast(Silent(), torch.ones(1))
    with pytest.raises(InputError, match="the model has no such output"):
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
