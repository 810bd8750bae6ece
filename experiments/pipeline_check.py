"""A bundle in a user's hands: how long its own script's calls take, and how right they are, against its receipt.

`python -m experiments.pipeline_check BUNDLE --data PHOTOS` times the functions of the bundle's `run.py` as a user's
script would: pictures decoded before, then pre-processing, network and post-processing call by call, in fresh
processes, in the pattern of calls that the receipt is of. Where the receipt's latency is of the whole pipeline, the
product measures it again in turns with the script, since a machine is faster on one day than on another. With `--data`,
a folder of test images with one sub-folder for each class, `nas.bundles.predictor.Predictor` answers every original
file, and its accuracy stands beside the receipt's.
"""

import json
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

import click
from PIL import Image

from nas.bundles.predictor import Predictor
from nas.bundles.receipt import read_receipt
from nas.data.decode import IMAGE_SUFFIXES
from nas.deployment import PIPELINE
from nas.measure.host import fingerprint
from nas.measure.measurement import MeasureRequest
from nas.measure.protocol import measure

SESSIONS, CALLS, WARM_UP = 3, 100, 20


def user_script(text: str, runtime: str) -> str:
    """The lines of a `run.py` up to a loaded network, and a function `call(image)` made of those that use it."""
    head, found, tail = text.partition("inputs = preprocess(")
    if not found or runtime not in ("onnxruntime", "openvino"):
        raise click.ClickException(f"no user's script can be made of this bundle's run.py, which is for {runtime}")
    body = tail.split("\n", 1)[1]
    before, _, run = body.partition("output = ")
    expression = run.splitlines()[0]
    if runtime == "openvino":  # the network is compiled once, and then called
        compiled, _, arguments = expression.partition("([")
        before, expression = f"{before}compiled = {compiled}\n", f"compiled([{arguments}"
    return (
        f"{head}{before}\n\n"
        f"def call(image):\n"
        f"    inputs = preprocess(image, how)\n"
        f"    output = {expression}\n"
        f"    return postprocess(output, labels)\n"
    )


def time_script(bundle: Path) -> float:
    """Milliseconds of the median call of the user's script in this process."""
    receipt = read_receipt(bundle)
    script = user_script((bundle / "run.py").read_text(encoding="utf-8"), receipt.deployment.runtime)
    namespace: dict[str, Any] = {"__file__": str((bundle / "run.py").resolve()), "__name__": "run"}
    arguments, sys.argv = sys.argv, ["run.py"]
    exec(compile(script, "run.py", "exec"), namespace)
    sys.argv = arguments
    sample = json.loads((bundle / "sample.json").read_text(encoding="utf-8"))
    rows, columns = sample["picture_size"]
    with Image.open(bundle / sample["image"]) as file:
        picture = file.convert("RGB").resize((columns, rows), Image.Resampling.BILINEAR)
    interval_s, times_s = receipt.deployment.interval_ms / 1e3, []
    for _ in range(WARM_UP + CALLS):
        start = time.perf_counter()
        namespace["call"](picture)
        times_s.append(time.perf_counter() - start)
        time.sleep(max(0.0, interval_s - times_s[-1]))
    return 1e3 * median(times_s[WARM_UP:])


def measured_ms(bundle: Path) -> float:
    """Milliseconds of the median call as the product measures a bundle, in one fresh session."""
    receipt = read_receipt(bundle)
    deployment = receipt.deployment.covering(PIPELINE)
    (found,) = measure([MeasureRequest(bundle / receipt.model, deployment)], sessions=1)
    if found.failed is not None:
        raise click.ClickException(f"'{bundle}' could not be measured: {found.failed}")
    return found.p50_ms


def accuracy_on_files(bundle: Path, photos: Path) -> tuple[float, int]:
    """Fraction of the original files below `photos`/CLASS that the bundle tells rightly, and how many there are."""
    predictor = Predictor.open(bundle)
    right = total = 0
    for folder in sorted(path for path in photos.iterdir() if path.is_dir()):
        for file in sorted(folder.iterdir()):
            if file.suffix.lower() in IMAGE_SUFFIXES:
                total += 1
                right += predictor.predict(file)[0]["label"] == folder.name
    if not total:
        raise click.ClickException(f"'{photos}' has no images in folders of classes")
    return right / total, total


@click.command()
@click.argument("bundle", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option(
    "--data", "photos", type=click.Path(path_type=Path, exists=True), help="Test images, a folder for a class."
)
@click.option("--session", is_flag=True, hidden=True, help="Time the script once, in this process.")
def main(bundle: Path, photos: Path | None, session: bool) -> None:
    """Compare a bundle's receipt with what its own code does."""
    if session:
        click.echo(time_script(bundle))
        return
    document = json.loads((bundle / "receipt.json").read_text(encoding="utf-8"))
    command = [sys.executable, "-m", "experiments.pipeline_check", str(bundle), "--session"]
    whole = document["limit_on"] == PIPELINE  # then the latency is that of all parts together
    seen_ms, again_ms = [], []
    for _ in range(SESSIONS):
        seen_ms.append(float(subprocess.run(command, check=True, capture_output=True, text=True).stdout))
        if whole:
            again_ms.append(measured_ms(bundle))
    claimed_ms = document["latency_ms"]["p50"] if whole else document["pipeline"]["total"]
    found: dict[str, Any] = {
        "cpu": fingerprint().cpu_model,
        "runtime": document["runtime"],
        "calls": document["calls"],
        "receipt_ms": claimed_ms,
        "script_ms": seen_ms,
        "ratio": median(seen_ms) / claimed_ms,
    }
    if again_ms:
        found |= {"measured_again_ms": again_ms, "ratio_in_one_run": median(seen_ms) / median(again_ms)}
    if photos is not None:
        accuracy, images = accuracy_on_files(bundle, photos)
        found |= {"accuracy": accuracy, "images": images, "receipt_accuracy": document["accuracy"]["test"]}
    click.echo(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
