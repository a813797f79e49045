"""Against autocast: casts are those of CUDA's autocast, the module stays as it was, the answer names the cause."""

from __future__ import annotations

from typing import Any

import pytest

from halfwise.core.notes import NoteKind

torch = pytest.importorskip("torch", reason="PyTorch is not installed (the extra 'torch')")

from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402, N812

from halfwise.torch import check_autocast  # noqa: E402
from halfwise.verbs.torch.half_mode import half_arithmetic  # noqa: E402
from halfwise.verbs.torch.policy import FP16_OPERATORS, FP32_FUNCTIONS, FP32_OPERATORS  # noqa: E402
from tests.support.says import Says  # noqa: E402
from tests.support.torch_modules import Net  # noqa: E402

half, single = torch.float16, torch.float32


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


def test_a_product_of_two_types_is_refused_as_pytorch_does(says: Says) -> None:
    with half_arithmetic(autocast=False), says.raises(RuntimeError):
        torch.ones(2, 2).half() @ torch.ones(2, 2)


# -- the answer --------------------------------------------------------------------------------------------------------


def test_the_square_that_autocast_keeps_in_fp32_is_named(says: Says) -> None:
    check = check_autocast(Net(), torch.randn(8, 16) * 3)
    assert check.autocast.met and not check.half.met and not check.met
    assert [cause.name for cause in check.causes] == ["pow"]
    cause = check.causes[0]
    assert (cause.family, cause.calls, cause.modules) == ("pow", 1, ("norm",))
    assert cause.largest_result > 65504
    says(check.answer)
    assert check.first_autocast is None
    assert check.first_half is not None and (check.first_half.name, check.first_half.type) == ("norm", "PlainNorm")
    assert [each.name for each in check.submodules] == ["first", "norm", "last"]
    text = str(check)
    says(text, "FP16: norm (PlainNorm)")
    says(text, "autocast casts as")
    document = check.to_json()
    assert document["schema"] == "halfwise.autocast/1" and document["causes"] == ["pow"]
    assert document["first_out_of_tolerance"] == {"autocast": None, "half": "norm"}


def test_a_harmless_module(says: Says) -> None:
    check = check_autocast(Net(scale=1.0), torch.randn(8, 16))
    assert check.met and check.causes == ()
    says(check.answer)


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
