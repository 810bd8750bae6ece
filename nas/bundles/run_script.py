"""The script that travels with a bundle: it needs numpy, Pillow and the runtime, and nothing of this project.

What it does with the output is the task's (`nas.tasks.artifacts`); how to
get the output is the runtime's, and here.
"""

from collections.abc import Callable, Mapping

from nas.deployment import Deployment


def _call(deployment: Deployment) -> str:
    """What one call is given: the file has a static shape, so the image fills the whole batch."""
    return "images" if deployment.batch == 1 else f"np.repeat(images, {deployment.batch}, axis=0)"


def _onnxruntime(deployment: Deployment, file: str) -> tuple[str, str]:
    return "import onnxruntime", (
        f"options = onnxruntime.SessionOptions()\n"
        f"options.intra_op_num_threads = {deployment.threads}\n"
        f'session = onnxruntime.InferenceSession(here / "{file}", options, providers=["CPUExecutionProvider"])\n'
        f"output = session.run(None, {{session.get_inputs()[0].name: {_call(deployment)}}})[0][0]"
    )


def _openvino(deployment: Deployment, file: str) -> tuple[str, str]:
    # A processor without bf16 takes that hint and computes in fp32.
    hint = "f32" if deployment.precision == "fp32" else "bf16"
    options = f'"INFERENCE_NUM_THREADS": {deployment.threads}, "INFERENCE_PRECISION_HINT": "{hint}"'
    return "import openvino", (
        f'config = {{"PERFORMANCE_HINT": "LATENCY", {options}}}\n'
        f'output = openvino.Core().compile_model(here / "{file}", "CPU", config)([{_call(deployment)}])[0][0]'
    )


def _torch(deployment: Deployment, file: str) -> tuple[str, str]:
    """A network in torch is built by code: this one alone needs the package that wrote the bundle."""
    dtype = "bfloat16" if deployment.precision == "bf16" else "float32"
    return "import torch\nfrom nas.networks.description import load_network", (
        f'where = {{"device": "cuda" if torch.cuda.is_available() else "cpu", "dtype": torch.{dtype}}}\n'
        f'network = load_network(here / "{file}").to(**where)\n'
        f"with torch.inference_mode():\n"
        f"    output = network(torch.from_numpy(images).to(**where))[0].float().cpu().numpy()"
    )


_LOADERS: Mapping[str, Callable[[Deployment, str], tuple[str, str]]] = {
    "onnxruntime": _onnxruntime,
    "openvino": _openvino,
    "torch": _torch,
}
"""Runtime -> (its imports, the lines that turn `images` into `output`, that of the one image)."""


_OPEN = """\
image = ImageOps.exif_transpose(Image.open(file))
if image.mode.startswith("I"):  # grey of 16 bits, which `convert` would cut off at 255
    image = Image.fromarray(np.rint(np.asarray(image).clip(0, 65535) / 257).astype(np.uint8))
image = image.convert("RGB")"""
"""`file` -> `image`, 8-bit RGB, as `nas.data.decode` reads what is trained on."""


def run_script(template: str, deployment: Deployment, file: str) -> str | None:
    """The text of `run.py` for a bundle whose model is `file`; None for a runtime that has no such script.

    `template` has the fields `{imports}`, `{open}` (a path `file` becomes `image`) and `{run}`: its lines read `images`
    (1, 3, r, r) float32 and define `output`, float32, that of the image.
    """
    loader = _LOADERS.get(deployment.runtime)
    if loader is None:
        return None
    imports, run = loader(deployment, file)
    return template.replace("{imports}", imports).replace("{open}", _OPEN).replace("{run}", run)
