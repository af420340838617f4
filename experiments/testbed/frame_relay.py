"""A switch in user space that holds every frame back for the latency: what ``netem`` does, where the kernel has none.

``python frame_relay.py LATENCY DEVICE...`` in the switch's namespace. It takes whole frames off each device, waits,
and sends each to the device behind which its destination is, whose token bucket shapes it. TCP on both sides sees the
round trip that it would see on a long line. It ends when its input closes.
"""

from __future__ import annotations

import collections
import contextlib
import os
import select
import socket
import sys
import time

ALL_PROTOCOLS = 3
SOL_PACKET, PACKET_VNET_HDR, PACKET_IGNORE_OUTGOING = 263, 15, 23
SO_SNDBUFFORCE, SO_RCVBUFFORCE = 32, 33
BUFFER = 128_000_000  # frames wait there, and none is lost, for this process to be scheduled or for a token bucket
HEADER = 10  # struct virtio_net_hdr: checksums and segmentation still to be done travel along
LARGEST = 1 << 17
TICK = 0.2e-3  # frames are taken in handfuls, which costs a third of taking each as it comes


def open_device(name: str) -> socket.socket:
    """Open a raw socket for all that a device receives, and nothing that it sends."""
    port = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    port.setsockopt(SOL_PACKET, PACKET_VNET_HDR, 1)
    port.setsockopt(SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)
    port.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, BUFFER)
    port.setsockopt(socket.SOL_SOCKET, SO_SNDBUFFORCE, BUFFER)
    port.bind((name, ALL_PROTOCOLS))
    port.setblocking(False)
    return port


def relay(latency: float, ports: list[socket.socket], control: int) -> None:
    """Hold frames back and pass them on, until `control` closes.

    The destination's last byte of a MAC address is its port; what has no single destination goes to all others.
    """
    waiting: collections.deque[tuple[float, bytes, list[socket.socket]]] = collections.deque()
    others = {port: [other for other in ports if other is not port] for port in ports}
    alone = [[port] for port in ports]
    devices = {port.fileno(): port for port in ports}
    watched = [*devices, control]
    now = time.monotonic
    while True:
        if waiting:
            time.sleep(max(min(waiting[0][0] - now(), TICK), 0.0))
        ready = select.select(watched, (), (), 0.0 if waiting else None)[0]
        arrived = now() + latency
        for number in ready:
            if number == control:
                return
            port = devices[number]
            with contextlib.suppress(BlockingIOError):
                while True:
                    frame = port.recv(LARGEST)
                    shared = frame[HEADER] & 1
                    waiting.append((arrived, frame, others[port] if shared else alone[frame[HEADER + 5]]))
        while waiting and waiting[0][0] <= now():
            _, frame, receivers = waiting.popleft()
            for receiver in receivers:
                receiver.send(frame)


def main() -> None:
    """Relay between the devices named on the command line."""
    with contextlib.suppress(OSError):  # a frame that leaves late is time that its link won't get back
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(2))
    ports = [open_device(name) for name in sys.argv[2:]]
    print("ready", flush=True)
    relay(float(sys.argv[1]), ports, sys.stdin.fileno())


if __name__ == "__main__":
    main()
