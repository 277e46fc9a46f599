"""What a kernel gets is, byte for byte, what Triton's launcher gives it."""

import re
import struct
from math import inf

import pytest
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from beamsearch.judge.runner.launching import TensorMap, config, pack_number, parameters
from beamsearch.records.plan import Binary, Descriptor, Launch, Number, Pointer

META = {
    "swizzle": 3,
    "elem_size": 2,
    "elem_type": 10,
    "block_size": [64, 32],
    "fp4_padded": False,
}
DESCRIPTOR = Descriptor(
    base=Pointer(buffer=1, offset=32),
    dtype="bfloat16",
    shape=(100, 72),
    strides=(80, 1),
    block_shape=(64, 32),
    type="tensordesc<bf16[64, 32]>",
)


def binary(**more):
    return Binary(**{"name": "k", "cubin": b"", "threads": 128, "shared_bytes": 0} | more)


def launch(*arguments):
    return Launch(kernel=0, grid=(3, 2, 1), arguments=list(arguments))


@pytest.mark.parametrize(
    ("kind", "value", "layout", "packed"),
    [
        ("i1", True, "b", 1),
        ("u1", False, "B", 0),
        ("i8", -3, "b", -3),
        ("u8", 200, "B", 200),
        ("i16", -300, "h", -300),
        ("u16", 60000, "H", 60000),
        ("i32", -5, "i", -5),
        ("u32", 4_000_000_000, "I", 4_000_000_000),
        ("i64", -(2**40), "q", -(2**40)),
        ("u64", 2**63, "Q", 2**63),
        ("fp16", 0.1, "e", 0.1),
        ("fp32", 0.1, "f", 0.1),
        ("fp32", 1e300, "f", inf),
        ("fp64", 0.1, "d", 0.1),
        ("fp32", 2, "f", 2.0),
    ],
)
def test_a_number_is_packed_as_in_c(kind, value, layout, packed):
    assert pack_number(kind, value) == struct.pack("<" + layout, packed)


def test_a_bfloat16_is_the_upper_half_of_a_float_and_not_rounded():
    value = struct.unpack("<f", struct.pack("<I", 0x3F80FFFF))[0]
    assert pack_number("bf16", value) == struct.pack("<H", 0x3F80)


@pytest.mark.parametrize(("kind", "value"), [("i32", 1.5), ("*fp32", 1), ("complex", 1.0)])
def test_what_is_no_number_of_its_type_is_refused(kind, value):
    with pytest.raises(ValueError, match=re.escape(kind)):
        pack_number(kind, value)


def test_pointers_and_numbers_come_in_order_and_scratch_last():
    packed = parameters(
        launch(Pointer(buffer=1, offset=8), Number(type="i32", value=7)),
        binary(),
        "3.6.0",
        addresses=[1000, 2000],
        scratch=4096,
    )
    assert packed == [
        struct.pack("<Q", 2008),
        struct.pack("<i", 7),
        struct.pack("<Q", 4096),
        struct.pack("<Q", 0),
    ]


def test_a_descriptor_is_a_map_with_the_innermost_dimension_first_and_then_its_sizes():
    encoded, *rest = parameters(
        launch(DESCRIPTOR), binary(descriptors=[META]), "3.6.0", [0, 1 << 20], 0
    )
    assert encoded == TensorMap(
        address=(1 << 20) + 32,
        element=9,  # bfloat16 on the host, 10 on the device
        element_bytes=2,
        shape=(72, 100),
        strides=(160,),
        box=(32, 64),
        swizzle=3,
        nan=False,
        mended=False,
    )
    assert b"".join(rest) == struct.pack("<iiqqQQ", 100, 72, 80, 1, 0, 0)


@pytest.mark.parametrize(("version", "flags"), [("3.6.0", 1), ("3.7.0", 2), ("3.9.0", 2)])
def test_a_descriptor_without_a_map_is_taken_apart_by_version(version, flags):
    told = DESCRIPTOR.model_copy(update={"padding": "nan"})
    packed = parameters(launch(told), binary(descriptors=[]), version, [0, 0], 0)
    sizes = struct.pack("<Qqqqq", 32, 100, 72, 80, 1), struct.pack("<iiqqQQ", 100, 72, 80, 1, 0, 0)
    assert b"".join(packed) == sizes[0] + bytes([1, 0][:flags]) + sizes[1]


def test_descriptors_that_do_not_fit_their_binary_are_refused():
    for metas, arguments in (([META], []), ([META], [DESCRIPTOR, DESCRIPTOR])):
        with pytest.raises(ValueError, match="descriptors than it is launched with"):
            parameters(launch(*arguments), binary(descriptors=metas), "3.6.0", [0, 0], 0)
    with pytest.raises(ValueError, match="ranks"):
        wrong = DESCRIPTOR.model_copy(update={"shape": (1, 2, 3), "strides": (1, 1, 1)})
        parameters(launch(wrong), binary(descriptors=[META]), "3.6.0", [0, 0], 0)


@triton.jit
def everything(p, a, b, c, d, e, f, n, desc):
    x = tl.load(p + n) + a + b + c + d + e + f
    tl.store(p + n + tl.arange(0, 64), tl.sum(desc.load([0, 0]), 1).to(tl.float32) + x)


KINDS = {"u64": 8, "u32": 4, "f32": 4, "u8": 1}


@pytest.mark.parametrize("capability", [80, 90])
def test_parameters_are_those_that_this_triton_compiles(capability):
    """The sizes in the PTX of a kernel with one parameter of every kind."""
    types = ("i1", "i8", "fp16", "bf16", "fp32", "u64", "i64")
    names = dict(zip("abcdefn", types, strict=True))
    signature = {"p": "*fp32", **names, "desc": "tensordesc<bf16[64, 32]>"}
    source = ASTSource(everything, signature=signature, constexprs={}, attrs={})
    made = triton.compile(source, target=GPUTarget("cuda", capability, 32))
    declared = re.findall(
        r"\.param (?:\.align \d+ )?\.(\w+).*everything_param_\d+(?:\[(\d+)\])?",
        re.search(r"\.entry.*?\n\)", made.asm["ptx"], re.S).group(0),
    )
    sizes = [int(length) if length else KINDS[kind] for kind, length in declared]
    numbers = [Number(type=kind, value=1) for kind in types]
    packed = parameters(
        launch(Pointer(buffer=0, offset=0), *numbers, DESCRIPTOR),
        binary(descriptors=made.metadata.tensordesc_meta),
        triton.__version__,
        [0, 0],
        0,
    )
    assert sizes == [128 if isinstance(p, TensorMap) else len(p) for p in packed]


def test_a_cluster_multiplies_the_grid_along_x_and_is_spread():
    clustered = binary(cluster=(2, 1, 1), shared_bytes=1024, cooperative=True, dependent=True)
    made = config(clustered, (3, 2, 1))
    assert (made.gridDimX, made.gridDimY, made.gridDimZ) == (6, 2, 1)
    assert (made.blockDimX, made.blockDimY, made.blockDimZ) == (128, 1, 1)
    assert (made.sharedMemBytes, made.numAttrs) == (1024, 4)
    assert [(int(a.id), struct.unpack("<3I", a.value.pad[:12])) for a in made.attrs] == [
        (6, (1, 0, 0)),
        (2, (1, 0, 0)),
        (4, (2, 1, 1)),
        (5, (1, 0, 0)),
    ]


def test_an_ordinary_launch_has_no_attributes():
    plain = binary()
    made = config(plain, (3, 2, 1))
    assert (made.gridDimX, made.gridDimY, made.gridDimZ, made.numAttrs) == (3, 2, 1, 0)
