//! `/proc/net/snmp` and `/proc/net/snmp6`.

/// The sum of UDP's `RcvbufErrors` over IPv4 and IPv6: datagrams dropped because a socket's receive buffer was full.
pub(crate) fn receive_buffer_errors(snmp: &str, snmp6: &str) -> u64 {
    const NAME: &str = "RcvbufErrors";
    let mut udp = snmp.lines().filter(|line| line.starts_with("Udp: "));
    let names = udp.next().unwrap_or_default().split_whitespace();
    let values = udp.next().unwrap_or_default().split_whitespace();
    let v4 = names.zip(values).find(|(name, _)| *name == NAME).map(|(_, value)| value);
    let v6 = snmp6.lines().find_map(|line| line.strip_prefix("Udp6RcvbufErrors")).map(str::trim);
    [v4, v6].into_iter().flatten().filter_map(|value| value.parse::<u64>().ok()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SNMP: &str = "\
Tcp: RtoAlgorithm RtoMin RtoMax MaxConn ActiveOpens
Tcp: 1 200 120000 -1 3
Udp: InDatagrams NoPorts InErrors OutDatagrams RcvbufErrors SndbufErrors InCsumErrors IgnoredMulti MemErrors
Udp: 9000 0 17 9017 17 0 0 0 0
UdpLite: InDatagrams NoPorts InErrors OutDatagrams RcvbufErrors SndbufErrors InCsumErrors IgnoredMulti MemErrors
UdpLite: 0 0 0 0 5 0 0 0 0
";

    #[test]
    fn sums_both_address_families() {
        let snmp6 = "Udp6InErrors \t0\nUdp6RcvbufErrors                \t4\n";
        assert_eq!(receive_buffer_errors(SNMP, ""), 17);
        assert_eq!(receive_buffer_errors(SNMP, snmp6), 21);
        assert_eq!(receive_buffer_errors("", ""), 0);
    }
}
