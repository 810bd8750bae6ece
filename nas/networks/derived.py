"""Networks that were made of another one: some of its units replaced by options."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from nas.data.images import square_input
from nas.errors import UserError
from search_spaces import Architecture, TensorSpec, architecture_of_json, space_of

_FORMAT = (
    "a derived network has an origin ('zoo', 'architecture' or 'derived'), a list of options, a width above 0 and at "
    "most 1 where it is narrower, and a resolution in pixels where its images are smaller"
)


@dataclass(frozen=True, slots=True)
class Form:
    """How a network as a whole differs from the one that it is made of, before any unit is replaced."""

    width: float = 1.0
    """Share of its channels, see `nas.networks.narrowing`."""
    resolution: int | None = None
    """Rows and columns of the images that it takes; None: those of the other network."""

    @property
    def key(self) -> str:
        """Equal for equal forms, in every process; empty where nothing differs."""
        narrower = [] if self.width == 1 else [f"{self.width:g}"]
        smaller = [] if self.resolution is None else [f"{self.resolution}px"]
        return ",".join(narrower + smaller)

    def input(self, own: TensorSpec) -> TensorSpec:
        """What a network of this form takes where the other one takes `own`."""
        return own if self.resolution is None else square_input(own, self.resolution)

    def to_json(self) -> dict[str, Any]:
        """What differs, for `from_json`."""
        narrower = {} if self.width == 1 else {"width": self.width}
        return narrower if self.resolution is None else {**narrower, "resolution": self.resolution}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> "Form":
        """Inverse of `to_json`; other entries are not looked at.

        Raises:
            UserError: no network has such a form.
        """
        width, resolution = document.get("width", 1.0), document.get("resolution")
        if not isinstance(width, float) or not 0 < width <= 1:
            raise UserError("this does not describe a derived network", _FORMAT)
        if resolution is not None and (type(resolution) is not int or resolution < 1):
            raise UserError("this does not describe a derived network", _FORMAT)
        return cls(width, resolution)


OWN_FORM = Form()
"""Nothing differs."""


@dataclass(frozen=True, slots=True)
class Derived:
    """A network of another one's units, see `nas.networks.units` and `nas.networks.options`."""

    origin: "Source"
    """The network whose units they are, as `NetworkDescription.source` says it."""
    options: tuple[str, ...]
    """For each of its units, in order, the name of what stands in its place."""
    form: Form = OWN_FORM

    @property
    def key(self) -> str:
        """Equal for equal networks, in every process."""
        smaller = f"@{self.form.key}" if self.form.key else ""
        return f"{source_key(self.origin)}{smaller}>{'.'.join(self.options)}"


Source = Architecture | str | Derived
"""Where a network comes from: an architecture of a space, a network of the zoo by its name, or another network."""


def source_key(source: Source) -> str:
    """Equal for equal sources, in every process."""
    return source if isinstance(source, str) else source.key


def source_to_json(source: Source) -> dict[str, Any]:
    """One entry, named for the kind of source."""
    if isinstance(source, str):
        return {"zoo": source}
    if isinstance(source, Derived):
        made = {"origin": source_to_json(source.origin), "options": list(source.options), **source.form.to_json()}
        return {"derived": made}
    return {"architecture": space_of(source).to_json(source)}


def source_from_json(document: Mapping[str, Any]) -> Source:
    """Inverse of `source_to_json`; other entries of the document are not looked at.

    Raises:
        UserError: the document names no source, or several.
    """
    named = [kind for kind in ("zoo", "architecture", "derived") if kind in document]
    if len(named) != 1:
        raise UserError("this is not a network description", "it needs either 'architecture', 'zoo' or 'derived'")
    (kind,) = named
    if kind == "architecture":
        return architecture_of_json(document[kind])
    return str(document[kind]) if kind == "zoo" else _derived(document[kind])


def _derived(document: object) -> Derived:
    if not isinstance(document, dict) or document.keys() - {"width", "resolution"} != {"origin", "options"}:
        raise UserError("this does not describe a derived network", _FORMAT)
    origin, options = document["origin"], document["options"]
    if not isinstance(origin, dict) or not isinstance(options, list) or not all(isinstance(o, str) for o in options):
        raise UserError("this does not describe a derived network", _FORMAT)
    return Derived(source_from_json(origin), tuple(options), Form.from_json(document))
