"""The part of a build script that runs its engine on samples: with NumPy and the NVIDIA driver, and nothing else."""

from __future__ import annotations

__all__ = ["RUN"]

RUN = '''\
try:
    import numpy as np
except ImportError:  # building does without
    np = None


class Driver:
    """Memory on the first GPU, through the NVIDIA driver's own library."""

    def __init__(self):
        name = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"
        try:
            self.library = ctypes.CDLL(name)
        except OSError as error:
            raise Stop(3, "no NVIDIA driver here: {}".format(error))
        self.call("cuInit", 0)
        device, context, stream = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_void_p()
        self.call("cuDeviceGet", ctypes.byref(device), 0)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self.call("cuCtxSetCurrent", context)
        self.call("cuStreamCreate", ctypes.byref(stream), 0)
        self.stream = stream.value or 0

    def call(self, name, *arguments):
        code = getattr(self.library, name)(*arguments)
        if code:
            raise Stop(3, "{} failed with error {} of the NVIDIA driver".format(name, code))

    def allocate(self, size):
        pointer = ctypes.c_uint64()
        self.call("cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(max(size, 1)))
        return pointer.value

    def free(self, pointer):
        self.call("cuMemFree_v2", ctypes.c_uint64(pointer))

    def to_device(self, pointer, array):
        if array.nbytes:
            source = ctypes.c_void_p(array.ctypes.data)
            self.call("cuMemcpyHtoD_v2", ctypes.c_uint64(pointer), source, ctypes.c_size_t(array.nbytes))

    def to_host(self, array, pointer):
        if array.nbytes:
            target = ctypes.c_void_p(array.ctypes.data)
            self.call("cuMemcpyDtoH_v2", target, ctypes.c_uint64(pointer), ctypes.c_size_t(array.nbytes))

    def wait(self):
        self.call("cuStreamSynchronize", ctypes.c_void_p(self.stream))


class Execution:
    """The engine with a context, run on one sample after another."""

    def __init__(self, trt, driver, engine):
        self.trt, self.driver, self.engine = trt, driver, engine
        self.context = engine.create_execution_context()
        if self.context is None:
            raise Stop(3, "there is not enough memory on the GPU to run the engine")
        names = [engine.get_tensor_name(index) for index in range(engine.num_io_tensors)]
        self.inputs = [name for name in names if engine.get_tensor_mode(name) == trt.TensorIOMode.INPUT]
        self.outputs = [name for name in names if name not in self.inputs]

    def kind(self, name):
        told = str(self.engine.get_tensor_dtype(name)).rpartition(".")[2]
        kinds = {"FLOAT": "f4", "HALF": "f2", "INT64": "i8", "INT32": "i4", "INT8": "i1", "UINT8": "u1", "BOOL": "?"}
        if told not in kinds:
            raise Stop(3, "tensor {} is of type {}, which NumPy does not know".format(name, told))
        return np.dtype(kinds[told])

    def run(self, feed, label):
        taken, held = [], []
        try:
            for name in self.inputs:
                if name not in feed:
                    raise Stop(2, "{} has no input {}, which the engine wants".format(label, json.dumps(name)))
                array = np.ascontiguousarray(feed[name], dtype=self.kind(name))
                held.append(array)  # what an address points to has to live until the end
                if not self.context.set_input_shape(name, tuple(array.shape)):
                    raise Stop(2, "{}: the engine does not take {} in shape {}".format(label, name, array.shape))
                if self.engine.get_tensor_location(name) == self.trt.TensorLocation.HOST:
                    held.append(array if array.ndim else array.reshape(1))
                    self.context.set_tensor_address(name, held[-1].ctypes.data)
                    continue
                taken.append(self.driver.allocate(array.nbytes))
                self.driver.to_device(taken[-1], array)
                self.context.set_tensor_address(name, taken[-1])
            results = {}
            for name in self.outputs:
                shape = tuple(self.context.get_tensor_shape(name))
                if any(size < 0 for size in shape):
                    raise Stop(3, "the shape of output {} is known only when it is computed".format(name))
                results[name] = np.empty(shape, self.kind(name))
                taken.append(self.driver.allocate(results[name].nbytes))
                self.context.set_tensor_address(name, taken[-1])
            if not self.context.execute_async_v3(self.driver.stream):
                raise Stop(1, "the engine did not run on {}".format(label))
            self.driver.wait()
            for name, pointer in zip(self.outputs, taken[-len(self.outputs):]):
                self.driver.to_host(results[name], pointer)
            return results
        finally:
            for pointer in taken:
                self.driver.free(pointer)


def numbered(path):
    return [int(part) if part.isdecimal() else part for part in re.split("([0-9]+)", path.name)]


def run(folder):
    """Run the engine on every .npz file of a folder, and write its outputs to files of the same names."""
    if np is None:
        raise Stop(3, "running samples needs NumPy: pip install numpy")
    files = sorted(Path(folder).glob("*.npz"), key=numbered)
    if not files:
        raise Stop(2, "{}: there is no .npz file of inputs in this folder".format(folder))
    trt = import_tensorrt()
    driver = Driver()
    engine_file = HERE / SETTINGS["engine"]
    if not engine_file.is_file():
        raise Stop(2, "{}: there is no engine yet; build it first: python {}".format(engine_file, sys.argv[0]))
    runtime = trt.Runtime(trt.Logger(trt.Logger.WARNING))
    engine = runtime.deserialize_cuda_engine(engine_file.read_bytes())
    if engine is None:
        raise Stop(3, "the engine cannot be loaded here: it was built for another GPU or another version")
    execution = Execution(trt, driver, engine)
    target = HERE / SETTINGS["outputs"]
    target.mkdir(exist_ok=True)
    for old in target.glob("*.npz"):
        old.unlink()
    for file in files:
        with np.load(str(file), allow_pickle=False) as stored:
            feed = {name: stored[name] for name in stored.files}
        np.savez(str(target / file.name), **execution.run(feed, file.name))
    say("samples run: {}; outputs in {}".format(len(files), target))


'''
