"""Systems of servers: what share of a link they reach, and what each worker machine's requests cost a server."""

from __future__ import annotations

import dataclasses

from costmodel.catalogue.files import table_of
from costmodel.description.cluster import Cluster, Level
from costmodel.description.framework import ServerSystem
from costmodel.text.checks import choice

FILE = "server_systems.toml"


def bandwidth_of(system: ServerSystem, level: Level) -> float:
    """What a system reaches of one rank's share of a link, each way [bytes/s].

    Parameters
    ----------
    system : of `server_system`
    level : of a cluster
    """
    return system.link_share * (level.line_rate or level.bandwidth) / level.oversubscription


def between_nodes(system: ServerSystem, cluster: Cluster) -> Cluster:
    """A cluster with what a system reaches on every level but the innermost.

    Parameters
    ----------
    system : of `server_system`
    cluster : whose links it uses
    """
    outer = [
        dataclasses.replace(level, bandwidth=system.link_share * (level.line_rate or level.bandwidth))
        for level in cluster.levels[1:]
    ]
    return dataclasses.replace(cluster, levels=(cluster.levels[0], *outer))


def server_systems() -> tuple[str, ...]:
    """Names of the systems."""
    return tuple(table_of(FILE))


def server_system(name: str, field: str = "server_system") -> ServerSystem:
    """Constants of a system of servers.

    Parameters
    ----------
    name : of `server_systems`
    field : that a refusal names

    Raises
    ------
    InvalidValue
        for another name

    References
    ----------
    [jiang2020]_ figures 15 and 16

    Examples
    --------
    >>> server_system("byteps").link_share, server_system("tensorflow-parameter-server").request_time
    (0.9, 0.0141)
    """
    entry = table_of(FILE)[choice(field, name, server_systems())]
    fields = {field: entry[field] for field in ServerSystem._fields if field != "name"}
    return ServerSystem(name=name, **fields)
