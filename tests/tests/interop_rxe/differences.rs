//! Where the messages of our connection manager differ from rdma_rxe's, and why. `docs/differences-from-rxe.md` is
//! generated from this list.

use std::fmt;

/// A field that differs in every message that has it; or, where a kind of messages is named, in some.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Difference {
    /// In which messages; empty for all.
    pub(crate) kind: &'static str,
    pub(crate) header: &'static str,
    pub(crate) field: &'static str,
    /// What ours has, and what rdma_rxe's has: a value or a range; empty for anything.
    pub(crate) ours: &'static str,
    pub(crate) theirs: &'static str,
    why: &'static str,
}

/// As a row of the document.
impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |value: &'static str, other| if value.is_empty() { other } else { value };
        let Self { kind, header, field, ours, theirs, why } = self;
        let (ours, theirs) = (shown(ours, "any"), shown(theirs, "any"));
        let kind = if kind.is_empty() { "all" } else { kind.trim_start_matches("CM ") };
        write!(f, "| {kind} | {header} | `{field}` | {ours} | {theirs} | {why} |")
    }
}

#[rustfmt::skip]
pub(crate) const DIFFERENCES: &[Difference] = &[
    Difference {
        kind: "", header: "BTH", field: "ack_request", ours: "0", theirs: "1",
        why: "datagrams are not acknowledged (9.8.3); rdma_rxe does not set it in the datagrams of programs either",
    },
    Difference {
        kind: "", header: "IPv4", field: "identification", ours: "0x0000 to 0x003f", theirs: "",
        why: "it identifies fragments, and these packets may not be fragmented (RFC 6864, 4.1); the kernel leaves it zero for a socket, and counts the packets that leave in one batch",
    },
    Difference {
        kind: "", header: "UDP", field: "checksum", ours: "", theirs: "0x0000",
        why: "the kernel computes it for a socket; rdma_rxe omits it because of the ICRC",
    },
    Difference {
        kind: "CM SIDR_REP", header: "IPv4", field: "dscp", ours: "24", theirs: "0",
        why: "a response has the traffic class of its request (13.5.4); rdma_rxe's has it over IPv6 only",
    },
];

/// Fields that differ from message to message, and what they are.
#[rustfmt::skip]
pub(crate) const VARIABLE: &[(&str, &[&str])] = &[
    ("Ethernet addresses",                       &["Ethernet.destination", "Ethernet.source"]),
    ("communication, request and transaction IDs", &["local_comm_id", "remote_comm_id", "request_id", "MAD.transaction"]),
    ("GUIDs of the devices",                     &["local_ca_guid"]),
    ("QPNs",                                     &["local_qpn", "remote_qpn", "CM SIDR_REP.qpn"]),
    ("PSNs",                                     &["BTH.psn", "starting_psn"]),
    ("random flow labels",                       &["primary_flow_label", "IPv6.flow_label"]),
    ("the client's port, chosen by the client",   &["RDMA-CM IP.source_port"]),
    ("source ports that spread flows (A17.3.1.1)", &["UDP.source_port"]),
    ("checksums, each of which is correct",       &["IPv4.checksum", "ICRC.icrc"]),
];

/// Whether a field is one of those.
pub(crate) fn is_variable(header: &str, field: &str) -> bool {
    let full = format!("{header}.{field}");
    let mut names = VARIABLE.iter().flat_map(|(_, names)| names.iter());
    names.any(|name| *name == full || header.starts_with("CM ") && *name == field)
}
