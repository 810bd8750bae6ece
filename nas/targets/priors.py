"""Profiles of other devices that help where few networks of one were measured.

Apart from the registry, which also serves where nothing is predicted and scipy is not installed.
"""

from nas.targets.fitting import kinds_of, occurring_kinds
from nas.targets.profile import ENOUGH_NETWORKS, DeviceProfile
from nas.targets.registry import bundled_of_others
from search_spaces import SearchSpace


def prior_profiles(profile: DeviceProfile, space: SearchSpace | None = None) -> list[DeviceProfile]:
    """Bundled profiles of other devices, for a profile with so few networks that they help; else none.

    They know all kinds of blocks that the profile's networks have, and those of `space`: the profile's own few networks
    may be without one of them.
    """
    if all(table.measured >= ENOUGH_NETWORKS for table in profile.tables):
        return []
    kinds = kinds_of(profile) | (occurring_kinds(space, profile.output_size) if space is not None else frozenset())
    return [other for other in bundled_of_others(profile.fingerprint) if kinds <= kinds_of(other)]
