#!/usr/bin/python3
"""Prints the ICRC that scapy computes for each RoCEv2 packet.

usage: icrc.py FILE      a packet per line, in hexadecimal, from IP header to ICRC

scapy 2.5 (Debian 12) supports the ICRC over IPv4 only; later versions support IPv6 too. For 2.5, its routine
is given an IPv6 header with the names of IPv4's fields: the IPv6 fields that are replaced by ones are defined
below, and everything else is scapy's, from dissecting the packet to the CRC.
"""
import sys

try:
    from scapy.contrib import roce
    from scapy.layers.inet import IP
    from scapy.layers.inet6 import IPv6
except ImportError as error:
    sys.exit(f"scapy is missing ({error}): run `make setup`")


class IPv6WithNamesOfIPv4(IPv6):
    """An IPv6 header to scapy 2.5's routine for the ICRC, which sets fields of IPv4 to ones."""

    def setfieldval(self, attr, val):
        if attr == "tos":
            super().setfieldval("tc", 0xFF)
            super().setfieldval("fl", 0xFFFFF)
        elif attr == "ttl":
            super().setfieldval("hlim", 0xFF)
        elif attr != "chksum":  # IPv6 has none
            super().setfieldval(attr, val)


def icrc(packet):
    """The ICRC of a packet by scapy, as on the wire."""
    if packet[0] >> 4 == 4:
        ip = IP(packet)
    elif hasattr(roce, "IPv6"):
        ip = IPv6(packet)
    else:
        roce.IP = (IP, IPv6WithNamesOfIPv4)
        ip = IPv6WithNamesOfIPv4(packet)
    return ip[roce.BTH].compute_icrc(packet)


def main(path):
    with open(path, encoding="ascii") as packets:
        for line in packets:
            print(icrc(bytes.fromhex(line)).hex())


if __name__ == "__main__":
    main(sys.argv[1])
