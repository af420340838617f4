r"""Parameter servers: what an exchange of gradients for parameters puts on the links, and how long it takes.

A worker pushes what it computed to :math:`S` servers, each of which holds a shard, and pulls the parameters back.
Links are full duplex. With *colocated* servers a server shares the machine and the link of a worker, and what the
two exchange stays on the machine.

The functions take any number of workers *active* in an exchange, so that one formula says what a synchronous step
costs (all are active) and how fast a worker gets through that comes alone.
"""

from __future__ import annotations

from costmodel.arithmetic import ops
from costmodel.formulas.quantities import Number
from costmodel.formulas.systems.data_parallel import exposed_exchange

ARGUMENTS = {"servers": "S", "active": "workers in the exchange a", "skew": "load of the busiest server over the mean s"}
"""What arguments mean in all formulas here that say nothing else of them."""


def kept_share(significant: Number, skipped: Number, inactive: Number) -> Number:
    r"""Share of the entries that is sent after the filters that drop entries.

    .. math:: f = s (1 - r) (1 - q)

    Independent filters: what one drops says nothing about what the others would.

    Parameters
    ----------
    significant : share :math:`s` of entries that changed by more than the threshold since they were last sent
    skipped : share :math:`r` that is skipped at random
    inactive : share :math:`q` whose weight is zero and stays so by the KKT conditions

    References
    ----------
    [li2014]_ section 3.6 and 5.1

    Examples
    --------
    >>> round(kept_share(1.0, 0.0, 0.93), 2)
    0.07
    """
    return significant * (1.0 - skipped) * (1.0 - inactive)


def wire_bytes(
    nbytes: Number, value_bytes: Number, key_bytes: Number, kept: Number, cached: Number, compression: Number,
) -> Number:  # fmt: skip
    r"""Bytes on the wire for values and the keys that say which entries they are.

    .. math:: \frac{n}{v} f \left( v c + k (1 - h) \right)

    Parameters
    ----------
    nbytes : values :math:`n` before filtering [bytes]
    value_bytes : of one value :math:`v`
    key_bytes : of one key :math:`k`; 0 for dense values, whose place says which they are
    kept : share :math:`f` of entries that is sent
    cached : share :math:`h` of keys that are not sent because the receiver holds the same list from before
    compression : bytes of a value after over before compression :math:`c`

    References
    ----------
    [li2014]_ section 3.6 (filters), 4.2 (key caching, compression)

    Examples
    --------
    Key caching halves the traffic of 64-bit keys with double values.

    >>> wire_bytes(8e9, 8.0, 8.0, 1.0, 1.0, 1.0) / wire_bytes(8e9, 8.0, 8.0, 1.0, 0.0, 1.0)
    0.5
    """
    return nbytes / value_bytes * kept * (value_bytes * compression + key_bytes * (1.0 - cached))


def skew_of_largest(nbytes: Number, servers: Number, largest: Number) -> Number:
    r"""Load of the busiest server over the mean, where a tensor stays whole on one server.

    .. math:: \max\left(1, \frac{S m}{n}\right)

    Parameters
    ----------
    nbytes : of all tensors :math:`n` [bytes]
    largest : the largest tensor that isn't split :math:`m` [bytes]

    Examples
    --------
    >>> skew_of_largest(553e6, 8.0, 411e6) > 5.9
    True
    """
    return ops.maximum(1.0, servers * largest / nbytes)


def worker_bytes(
    sent: Number, answered: Number, active: Number, servers: Number, skew: Number, colocated: Number,
) -> Number:  # fmt: skip
    r"""Bytes that leave the busiest machine with a worker in one exchange.

    .. math:: n \left(1 - \frac{c s}{S}\right) + c (a - 1) \frac{s n'}{S}

    Parameters
    ----------
    sent : what a worker sends :math:`n` [bytes]
    answered : what the servers send to each worker :math:`n'` [bytes]
    colocated : 1 if servers share the workers' machines, else 0: :math:`c`

    Examples
    --------
    >>> worker_bytes(1.0, 1.0, 4.0, 4.0, 1.0, 1.0), worker_bytes(1.0, 1.0, 4.0, 4.0, 1.0, 0.0)
    (1.5, 1.0)
    """
    shard = skew / servers
    return sent * (1.0 - colocated * shard) + colocated * (active - 1.0) * answered * shard


def server_bytes(nbytes: Number, active: Number, servers: Number, skew: Number) -> Number:
    r"""Bytes that the busiest server takes from all workers, or sends to them: incast.

    .. math:: \frac{a s n}{S}

    Parameters
    ----------
    nbytes : of one worker :math:`n` [bytes]

    Examples
    --------
    >>> server_bytes(1e9, 8.0, 2.0, 1.0)
    4000000000.0
    """
    return active * skew * nbytes / servers


def exchange_time(
    push: Number, pull: Number, active: Number, servers: Number, skew: Number, colocated: Number,
    bandwidth: Number, server_bandwidth: Number, update_bandwidth: Number, latency: Number,
    partitions: Number,
) -> Number:  # fmt: skip
    r"""Time in which so many workers push and pull at once [s].

    .. math:: T = 2 \alpha + \max(t_w, t_s) + \frac{\min(t_w, t_s)}{c}

    The worker's link (:math:`t_w`) and the server (:math:`t_s`: its link, or its summing, whichever is slower)
    are two stages of a pipeline through which a message goes in :math:`c` partitions. With many partitions the slower
    stage alone counts; a message that is not split is stored and forwarded, and both count. With colocated servers
    both stages' bytes are on one link, so that all :math:`S = W` machines take the time of a ring all-reduce.

    Parameters
    ----------
    push, pull : what a worker sends and receives [bytes]
    active : workers in the exchange
    servers : how many
    skew : load of the busiest server over the mean
    colocated : 1 if servers share the workers' machines, else 0
    bandwidth : of a worker's link, each direction [bytes/s]
    server_bandwidth : of a server's link, each direction [bytes/s]; of no effect with colocated servers
    update_bandwidth : at which a server sums or applies what it received [bytes/s]
    latency : :math:`\alpha` from a worker to a server [s]
    partitions : messages that a push is split into :math:`c`

    References
    ----------
    [jiang2020]_ table 1; the pipeline's filling is derived

    Examples
    --------
    Eight workers and eight colocated servers: 2 (n - 1) M / (n B).

    >>> exchange_time(1e9, 1e9, 8.0, 8.0, 1.0, 1.0, 1e9, 1e9, 1e30, 0.0, 1.0)
    1.75

    Two servers for eight workers of the same links: n M / (k B).

    >>> exchange_time(1e9, 1e9, 8.0, 2.0, 1.0, 0.0, 1e9, 1e9, 1e30, 0.0, 1e9)
    4.000000001
    """
    out = worker_bytes(push, pull, active, servers, skew, colocated)
    back = worker_bytes(pull, push, active, servers, skew, colocated)
    worker = ops.maximum(out, back) / bandwidth
    link = (1.0 - colocated) * server_bytes(ops.maximum(push, pull), active, servers, skew) / server_bandwidth
    server = ops.maximum(link, server_bytes(push, active, servers, skew) / update_bandwidth)
    return 2.0 * latency + ops.maximum(worker, server) + ops.minimum(worker, server) / partitions


def requests_time(active: Number, request_time: Number) -> Number:
    r"""Time of servers with the requests of all workers, one after another [s]: incast that no bandwidth cures.

    .. math:: a\, t_r

    Parameters
    ----------
    request_time : of a server with one worker's pushes and pulls of a step, its update between them :math:`t_r` [s]

    Assumes that every worker has requests for every server, which are as many on more servers, only smaller.

    References
    ----------
    [jiang2020]_ figures 15 and 16: with a server for each worker machine, native servers take 10 to 14 ms more for each

    Examples
    --------
    >>> requests_time(32.0, 0.0125)
    0.4
    """
    return active * request_time


def servers_to_match_all_reduce(workers: Number) -> Number:
    r"""Servers below which incast makes separate servers slower than an all-reduce among the workers.

    .. math:: \frac{n M}{k B} = \frac{2 (n - 1) M}{n B} \;\Rightarrow\; k = \frac{n^2}{2 (n - 1)}

    Parameters
    ----------
    workers : :math:`n`, at least 2

    References
    ----------
    [jiang2020]_ section 2.3: about half as many as workers

    Examples
    --------
    >>> round(servers_to_match_all_reduce(64.0), 1)
    32.5
    """
    return workers * workers / (2.0 * (workers - 1.0))


def exposed_time(alone: Number, compute_time: Number, overlap: Number) -> Number:
    """Time of an exchange that computing doesn't hide: `exposed_exchange` beside a share of it, begun at once [s].

    Parameters
    ----------
    alone : time of the exchange with nothing beside it [s]
    compute_time : of the step [s]
    overlap : share of the computing during which the exchange can run

    Examples
    --------
    >>> exposed_time(0.5, 0.4, 0.5), exposed_time(0.1, 0.4, 0.5)
    (0.3, 0.0)
    """
    return exposed_exchange(overlap * compute_time, 0.0, alone)
