"""What a candidate may not be, told from its source alone: only what no honest kernel does.

A sieve that saves time and gives a better message; it protects nothing, for a source can hide what
it does. Behaviour decides wherever it can, and a rule that would refuse honest code is worse than
none: what moves, shapes or allocates data is allowed, and so is what might be small beside the
kernel's own work.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from beamsearch.judge.names import (
    IMPORTERS,
    Names,
    input_names,
    is_triton_kernel,
    text_of,
    values_in,
)
from profiling.syntax import parse

JUDGES_OWN = ("beamsearch", "profiling")
"""The judge's own code: a kernel has no business there."""
MOST_REASONS = 3
"""Reasons told at once."""

LIBRARY = "is library compute; do this work in a Triton kernel"
STREAM = "leaves the current stream; launch on it, one launch after the other"
WALK = "looks into other code's objects; use what the kernel is called with"
OUTSIDE = "reaches outside the kernel's process; use what the kernel is called with, and return it"
LATER = "works apart from the call; do everything in kernel_function before it returns"
CODE = "runs code that this file does not show; write the kernel out in full"

CALLS = {
    LIBRARY: """
        torch.compile torch.jit.script torch.jit.trace torch.ops torch._inductor torch._C._nn
        torch._VF torch.utils.cpp_extension triton._C.libtriton.nvidia.cublas
        cupy numba jax tensorflow pycuda cutlass flash_attn xformers apex transformer_engine
    """,
    STREAM: """
        torch.cuda.Stream torch.cuda.ExternalStream torch.cuda.StreamContext torch.Stream
        torch.cuda.stream torch.cuda.set_stream torch.cuda.CUDAGraph torch.cuda.graph
        torch.cuda.graphs torch.cuda.make_graphed_callables
    """,
    WALK: """
        sys._getframe sys._current_frames sys.settrace sys.setprofile inspect.currentframe
        inspect.stack inspect.trace inspect.getouterframes inspect.getinnerframes
        traceback.walk_stack gc.get_objects gc.get_referrers gc.get_referents unittest.mock
    """,
    OUTSIDE: """
        builtins.open io.open os.open os.fdopen os.popen os.system os.fork os.forkpty os.execv
        os.execve os.execvp os.execl os.posix_spawn os.spawnl os.spawnv os.kill os.killpg os.write
        os.pwrite os.writev os.read os.pread os.dup os.dup2 os.pipe os._exit os.abort os.sendfile
        os.remove os.unlink os.rename os.replace shutil subprocess multiprocessing
        torch.multiprocessing torch.distributed socket http urllib requests aiohttp ctypes cffi mmap
        pynvml pickle resource torch.load torch.save torch.from_file
        torch.UntypedStorage.from_file numpy.load numpy.save numpy.savez numpy.memmap numpy.fromfile
    """,
    LATER: """
        threading.Thread threading.Timer _thread concurrent.futures atexit signal asyncio
    """,
    CODE: """
        builtins.exec builtins.eval builtins.compile runpy marshal importlib.reload
        importlib.util.spec_from_file_location importlib.machinery
    """,
}
"""Advice -> what may not be called, with everything below it."""
HARMLESS = re.compile(r"ctypes\.(c_\w+|sizeof)|(torch\.)?multiprocessing\.cpu_count")
"""Of these, what only tells something."""

HEAVY = re.compile(
    r"matmul|mm|bmm|addmm|addbmm|baddbmm|addmv|mv|dot|vdot|inner|einsum|tensordot|chain_matmul|"
    r"multi_dot|_?(scaled_)?(mm|grouped_mm|dot_product_attention)|linear|bilinear|conv\w*|"
    r"(adaptive_|fractional_)?(max|avg|lp)_(un)?pool[123]d\w*|(layer|group|batch|instance|rms)_norm|"
    r"local_response_norm|(log_)?softmax|softmin|cross_entropy|\w+_loss|interpolate|grid_sample"
)
"""Operations that do a whole kernel's work in a library."""
HOMES = re.compile(r"(torch(?:\.(?:nn\.functional|linalg|special|fft|Tensor))?)\.(\w+)")
METHODS = {"matmul", "mm", "bmm", "addmm", "baddbmm", "mv", "softmax", "log_softmax", "__matmul__"}
LIGHT = re.compile(
    r"sum|mean|amax|amin|prod|var|std|norm|exp|log|sqrt|rsqrt|sigmoid|tanh|relu|gelu|silu|"
    r"cumsum|cumprod|sort|topk|argmax|argmin|logsumexp"
)
"""Operations that may be small beside the kernel's own work; the time decides."""
NO_LAYER = ("Parameter", "Buffer", "Module", "ModuleList", "ParameterList", "Identity", "Flatten")

FRAMES = {"f_back", "f_locals", "f_globals", "tb_frame", "gi_frame", "__subclasses__"}
SETTINGS = ("torch.backends", "torch._dynamo.config", "torch._inductor.config", "triton.knobs")
"""Settings that an honest kernel may make for itself."""
LAZY = {"__torch_function__", "__torch_dispatch__"}
FILES = {"read_text", "read_bytes", "write_text", "write_bytes"}
SUBCLASSING = {"_make_subclass", "_make_wrapper_subclass", "as_subclass"}
PLAIN_TENSORS = "makes tensors that are not plain; return a torch.Tensor with its values in memory"

Found = tuple[int, str]
"""A line and what is wrong there."""


def disallowed(source: str) -> str | None:
    """Why a source that parses is refused unseen, or none: lines, reasons, and what to do."""
    tree = parse(source)
    names = Names(tree)
    found = sorted(set(_refused(tree, names)))
    reasons = [f"line {line} {text}" for line, text in found]
    if not reasons:
        return None
    more = len(reasons) - MOST_REASONS
    told = "; ".join(reasons[:MOST_REASONS])
    return f"{told}; and {more} more" if more > 0 else told


def doubts(source: str) -> list[str]:
    """What a person may want to look at in a source that is not refused."""
    tree = parse(source)
    names = Names(tree)
    found: set[Found] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and names.path(node.func) == "builtins.getattr":
            owner = names.path(node.args[0]) if node.args else None
            if owner and len(node.args) > 1 and text_of(node.args[1]) is None:
                found.add((node.lineno, f"takes a member of {owner} by a name it computes"))
    for node, inputs in _host_nodes(tree, names):
        operation = _operation(node, names, inputs)
        if operation and LIGHT.fullmatch(operation.rpartition(".")[2]):
            found.add((node.lineno, f"computes {operation} of its inputs in PyTorch"))
    return [f"line {line} {text}" for line, text in sorted(found)]


def _refused(tree: ast.Module, names: Names) -> Iterator[Found]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield from _imports(node)
        elif isinstance(node, ast.Call):
            yield from _call(node, names)
        elif isinstance(node, ast.Attribute) and node.attr in FRAMES:
            yield node.lineno, f"uses .{node.attr}, which {WALK}"
        elif isinstance(node, ast.ClassDef):
            for base in node.bases:
                if names.path(base) in ("torch.Tensor", "torch.nn.Parameter"):
                    yield node.lineno, f"derives from {ast.unparse(base)}: it {PLAIN_TENSORS}"
        elif isinstance(node, ast.FunctionDef) and node.name in LAZY:
            yield node.lineno, f"defines {node.name}: it {PLAIN_TENSORS}"
        yield from _decorators(node, names)
        yield from _patches(node, names)
    yield from _module_table(tree, names)
    yield from _library(tree, names)
    yield from _layers(tree, names)


def _imports(node: ast.Import | ast.ImportFrom) -> Iterator[Found]:
    own = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
    for name in own or [alias.name for alias in node.names]:
        if name.split(".")[0] in JUDGES_OWN:
            yield node.lineno, f"imports {name}: a kernel may not use the judge's code"


def _call(node: ast.Call, names: Names) -> Iterator[Found]:
    path = names.path(node.func)
    if path in IMPORTERS and node.args:
        wanted = text_of(node.args[0])
        if wanted is None:
            yield node.lineno, f"imports a module by a name it computes, which {CODE}"
        elif wanted.split(".")[0] in JUDGES_OWN:
            yield node.lineno, f"imports {wanted}: a kernel may not use the judge's code"
    if path:
        advice = _advice(path)
        if advice:
            yield node.lineno, f"calls {path.removeprefix('builtins.')}, which {advice}"
    if isinstance(node.func, ast.Attribute):
        if node.func.attr in SUBCLASSING:
            yield node.lineno, f"calls .{node.func.attr}: it {PLAIN_TENSORS}"
        if node.func.attr in FILES:
            yield node.lineno, f"calls .{node.func.attr}, which {OUTSIDE}"


def _advice(path: str) -> str | None:
    """Why this path may not be called, or none."""
    if HARMLESS.fullmatch(path):
        return None
    for advice, refused in CALLS.items():
        if any(path == name or path.startswith(name + ".") for name in refused.split()):
            return advice
    return None


def _decorators(node: ast.AST, names: Names) -> Iterator[Found]:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        for decorator in node.decorator_list:
            path = names.path(decorator)
            if path and _advice(path):
                yield decorator.lineno, f"calls {path}, which {_advice(path)}"


def _patches(node: ast.AST, names: Names) -> Iterator[Found]:
    """Assignments to, and deletions of, what a library holds."""
    targets: list[ast.expr] = []
    if isinstance(node, ast.Assign | ast.Delete):
        targets = list(node.targets)
    elif isinstance(node, ast.AugAssign | ast.AnnAssign):
        targets = [node.target]
    changed = [names.changed(target) for target in targets]
    if isinstance(node, ast.Call) and node.args:
        path = names.path(node.func)
        if path in ("builtins.setattr", "builtins.delattr"):
            changed.append(names.path(node.args[0]))
    for thing in changed:
        if thing and not thing.startswith(SETTINGS):
            line = getattr(node, "lineno", 0)
            yield line, f"changes {thing}; leave modules as they are, they are not the kernel's"


def _module_table(tree: ast.Module, names: Names) -> Iterator[Found]:
    """Uses of `sys.modules`, but for the kernel's own entry."""
    own = {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Subscript) and getattr(node.slice, "id", "") == "__name__"
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.expr) and names.path(node) == "sys.modules" and id(node) not in own:
            yield node.lineno, f"uses sys.modules, which {WALK}"


def _host_nodes(tree: ast.Module, names: Names) -> Iterator[tuple[ast.expr, set[str]]]:
    """Expressions of functions that run on the host, with the names that hold inputs there."""
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef) and not is_triton_kernel(function, names):
            inputs = input_names(function)
            for node in ast.walk(function):
                if isinstance(node, ast.expr):
                    yield node, inputs


def _operation(node: ast.expr, names: Names, inputs: set[str]) -> str | None:
    """The PyTorch operation that an expression calls on values of inputs, or none."""
    if not isinstance(node, ast.Call):
        return None
    path = names.path(node.func)
    arguments = [*node.args, *(keyword.value for keyword in node.keywords)]
    if path:
        of_inputs = any(inputs & set(values_in(argument)) for argument in arguments)
        return path if of_inputs else None
    if isinstance(node.func, ast.Attribute) and inputs & set(values_in(node.func.value)):
        return f"torch.Tensor.{node.func.attr}"
    return None


def _library(tree: ast.Module, names: Names) -> Iterator[Found]:
    """A whole kernel's work on inputs, done by PyTorch."""
    for node, inputs in _host_nodes(tree, names):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
            if inputs & {*values_in(node.left), *values_in(node.right)}:
                yield node.lineno, f"multiplies matrices with @, which {LIBRARY}"
            continue
        operation = _operation(node, names, inputs)
        if operation is None:
            continue
        home = HOMES.fullmatch(operation)
        heavy = operation in ("operator.matmul", "operator.imatmul")
        if home and home[1] == "torch.Tensor":
            heavy = home[2] in METHODS
        elif home:
            heavy = home[1] == "torch.fft" or HEAVY.fullmatch(home[2]) is not None
        if heavy:
            yield node.lineno, f"calls {operation}, which {LIBRARY}"


def _layers(tree: ast.Module, names: Names) -> Iterator[Found]:
    """Layers of `torch.nn` that are called; one that only holds weights is fine."""

    def is_layer(node: ast.AST) -> bool:
        path = names.path(node.func) if isinstance(node, ast.Call) else None
        home, _, name = (path or "").rpartition(".")
        return home == "torch.nn" and name[:1].isupper() and name not in NO_LAYER

    held = {
        ast.unparse(target)
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and is_layer(node.value)
        for target in node.targets
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and (is_layer(node.func) or ast.unparse(node.func) in held):
            yield node.lineno, f"calls the layer {ast.unparse(node.func)}, which {LIBRARY}"
