"""`--calibration` at every door: what own runs say of a cluster, of several, or nothing where no step is estimated."""

from __future__ import annotations

import argparse
from collections.abc import Iterable

from costmodel.cli.arguments import Misused
from costmodel.description.cluster import Cluster

OPTION = "--calibration"


def add_calibration(parser: argparse.ArgumentParser | argparse._ArgumentGroup, several: bool = False) -> None:
    """The argument that names what own runs said of the cluster.

    Parameters
    ----------
    parser : of a command
    several : files, each of a device, for a door that answers more than one question
    """
    if several:
        parser.add_argument(
            OPTION, action="append", default=[], metavar="FILE", help="what own runs say of a device; once for each file"
        )
    else:
        parser.add_argument(OPTION, metavar="FILE", help="what own runs say (`costmodel calibrate` writes it)")


def calibrated_software(arguments: argparse.Namespace, asked: object) -> str | None:
    """The framework that own runs tell of, where none was asked for; a note where another was.

    Parameters
    ----------
    arguments : of the command line
    asked : the framework that counts without own runs, one or several by name

    Returns
    -------
    str or None
        the own runs' framework where it takes the place of what counts without them
    """
    from costmodel.catalogue.calibrations import calibrated_framework

    name = calibrated_framework(arguments.calibration)
    if "framework" not in getattr(arguments, "given", ()) and getattr(arguments, "priced", None) is None:
        return name
    wanted = asked if isinstance(asked, list) else [asked]
    if name not in wanted:
        arguments.notes.append(
            f"{arguments.calibration} is about {name}: it says nothing of {', '.join(map(str, wanted))[:80]}, "
            f"which was asked about"
        )
    return None


def with_calibration(arguments: argparse.Namespace, cluster: Cluster) -> Cluster:
    """The cluster with what own runs said of it, and their framework where none was given.

    One of several clusters may be of another device: a note says that the runs say nothing of it.
    """
    path = getattr(arguments, "calibration", None)
    if path is None:
        return cluster
    from costmodel.catalogue.calibrations import device_of_calibration, load_calibration

    asked = getattr(arguments, "framework", None)
    name = calibrated_software(arguments, asked) if asked is not None else None
    if name is not None:
        arguments.framework = name
    device = device_of_calibration(path)
    if device != cluster.device.name and getattr(arguments, "one_of_several", False):
        arguments.notes.append(f"{path} is about {device}: it says nothing of {cluster.device.name}")
        return cluster
    return load_calibration(path, cluster)


def each_calibrated(arguments: argparse.Namespace, clusters: Iterable[Cluster]) -> list[Cluster]:
    """Clusters, those of the own runs' device with what they said.

    Raises
    ------
    Misused
        where none is of that device
    """
    found = list(clusters)
    path = arguments.calibration
    if path is None or not found:
        return found
    from costmodel.catalogue.calibrations import device_of_calibration, load_calibration

    device = device_of_calibration(path)
    if all(one.device.name != device for one in found):
        others = ", ".join(dict.fromkeys(one.device.name for one in found))
        raise Misused(f"--calibration {path[:200]}: about {device}, which is none of what is tried: {others[:300]}")
    return [load_calibration(path, one) if one.device.name == device else one for one in found]


def not_applicable(command: str) -> str:
    """Why a command that estimates no step of a transformer takes no calibration, as an error's line."""
    return f"--calibration is what own runs say of transformers' steps: `costmodel {command}` estimates none, so it takes none"
