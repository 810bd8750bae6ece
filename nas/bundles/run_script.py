"""The script that travels with a bundle: it needs numpy, Pillow and the runtime, and nothing of this project.

What it does with the output is the task's (`nas.tasks.artifacts`); how to
get the output is the runtime's, and here.
"""

import json
from collections.abc import Callable, Mapping

from nas.deployment import Deployment
from nas.runtimes.devices import execution_providers
from nas.runtimes.ort import session_settings
from nas.runtimes.ov import bf16_is_wrong, compile_settings, float_hint


def _call(deployment: Deployment) -> str:
    """Argument of one call: the file has a static shape, so the example fills the whole batch."""
    return "inputs" if deployment.batch == 1 else f"np.repeat(inputs, {deployment.batch}, axis=0)"


def _onnxruntime(deployment: Deployment, file: str) -> tuple[str, str]:
    providers = execution_providers(deployment.device, precision=deployment.precision)
    attributes, entries = session_settings(deployment)
    settings = [f"options.{name} = {value!r}\n" for name, value in attributes.items()]
    settings += [f'options.add_session_config_entry("{key}", "{value}")\n' for key, value in entries.items()]
    return "import onnxruntime", (
        f"options = onnxruntime.SessionOptions()\n{''.join(settings)}"
        f'session = onnxruntime.InferenceSession(here / "{file}", options, providers={providers})\n'
        f"output = session.run(None, {{session.get_inputs()[0].name: {_call(deployment)}}})[0][0]"
    )


def _openvino(deployment: Deployment, file: str) -> tuple[str, str]:
    # What an int8 network keeps in floating point is computed in bf16 where the processor that runs the script can.
    asks = deployment.precision == "int8" and not bf16_is_wrong()
    settings = compile_settings(deployment, "bf16" if asks else float_hint(deployment.precision))
    lines = [
        "core = openvino.Core()",
        "config = {",
        *(f"    {json.dumps(k)}: {v!r}," for k, v in settings.items()),
        "}",
    ]
    if asks:
        lines.append('if "BF16" not in core.get_property("CPU", "OPTIMIZATION_CAPABILITIES"):')
        lines.append('    config["INFERENCE_PRECISION_HINT"] = "f32"')
    lines.append(f'output = core.compile_model(here / "{file}", "CPU", config)([{_call(deployment)}])[0][0]')
    return "import openvino", "\n".join(lines)


def _torch(deployment: Deployment, file: str) -> tuple[str, str]:
    """A network in torch is built by code: this one alone needs the package that wrote the bundle, and runs by the very
    session that was measured, on a GPU the recorded graph."""
    return "from nas.deployment import Deployment\nfrom nas.runtimes import load_runtime", (
        f'deployment = Deployment("torch", "{deployment.precision}", {deployment.threads}, '
        f'{deployment.batch}, "{deployment.device}")\n'
        f'output = load_runtime("torch").load(here / "{file}", deployment).run(inputs)[0]'
    )


_LOADERS: Mapping[str, Callable[[Deployment, str], tuple[str, str]]] = {
    "onnxruntime": _onnxruntime,
    "openvino": _openvino,
    "torch": _torch,
}
"""Runtime -> (its imports, the lines that turn `inputs` into `output`, that of the one example)."""


def run_script(template: str, deployment: Deployment, file: str) -> str | None:
    """The text of `run.py` for a bundle whose model is `file`; None for a runtime that has no such script.

    `template` has the fields `{imports}` and `{run}`: its lines read `inputs` (1, ...) and define `output`, float32,
    that of the one example.
    """
    loader = _LOADERS.get(deployment.runtime)
    if loader is None:
        return None
    imports, run = loader(deployment, file)
    return template.replace("{imports}", imports).replace("{run}", run)
