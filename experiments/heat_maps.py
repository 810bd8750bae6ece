"""Top-down pose networks: heat maps of the points of one object in a crop (SimpleBaseline, Xiao et al. 2018,
arXiv 1804.06208), and the way from a box in an image to a crop, and from heat maps back to places in the image.

Dimensions in docstrings: n crops, K points, h rows and w columns of a crop. Places are in pixels from the left upper
edge of an image or crop, so that the first pixel's centre lies at 0.5. A way from crop to image is an affine map,
(2, 3) float32: the place in the image of (x, y, 1) in the crop.
"""

import torch
from torch import nn
from torchvision.models.resnet import BasicBlock, ResNet

BLOCKS = {10: (1, 1, 1, 1), 18: (2, 2, 2, 2)}
"""Layers of a ResNet -> basic blocks of its stages."""
STRIDE = 4
"""Pixels of a crop for each of a heat map."""
MARGIN = 1.25
"""Side of what is cropped, by that of the box."""
CHANNELS = 256
SPREAD = 2 / 256
"""Standard deviation of the spot at a point in pixels of the heat map, as a share of the crop's rows: 2 at 256."""


class SimpleBaseline(nn.Module):
    """(n, 3, h, w) -> heat maps (n, K, h / 4, w / 4): a ResNet and three transposed convolutions, as published."""

    def __init__(self, points: int, layers: int) -> None:
        super().__init__()
        resnet = ResNet(BasicBlock, list(BLOCKS[layers]))
        self.stem = nn.Sequential(resnet.conv1, resnet.bn1, resnet.relu, resnet.maxpool)
        self.stages = nn.Sequential(resnet.layer1, resnet.layer2, resnet.layer3, resnet.layer4)
        ups: list[nn.Module] = []
        for inputs in (512, CHANNELS, CHANNELS):
            up = nn.ConvTranspose2d(inputs, CHANNELS, 4, stride=2, padding=1, bias=False)
            ups += [up, nn.BatchNorm2d(CHANNELS), nn.ReLU(inplace=True)]
        self.ups = nn.Sequential(*ups)
        self.predict = nn.Conv2d(CHANNELS, points, 1)
        for module in (*ups, self.predict):
            if isinstance(module, nn.ConvTranspose2d | nn.Conv2d):
                nn.init.normal_(module.weight, std=0.001)
        nn.init.zeros_(self.predict.bias)  # type: ignore[arg-type]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        maps: torch.Tensor = self.predict(self.ups(self.stages(self.stem(x))))
        return maps


def ways(
    boxes: torch.Tensor,
    size: tuple[int, int],
    *,
    scale: torch.Tensor | float = 1.0,
    degrees: torch.Tensor | None = None,
    mirrored: torch.Tensor | None = None,
) -> torch.Tensor:
    """(n, 2, 3) from crops of `size` (h, w) to the surroundings of boxes (n, 4) in their images.

    The shorter side of what is cropped grows until it has the crop's aspect; the box stays in its middle.

    Args:
        boxes: x0, y0, x1, y1 in pixels of the image.
        size: of the crop.
        scale: (n,) of what is cropped, beside `MARGIN`.
        degrees: (n,) by which it is turned.
        mirrored: (n,) bool, whether the crop is a mirror image.
    """
    rows, columns = size
    middle = (boxes[:, :2] + boxes[:, 2:]) / 2
    extent = (boxes[:, 2:] - boxes[:, :2]).clamp(min=1.0)
    factor = torch.maximum(extent[:, 0] / columns, extent[:, 1] / rows) * MARGIN * scale
    angle = torch.zeros(len(boxes)) if degrees is None else torch.deg2rad(degrees)
    side = torch.ones(len(boxes)) if mirrored is None else 1.0 - 2.0 * mirrored.float()
    cos, sin = factor * angle.cos(), factor * angle.sin()
    turn = torch.stack([torch.stack([side * cos, -sin], 1), torch.stack([side * sin, cos], 1)], 1)
    start = middle - turn @ torch.tensor([columns / 2, rows / 2])
    return torch.cat([turn, start[:, :, None]], dim=2)


def placed(places: torch.Tensor, way: torch.Tensor) -> torch.Tensor:
    """Places (n, K, 2) in crops as places in their images."""
    found: torch.Tensor = places @ way[:, :, :2].mT + way[:, None, :, 2]
    return found


def crop_places(places: torch.Tensor, way: torch.Tensor) -> torch.Tensor:
    """Inverse of `placed`."""
    found: torch.Tensor = (places - way[:, None, :, 2]) @ torch.linalg.inv(way[:, :, :2]).mT
    return found


def cropped(images: torch.Tensor, way: torch.Tensor, size: tuple[int, int]) -> torch.Tensor:
    """(n, h, w, 3) float32 crops in 0..255 of images (n, rows, columns, 3) uint8; black outside of them."""
    rows, columns = size
    y, x = torch.meshgrid(torch.arange(rows) + 0.5, torch.arange(columns) + 0.5, indexing="ij")
    places = placed(torch.stack([x, y], -1).reshape(1, -1, 2).expand(len(images), -1, 2), way)
    extent = torch.tensor([images.shape[2], images.shape[1]], dtype=torch.float32)
    grid = (2 * places / extent - 1).view(len(images), rows, columns, 2)
    planes = images.permute(0, 3, 1, 2).float()
    crops: torch.Tensor = nn.functional.grid_sample(planes, grid, align_corners=False).permute(0, 2, 3, 1)
    return crops


def spots(places: torch.Tensor, size: tuple[int, int]) -> torch.Tensor:
    """(n, K, h / 4, w / 4) heat maps to learn: a Gaussian spot of height 1 at each of places (n, K, 2) of the crop."""
    rows, columns = (side // STRIDE for side in size)
    spread = max(1.0, SPREAD * size[0])
    at = places / STRIDE
    x = ((torch.arange(columns) + 0.5) - at[..., :1]).square()
    y = ((torch.arange(rows) + 0.5) - at[..., 1:]).square()
    return (-(y[..., :, None] + x[..., None, :]) / (2 * spread**2)).exp()


def peaks(maps: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Places (n, K, 2) in the crop of the highest values of heat maps, and these values (n, K).

    A quarter of a pixel of the heat map nearer to the higher neighbour in each direction, as published.
    """
    columns = maps.shape[3]
    values, index = maps.flatten(2).max(dim=2)
    row, column = index // columns, index % columns
    padded = nn.functional.pad(maps, (1, 1, 1, 1), mode="reflect")  # at an edge both are equal
    flat = padded.flatten(2)

    def beside(down: int, right: int) -> torch.Tensor:
        place = (row + 1 + down) * (columns + 2) + column + 1 + right
        return flat.gather(2, place[..., None])[..., 0]

    nearer = torch.stack([beside(0, 1) - beside(0, -1), beside(1, 0) - beside(-1, 0)], -1).sign()
    places = torch.stack([column, row], -1) + 0.5 + 0.25 * nearer
    return places * STRIDE, values
