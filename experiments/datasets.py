"""Convert data sets from other layouts into the `.npz` that `nas --data` reads.

`python -m experiments.datasets cifar10-mosaic FOLDER OUT.npz` reads CIFAR-10 stored as lossless WebP mosaics: files
`train-*.webp` and `test-*.webp`, each 25 rows x 40 columns of 32x32 tiles (row-major), and `labels.npz` with the
arrays `train` and `test`. The last five training files become the validation split.
"""

import argparse
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

CIFAR10_CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")


def read_mosaics(files: list[Path]) -> NDArray[np.uint8]:
    """(1000 * len(files), 32, 32, 3) uint8 tiles, in order."""
    tiles = []
    for file in files:
        with Image.open(file) as image:
            mosaic = np.asarray(image.convert("RGB"))
        tiles.append(mosaic.reshape(25, 32, 40, 32, 3).swapaxes(1, 2).reshape(-1, 32, 32, 3))
    return np.concatenate(tiles)


def convert_cifar10_mosaic(folder: Path, out: Path, val_files: int = 5) -> None:
    """Write `out` with x/y for train, val (the last `val_files` training files) and test, and the class names."""
    train_files, test_files = sorted(folder.glob("train-*.webp")), sorted(folder.glob("test-*.webp"))
    with np.load(folder / "labels.npz", allow_pickle=False) as labels:
        y_train, y_test = labels["train"], labels["test"]
    x_train, x_test = read_mosaics(train_files), read_mosaics(test_files)
    cut = len(x_train) - 1000 * val_files
    np.savez(
        out,
        x_train=x_train[:cut],
        y_train=y_train[:cut],
        x_val=x_train[cut:],
        y_val=y_train[cut : len(x_train)],
        x_test=x_test,
        y_test=y_test[: len(x_test)],
        classes=np.array(CIFAR10_CLASSES),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("layout", choices=["cifar10-mosaic"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", type=Path)
    arguments = parser.parse_args()
    convert_cifar10_mosaic(arguments.folder, arguments.out)


if __name__ == "__main__":
    main()
