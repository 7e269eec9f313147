"""AOTInductor's C ABI through ctypes: no `import torch`, which takes two seconds.

Sources: torch/include/torch/csrc/inductor/aoti_runtime/interface.h (compiled objects) and
torch/include/torch/csrc/inductor/aoti_torch/c/shim.h (tensors), torch 2.13.

A *handle* is an owned reference to a tensor. `Run` steals its inputs' handles and hands out
its outputs', so a persistent tensor is referenced anew before every call.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Iterator, Mapping, Sequence
from ctypes import byref, c_char_p, c_int32, c_int64, c_size_t, c_void_p
from pathlib import Path

from neuroncompile.errors import RunError

__all__ = ["Call", "Object", "Program", "Torch"]

HANDLE_BYTES = ctypes.sizeof(c_void_p)

DTYPES = ("float32", "bfloat16", "float16", "int64")


class Torch:
    """libtorch's C shim: makes, references and reads tensors.

    Args:
        directory: the installed torch package.
        threads: of every parallel region in this process.

    Raises:
        RunError: its libraries cannot be loaded.
    """

    def __init__(self, directory: str, threads: int) -> None:
        libraries = Path(directory) / "lib"
        try:
            with _short_spins():
                for path in sorted(libraries.glob("libgomp*.so*")):
                    ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL).omp_set_num_threads(threads)
            ctypes.CDLL(str(libraries / "libc10.so"), mode=ctypes.RTLD_GLOBAL)
            name = str(libraries / "libtorch_cpu.so")
            ctypes.CDLL(name, mode=ctypes.RTLD_GLOBAL)
            # Its calls are shorter than giving up Python's lock and taking it back.
            library = ctypes.PyDLL(name)
        except OSError as error:
            raise RunError(
                f"torch's libraries cannot be loaded: {error}",
                hint="pip install --force-reinstall 'neuroncompile[cpu]'",
            ) from None
        self._create = library.aoti_torch_create_tensor_from_blob
        self._create.argtypes = (
            *(c_void_p, c_int64, c_void_p, c_void_p, c_int64),
            *(c_int32, c_int32, c_int32, c_void_p),
        )
        self.refer = library.aoti_torch_new_tensor_handle
        self.refer.argtypes = (c_void_p, c_void_p)
        self._delete = library.aoti_torch_delete_tensor_object
        self._delete.argtypes = (c_void_p,)
        self._data = library.aoti_torch_get_data_ptr
        self._data.argtypes = (c_void_p, c_void_p)
        self._cpu = int(library.aoti_torch_device_type_cpu())
        self._dtypes = {n: int(getattr(library, f"aoti_torch_dtype_{n}")()) for n in DTYPES}

    def tensor(self, address: int, shape: Sequence[int], dtype: str) -> int:
        """A handle of a contiguous tensor over foreign memory, which must outlive it."""
        rank = len(shape)
        strides = [1] * rank
        for i in range(rank - 2, -1, -1):
            strides[i] = strides[i + 1] * shape[i + 1]
        sizes, steps = (c_int64 * rank)(*shape), (c_int64 * rank)(*strides)
        handle = c_void_p()
        code = self._create(
            address, rank, sizes, steps, 0, self._dtypes[dtype], self._cpu, 0, byref(handle)
        )
        if code or handle.value is None:
            raise RunError(f"libtorch refused a {dtype} tensor of shape {tuple(shape)}")
        return handle.value

    def address(self, handle: int) -> int:
        """Where a tensor's data is."""
        pointer = c_void_p()
        if self._data(handle, byref(pointer)) or pointer.value is None:
            raise RunError("libtorch cannot say where a tensor's data is")
        return pointer.value

    def release(self, handle: int) -> None:
        """Give a reference up."""
        self._delete(handle)


@contextlib.contextmanager
def _short_spins() -> Iterator[None]:
    """Load libgomp so that a waiting thread soon sleeps, unless the user's environment says how.

    A step joins its threads a few hundred times. By default they spin for about a millisecond
    at each join, which starves the thread they wait for as soon as another process wants a
    core: 2 tokens/s instead of 19 beside one busy process, for 55 instead of 61 on an idle host
    (SmolLM2-135M, bfloat16, 2 cores).
    """
    if "GOMP_SPINCOUNT" in os.environ or "OMP_WAIT_POLICY" in os.environ:
        yield
        return
    os.environ["GOMP_SPINCOUNT"] = "1000"  # libgomp reads it once, while it is loaded
    try:
        yield
    finally:
        del os.environ["GOMP_SPINCOUNT"]


class Object:
    """One compiled shared object, opened once however many layers it serves.

    Raises:
        RunError: it cannot be opened.
    """

    def __init__(self, path: Path) -> None:
        try:
            self._library = ctypes.CDLL(str(path))
            self.run = self._library.AOTInductorModelContainerRunSingleThreaded
        except (OSError, AttributeError) as error:
            raise RunError(
                f"compiled graph {path} cannot be loaded: {error}",
                hint="the store's bytes are checked on use, so libtorch or the C++ runtime differs "
                "from the builder's; build again with another --store",
            ) from None
        self.path = path
        self.run.argtypes = (
            *(c_void_p, c_void_p, c_size_t, c_void_p, c_size_t),
            *(c_void_p, c_void_p),
        )

    def check(self, code: int) -> None:
        """Raise what the last failed call of this object said."""
        if code:
            text = c_char_p()
            self._library.AOTInductorGetLastError(byref(text))
            said = (text.value or b"no message").decode(errors="replace").strip()
            raise RunError(f"graph {self.path.parent.name} failed: {said}")

    def create(self) -> int:
        """A new instance, to be bound to constants."""
        handle = c_void_p()
        create = self._library.AOTInductorModelContainerCreateWithDevice
        self.check(create(byref(handle), c_size_t(1), b"cpu", None))
        assert handle.value is not None
        return handle.value

    def delete(self, instance: int) -> None:
        """Free an instance."""
        self._library.AOTInductorModelContainerDelete(c_void_p(instance))

    def names(self, instance: int) -> list[tuple[bytes, str]]:
        """(internal name, parameter name) of each constant."""
        library, handle, count = self._library, c_void_p(instance), c_size_t()
        internal = library.AOTInductorModelContainerGetConstantName
        original = library.AOTInductorModelContainerGetConstantOriginalFQN
        self.check(library.AOTInductorModelContainerGetNumConstants(handle, byref(count)))
        found = []
        for i in range(count.value):
            name, parameter = c_char_p(), c_char_p()
            self.check(internal(handle, c_size_t(i), byref(name)))
            self.check(original(handle, c_size_t(i), byref(parameter)))
            found.append((name.value or b"", (parameter.value or b"").decode()))
        return found

    def bind(self, instance: int, pairs: Sequence[tuple[bytes, int]]) -> None:
        """Point an instance's constants at tensors that somebody else keeps."""
        entries = (_Entry * len(pairs))(*(_Entry(*pair) for pair in pairs))
        update = self._library.AOTInductorModelContainerUpdateUserManagedConstantBufferPairs
        inactive, complete = False, True
        self.check(update(c_void_p(instance), entries, c_size_t(len(pairs)), inactive, complete))


class _Entry(ctypes.Structure):
    _fields_ = (("name", c_char_p), ("handle", c_void_p))


class Program:
    """One instance of an object with its weights bound."""

    def __init__(self, code: Object, weights: Mapping[str, int]) -> None:
        self.code, self.instance = code, code.create()
        names = code.names(self.instance)
        code.bind(self.instance, [(name, weights[parameter]) for name, parameter in names])

    def close(self) -> None:
        """Free it; its calls must not be used after."""
        self.code.delete(self.instance)


class Call:
    """A program with its persistent inputs.

    Attributes:
        first: address where the caller stores the handle of the first input, before each call.
    """

    def __init__(self, torch: Torch, program: Program, inputs: Sequence[int]) -> None:
        self._array = (c_void_p * (len(inputs) + 1))()
        self.first = ctypes.addressof(self._array)
        self._count = len(inputs) + 1
        places = range(self.first + HANDLE_BYTES, self.first + HANDLE_BYTES * self._count, 8)
        self._given = list(zip(inputs, places, strict=True))
        self._refer, self._run = torch.refer, program.code.run
        self._instance, self._check = program.instance, program.code.check

    def __call__(self, output: int) -> None:
        """Run; the output's handle is stored at the address `output`."""
        refer = self._refer
        for handle, place in self._given:
            refer(handle, place)
        code = self._run(self._instance, self.first, self._count, output, 1, None, None)
        if code:
            self._check(code)
