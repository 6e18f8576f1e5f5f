"""Lets vLLM serve DiffusionGemma on a CPU: a Triton backend named ``cpu`` that never compiles.

vLLM's V2 model runner, which diffusion models need, wants a Triton with a CPU backend, and PyPI's has none. With this
plug-in folder on PYTHONPATH and ``TRITON_INTERPRET=1`` the few Triton kernels run in Triton's interpreter. For this one
engine process only: the folder makes vLLM choose the V2 runner for any model.

On processors with AMX, vLLM 0.32 divides by the number of rows, and a canvas's prefill asks for the logits of none: the
worker dies of SIGFPE. The same folder holds a vLLM plug-in that answers such a call itself.

`triton` and an importable `torchvision` are needed too: the overlay `engine-diffusion` has both. Serve with
``--language-model-only``, and send no `temperature` (other than 1), `seed` or `min_p`: vLLM answers 400.
"""

from pathlib import Path

COMPILER = '''"""A backend that refuses to compile."""
from triton.backends.compiler import BaseBackend


class CPUInterpreterBackend(BaseBackend):
    @staticmethod
    def supports_target(target):
        return target.backend == "cpu"

    def hash(self):
        return "cpu-interpreter"

    def parse_options(self, options):
        raise RuntimeError("set TRITON_INTERPRET=1")

    def add_stages(self, stages, options, language):
        raise RuntimeError("set TRITON_INTERPRET=1")

    def load_dialects(self, context):
        pass

    def get_module_map(self):
        return {}
'''

DRIVER = '''"""A driver for the only device there is."""
from triton.backends.driver import DriverBase


class CPUInterpreterDriver(DriverBase):
    @classmethod
    def is_active(cls):
        return True

    def map_python_to_cpp_type(self, ty):
        return ty

    def get_current_target(self):
        from triton.backends.compiler import GPUTarget

        return GPUTarget("cpu", "interpreter", 1)

    def get_active_torch_device(self):
        import torch

        return torch.device("cpu")

    def get_benchmarker(self):
        raise RuntimeError("no benchmarking in the interpreter")

    def get_current_device(self):
        return 0

    def get_current_stream(self, device):
        return 0
'''

EMPTY_ROWS = '''"""No rows in, no rows out: what a canvas's prefill asks of the output layer."""


def register():
    from vllm import _custom_ops

    packed_linear = _custom_ops.weight_packed_linear_cpu

    def weight_packed_linear_cpu(x, packed_weight, n, bias):
        if x.numel() == 0:
            return x.new_empty((*x.shape[:-1], n))
        return packed_linear(x, packed_weight, n, bias)

    _custom_ops.weight_packed_linear_cpu = weight_packed_linear_cpu
'''

FILES = {
    "triton_cpu_interpreter/__init__.py": "",
    "triton_cpu_interpreter/compiler.py": COMPILER,
    "triton_cpu_interpreter/driver.py": DRIVER,
    "triton_cpu_interpreter/empty_rows.py": EMPTY_ROWS,
    "triton_cpu_interpreter-0.0.1.dist-info/METADATA": (
        "Metadata-Version: 2.1\nName: triton-cpu-interpreter\nVersion: 0.0.1\n"
    ),
    "triton_cpu_interpreter-0.0.1.dist-info/entry_points.txt": (
        "[triton.backends]\ncpu = triton_cpu_interpreter\n"
        "[vllm.general_plugins]\nempty_rows = triton_cpu_interpreter.empty_rows:register\n"
    ),
}


def write_backend(folder: Path) -> dict[str, str]:
    """Writes the plug-in to `folder`; returns the environment variables of the engine that uses it."""
    for name, text in FILES.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return {
        "PYTHONPATH": str(folder.absolute()),
        "TRITON_INTERPRET": "1",
        "TRITON_DEFAULT_BACKEND": "cpu",
        "VLLM_USE_V2_MODEL_RUNNER": "1",
        "TORCHDYNAMO_DISABLE": "1",
    }
