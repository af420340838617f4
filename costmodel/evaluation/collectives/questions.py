"""How long a collective takes on a cluster, as asked by name, checked at the door."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from costmodel.catalogue.clusters import ClusterLike, cluster_of
from costmodel.catalogue.software import framework_on
from costmodel.description.cluster import Cluster
from costmodel.description.framework import Framework
from costmodel.description.topology import Group
from costmodel.evaluation.collectives import nccl_solver as tuner
from costmodel.evaluation.collectives import rccl_solver as mesh_tuner
from costmodel.evaluation.collectives.answer import OPERATIONS, Alternative, CollectiveTime
from costmodel.evaluation.collectives.libraries import LIBRARIES, LIBRARY_NAMES, MAKERS, WITHOUT, library_of
from costmodel.evaluation.collectives.place import TEXTBOOK, GroupPlacement
from costmodel.evaluation.prices import PRICES, price_of
from costmodel.formulas.network import collectives, nccl
from costmodel.text.checks import choice, flag, plain, real, text
from costmodel.text.errors import InvalidValue, NotModelled

LAUNCHERS = ("native", "pytorch")
PROCESSORS = ("intel", "amd")
LATEST = max(nccl.RELEASES)


def collective_time(
    op: str,
    nbytes: float,
    group: int | Group,
    cluster: ClusterLike,
    algorithm: str = "auto",
    *,
    library: str = "auto",
    version: str | tuple[int, int] = LATEST,
    launcher: str = "native",
    nvls: bool = True,
    sharp: bool = False,
    processor: str = "intel",
    framework: Framework | str | None = None,
    sharded: bool = False,
) -> CollectiveTime:
    """Time of a collective, alone on the network but for groups like its own; or, of a framework, inside its steps.

    A benchmark calls a library over and over with nothing beside it, and its tuner decides. Inside a step the same library
    is launched by a framework among passes and other exchanges: `estimate`, `ledger` and `simulate` price every transaction
    by the same model as straight lines over its size (`formulas.network.collectives`), with the launch and the share of the
    links that calibration found for the framework; ``framework=...`` asks for that price, and says which algorithm and
    protocol it is.

    Parameters
    ----------
    op : one of `OPERATIONS`; ``"send"`` is to the neighbour in the group
    nbytes : buffer: what each rank holds before a reduction, after a gather, sends in an all-to-all [bytes]
    group : members that are neighbours, or a `Group`
    cluster : on which, or its name; of one without a size as many GPUs as the group has
    algorithm : ``"auto"``, or one that the library has
    library : ``"nccl"``, ``"rccl"``, ``"textbook"`` (alpha-beta, without launch cost), or ``"auto"``: NCCL on NVIDIA's
        GPUs and RCCL on AMD's from MI300X on, unless only the textbook has the algorithm
    version : of NCCL, as ``"2.21"``; the newest table that is not newer counts. RCCL has one, the textbook none
    launcher : ``"native"`` code, or ``"pytorch"``, called and waited for one by one; not of the textbook
    nvls : whether NVLink switches may reduce (NCCL_NVLS_ENABLE); they do for NCCL alone
    sharp : whether the network's switches reduce, which they do for NCCL alone
    processor : of the hosts, ``"intel"`` or ``"amd"``; the textbook knows no hosts
    framework : of whose step, or its name in the catalogue; None: alone, as a benchmark calls it
    sharded : with a framework: whether it gathers or scatters states that ZeRO shards, tensor by tensor

    Returns
    -------
    CollectiveTime

    Raises
    ------
    InvalidValue
        naming the field, its value and what was expected
    NotModelled
        where the library has no such algorithm there, or doesn't know what is asked of it

    Examples
    --------
    >>> from costmodel import Group, load_cluster
    >>> cluster = load_cluster("dgx-h100", gpus=64)
    >>> alone = collective_time("all-reduce", 2**30, 64, cluster)
    >>> inside = collective_time("all-reduce", 2**30, 64, cluster, framework="megatron-core")
    >>> alone.library, inside.library
    ('nccl', 'megatron-core')

    >>> from costmodel import load_cluster
    >>> answer = collective_time("all-reduce", 2**30, 8, load_cluster("mi300x-8"))
    >>> answer.library, answer.algorithm, answer.protocol
    ('rccl', 'ring', 'simple')
    """
    cluster = _holding(cluster, group)
    place, release = _asked(op, nbytes, group, cluster, OPERATIONS, version, nvls, sharp, processor)
    text("algorithm", algorithm)
    flag("sharded", sharded)
    if framework is not None:
        unknown = {
            "algorithm": algorithm != "auto" and algorithm, "library": library != "auto" and library,
            "version": release != LATEST and version, "launcher": launcher != "native" and launcher, "sharp": sharp,
        }  # fmt: skip
        _refuse(unknown, f"framework={framework!r}: a step takes the fastest at rates that were fitted")
        return in_a_step(place, framework_on(cluster, framework), sharded)
    if sharded:
        raise InvalidValue("sharded", sharded, "a framework whose sharded states they are")
    choice("library", library, ("auto", *LIBRARIES))
    choice("launcher", launcher, LAUNCHERS)
    own = library_of(cluster.device.architecture)
    if library not in ("auto", "textbook", own):
        raise NotModelled(f"library={library!r} on {cluster.device.name}: {MAKERS[library]}")
    if library == "auto":
        only_textbook = algorithm in TEXTBOOK[op] and algorithm not in LIBRARY_NAMES[own]
        library = "textbook" if only_textbook else own
    unknown = {"sharp": sharp, "version": release != LATEST and version}
    if library == "textbook":
        unknown |= {"launcher": launcher != "native" and launcher}
    if library != "nccl":
        _refuse(unknown, f"library={library!r}: {WITHOUT[library]}")
    if place.ranks == 1.0 or place.nbytes == 0.0:
        return _nothing(place, op, algorithm, library)
    if library == "textbook":
        return place.answer(place.textbook(), algorithm, library, "")
    if library == "rccl":
        return place.answer(place.rccl(launcher, processor == "amd"), algorithm, library, "RCCL")
    found = place.nccl(release, launcher, nvls, sharp, processor == "amd")
    return place.answer(found, algorithm, library, f"NCCL {release[0]}.{release[1]}")


def _refuse(asked: Mapping[str, object], beside: str) -> None:
    """Raise `NotModelled` for the first that was asked, which isn't known beside something else."""
    for name, value in asked.items():
        if value:
            raise NotModelled(f"{name}={value!r} with {beside}")


def _nothing(place: GroupPlacement, op: str, algorithm: str, library: str) -> CollectiveTime:
    """The answer where nothing is exchanged."""
    if algorithm not in ("auto", *(TEXTBOOK[op] if library == "textbook" else LIBRARY_NAMES[library])):
        raise NotModelled(f"algorithm={algorithm!r}: {library} has none of that name for {op}")
    nothing = "one rank has nothing to exchange" if place.ranks == 1.0 else "there are no bytes to exchange"
    return place.answer([Alternative(algorithm="none", protocol="", time=0.0)], "none", library, nothing)


def in_a_step(place: GroupPlacement, framework: Framework, sharded: bool) -> CollectiveTime:
    """The price of a collective inside a framework's steps.

    Parameters
    ----------
    place : the question
    framework : of whose step
    sharded : whether it gathers or scatters states that ZeRO shards
    """
    if place.op not in PRICES:
        raise NotModelled(f"op={place.op!r} with framework={framework.name!r}: a step has {', '.join(PRICES)}")
    if sharded and place.op not in ("all-gather", "reduce-scatter"):
        raise InvalidValue("sharded", sharded, f"all-gather or reduce-scatter, not {place.op}")
    asked = place.nbytes, place.ranks, place.stride, place.network, framework.numbers()
    if place.ranks == 1.0 or place.nbytes == 0.0:
        nothing = Alternative(algorithm="none", protocol="", time=0.0)
        return place.answer([nothing], "none", framework.name, f"a step of {framework.name}")
    time = float(price_of(place.op, "shard" if sharded else "all")(*asked))
    if place.op in ("all-to-all", "send"):
        found = [Alternative(algorithm="point-to-point", protocol="simple", time=time)]
    else:
        found = _of_a_step(place, framework, sharded, time)
    return place.answer(found, "auto", framework.name, f"a step of {framework.name}")


def _of_a_step(place: GroupPlacement, framework: Framework, sharded: bool, time: float) -> list[Alternative]:
    """The algorithms and protocols that a step's price is the best of, the rest of the price the same for all."""
    software = framework.numbers()
    links = collectives.group_links(place.ranks, place.stride, place.network, software)
    nbytes = place.nbytes * place.ranks / (place.ranks - 1.0) if place.op == "reduce" else place.nbytes
    summed = place.op == "all-reduce"
    half, gathered = collectives.halves(nbytes, links), collectives.gathering_rings(nbytes, links)
    ring = half if summed else gathered
    rings = {("ring", "ll"): ring.ll, ("ring", "ll128"): ring.ll128, ("ring", "simple"): ring.simple}
    if summed:
        rings |= {("tree", "ll128"): half.low_tree, ("tree", "simple"): half.tree}
    least = min(rings.values())
    factor = 2.0 if place.op == "all-reduce" else 1.0 / software.network.sharding_quality if sharded else 1.0
    return [
        Alternative(algorithm=algorithm, protocol=protocol, time=float(time + factor * (one - least)))
        for (algorithm, protocol), one in rings.items()
        if one < collectives.NEVER
    ]


def expected_by_nccl(
    op: str, nbytes: float, group: int | Group, cluster: Cluster, *, version: str | tuple[int, int] = LATEST,
    nvls: bool = True, sharp: bool = False, processor: str = "intel",
) -> list[tuner.Candidate]:  # fmt: skip
    """What NCCL's own model says of every algorithm and protocol, without what measurements add, the one it runs first.

    Parameters
    ----------
    op : one that NCCL's tuner decides on
    nbytes : buffer [bytes]
    group, cluster : at least two ranks, on NVIDIA's GPUs
    version, nvls, sharp, processor : as of `collective_time`

    Returns
    -------
    list of Candidate
        with their times [s]

    Raises
    ------
    InvalidValue
        naming the field, its value and what was expected
    NotModelled
        on other GPUs than NVIDIA's
    """
    place, release = _asked(op, nbytes, group, cluster, tuner.OPERATIONS, version, nvls, sharp, processor)
    if cluster.device.architecture not in nccl.FAMILIES:
        raise NotModelled(f"NCCL on {cluster.device.name}: it runs on NVIDIA's GPUs")
    if place.ranks == 1.0:
        raise InvalidValue("group", group, "at least two ranks: one has nothing to exchange")
    return tuner.candidates(op, place.nbytes, place.communicator(nvls, sharp, processor == "amd"), release)


def expected_by_rccl(
    op: str, nbytes: float, group: int | Group, cluster: Cluster, *, processor: str = "intel"
) -> list[tuner.Candidate]:
    """What RCCL's own model and its links say of every algorithm and protocol, the one it runs first.

    Parameters
    ----------
    op : one that RCCL's tuner decides on
    nbytes : buffer [bytes]
    group, cluster : at least two ranks, on AMD's GPUs from MI300X on
    processor : as of `collective_time`

    Returns
    -------
    list of Candidate
        with their times [s], without what measurements add

    Raises
    ------
    InvalidValue
        naming the field, its value and what was expected
    NotModelled
        on other GPUs
    """
    place, _ = _asked(op, nbytes, group, cluster, tuner.OPERATIONS, LATEST, True, False, processor)
    if library_of(cluster.device.architecture) != "rccl":
        raise NotModelled(f"RCCL on {cluster.device.name}: {MAKERS['rccl']}")
    if place.ranks == 1.0:
        raise InvalidValue("group", group, "at least two ranks: one has nothing to exchange")
    return mesh_tuner.candidates(op, place.nbytes, place.mesh(processor == "amd"))


def _holding(cluster: ClusterLike, group: int | Group) -> Cluster:
    """A cluster; of one that is named as many GPUs as the group spans, if it has fewer."""
    found = cluster_of(cluster)
    members = group if isinstance(group, Group) else Group(ranks=plain(group))
    return found if isinstance(cluster, Cluster) else found.with_gpus(max(found.gpus or 1, members.ranks))


def _asked(
    op: str, nbytes: float, group: int | Group, cluster: ClusterLike, operations: tuple[str, ...],
    version: str | tuple[int, int], nvls: bool, sharp: bool, processor: str,
) -> tuple[GroupPlacement, tuple[int, int]]:  # fmt: skip
    """The question and the release of NCCL, checked."""
    choice("op", op, operations)
    size = real("nbytes", plain(nbytes), 0.0, 1e18)
    members = group if isinstance(group, Group) else Group(ranks=plain(group))
    cluster = cluster_of(cluster)
    choice("processor", processor, PROCESSORS)
    flag("nvls", nvls)
    flag("sharp", sharp)
    return GroupPlacement(op, size, members, cluster), _version(version)


def _version(version: str | Sequence[str | int]) -> tuple[int, int]:
    parts = version.split(".") if isinstance(version, str) else version
    known = min(nccl.RELEASES)
    try:
        found = (int(parts[0]), int(parts[1]))
    except (ValueError, LookupError, TypeError, OverflowError):
        raise InvalidValue("version", version, "a release of NCCL, as '2.21'") from None
    if found < known:
        raise InvalidValue("version", version, f"NCCL {known[0]}.{known[1]} or later")
    return found
