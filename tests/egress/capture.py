# SPDX-License-Identifier: Apache-2.0
"""
Captures every packet on every device of a namespace and counts packets and payload bytes for each
source and destination. TCP bytes count once, also when the kernel retransmits them.
"""

import select
import socket
import struct
import threading

ETH_P_ALL = 3
SOL_PACKET, PACKET_STATISTICS = 263, 6
OUTGOING = 4
AT_ONCE = 1 << 16  # packets; more may come as fast as they are read
PROTOCOLS = {1: "icmp", 6: "tcp", 17: "udp", 58: "icmp6"}


def parse(data, kind):
    """Returns (protocol, source, port, destination, port, payload) of an Ethernet frame."""
    if kind == 0x0800:
        size, proto = (data[14] & 15) * 4, data[23]
        total = struct.unpack(">H", data[16:18])[0]
        src, dst, at = socket.inet_ntoa(data[26:30]), socket.inet_ntoa(data[30:34]), 14 + size
        end = 14 + total if total else len(data)
    elif kind == 0x86dd:
        proto = data[20]
        src, dst, at = socket.inet_ntop(socket.AF_INET6, data[22:38]), socket.inet_ntop(socket.AF_INET6, data[38:54]), 54
        end = 54 + struct.unpack(">H", data[18:20])[0]
    else:
        return (f"ethertype {kind:#06x}", "", 0, "", 0, data[14:])
    name = PROTOCOLS.get(proto, f"protocol {proto}")
    if proto not in (6, 17):
        return (name, src, 0, dst, 0, data[at:end])
    sport, dport = struct.unpack(">HH", data[at:at + 4])
    start = at + ((data[at + 12] >> 4) * 4 if proto == 6 else 8)
    return (name, src, sport, dst, dport, data[start:end])


def sequence(data, kind):
    """Returns (sequence number, SYN flag) of a TCP packet."""
    at = 14 + (data[14] & 15) * 4 if kind == 0x0800 else 54
    return struct.unpack(">I", data[at + 4:at + 8])[0], data[at + 13] & 2


class Capture:
    def __init__(self, ns):
        with ns:
            self.s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
        self.s.setsockopt(socket.SOL_SOCKET, 33, 64 << 20)  # SO_RCVBUFFORCE: no packet may be lost
        self.lock, self.packets, self.lost = threading.Lock(), {}, 0
        self.next = {}  # next expected sequence number of each TCP stream
        self.marks = {}  # payload to look for -> number of times seen
        threading.Thread(target=self.watch, daemon=True).start()

    def watch(self):
        while True:
            select.select([self.s], [], [])
            with self.lock:
                self.catch_up(64)

    def catch_up(self, most=AT_ONCE):
        """Counts the packets that wait in the socket, under the lock: on a busy host, watch() may
        be late."""
        for _ in range(most):
            try:
                data, (device, kind, direction, _, _) = self.s.recvfrom(1 << 17, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return
            self.count(data, device, kind, direction)

    def count(self, data, device, kind, direction):
        if direction == OUTGOING and device == "lo":
            return  # seen again when it comes in
        try:
            proto, src, sport, dst, dport, payload = parse(data, kind)
        except (IndexError, struct.error):
            proto, src, sport, dst, dport, payload = "unreadable", "", 0, "", 0, data
        key = (device, "out" if direction == OUTGOING else "in", proto, src, sport, dst, dport)
        count, size = self.packets.get(key, (0, 0))
        self.packets[key] = (count + 1, size + self.fresh(key, data, kind, payload))
        for mark in self.marks:
            self.marks[mark] += mark in payload

    def fresh(self, key, data, kind, payload):
        """Returns the number of bytes of a packet that are not a retransmission."""
        if key[2] != "tcp":
            return len(payload)
        first, syn = sequence(data, kind)
        if syn or key not in self.next:
            self.next[key] = first + (1 if syn else 0)
        behind = (first + len(payload) - self.next[key] + (1 << 31)) % (1 << 32) - (1 << 31)
        self.next[key] += max(behind, 0)
        return min(max(behind, 0), len(payload))

    def take(self):
        """Returns [[device, direction, protocol, source, port, destination, port, packets,
        bytes], ...] since the last call."""
        _, lost = struct.unpack("II", self.s.getsockopt(SOL_PACKET, PACKET_STATISTICS, 8))
        with self.lock:
            self.catch_up()
            self.lost += lost
            packets, self.packets = self.packets, {}
        return [[*key, *value] for key, value in packets.items()]

    def seen(self, mark):
        """Returns the number of packets with this payload."""
        with self.lock:
            self.catch_up()
            return self.marks[mark]
