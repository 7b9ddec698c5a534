//! Variables of UCX, libfabric, Open MPI and NCCL that keep them from using Ferroce's devices.
//!
//! `ferroce run` sets those it needs and leaves variables of the user unchanged.

use crate::doctor::finding::Finding;
use crate::doctor::system::System;
use crate::environment::{is_set_by_user, selects};

/// Transports of UCX that use libibverbs without vendor extensions, and the aliases that include them (UCX's
/// documentation of UCX_TLS).
const UCX_TRANSPORTS: [&str; 8] = ["all", "ib", "rc", "rc_v", "rc_verbs", "ud", "ud_v", "ud_verbs"];

struct Rule {
    id: &'static str,
    variable: &'static str,
    /// Whether a value allows Ferroce's devices.
    allows: fn(&str, &System) -> bool,
    effect: &'static str,
    fix: &'static str,
}

const RULES: [Rule; 9] = [
    Rule {
        id: "messaging.ucx_tls",
        variable: "UCX_TLS",
        allows: |value, _| selects(value, &UCX_TRANSPORTS),
        effect: "UCX does not use RDMA devices",
        fix: "unset UCX_TLS: `ferroce run` sets it to rc_verbs,ud_verbs,self",
    },
    Rule {
        id: "messaging.ucx_devices",
        variable: "UCX_NET_DEVICES",
        allows: |value, system| value == "all" || names_device(value, system),
        effect: "UCX uses only these devices, and none of them is Ferroce's",
        fix: "unset UCX_NET_DEVICES, or name a device and its port, such as ferroce_eth0:1",
    },
    Rule {
        id: "messaging.libfabric",
        variable: "FI_PROVIDER",
        allows: |value, _| selects(value, &["verbs", "verbs;ofi_rxm", "ofi_rxm", "ofi_rxd"]),
        effect: "libfabric does not use its verbs provider",
        fix: "unset FI_PROVIDER, or set it to verbs",
    },
    Rule {
        id: "messaging.openmpi_pml",
        variable: "OMPI_MCA_pml",
        allows: |value, _| selects(value, &["ucx", "cm"]),
        effect: "Open MPI does not use UCX, and so no RDMA device",
        fix: "unset OMPI_MCA_pml: `ferroce run` sets it to ucx",
    },
    Rule {
        id: "messaging.openmpi_osc",
        variable: "OMPI_MCA_osc",
        allows: |value, _| selects(value, &["ucx"]),
        effect: "one-sided operations of Open MPI do not use UCX",
        fix: "unset OMPI_MCA_osc: `ferroce run` sets it to ucx,sm",
    },
    Rule {
        id: "messaging.openmpi_btl",
        variable: "OMPI_MCA_btl",
        allows: |value, _| value.starts_with('^') || selects(value, &["openib", "uct", "ofi"]),
        effect: "if Open MPI falls back from UCX, it uses only these transports, such as TCP",
        fix: "unset OMPI_MCA_btl, and check with `mpirun --mca pml_base_verbose 10` that UCX is used",
    },
    Rule {
        id: "messaging.nccl_disabled",
        variable: "NCCL_IB_DISABLE",
        allows: |value, _| value == "0",
        effect: "NCCL does not use RDMA devices",
        fix: "unset NCCL_IB_DISABLE",
    },
    Rule {
        id: "messaging.nccl_device",
        variable: "NCCL_IB_HCA",
        allows: |value, system| {
            value.starts_with('^') || names_device(value.trim_start_matches('='), system)
        },
        effect: "NCCL uses only these devices, and none of them is Ferroce's",
        fix: "unset NCCL_IB_HCA, or name a device of `ferroce devices`",
    },
    Rule {
        id: "messaging.nccl_net",
        variable: "NCCL_NET",
        allows: |value, _| value.eq_ignore_ascii_case("IB"),
        effect: "NCCL uses this network plugin and not RDMA devices",
        fix: "unset NCCL_NET, or set it to IB",
    },
];

pub(super) fn check(system: &System) -> Vec<Finding> {
    let outer = system.variable("FERROCE_TOLD").unwrap_or_default();
    let of = |rule: &Rule| {
        let value = system.variable(rule.variable)?;
        if !is_set_by_user(rule.variable, value, outer) {
            return None;
        }
        let set = format!("{}={value}", rule.variable);
        let finding = match (rule.allows)(value, system) {
            true => Finding::note(
                rule.id,
                format!(
                    "{set} is set and allows Ferroce's devices; `ferroce run` leaves it as it is"
                ),
            ),
            false => Finding::warning(rule.id, format!("{set}: {}", rule.effect)).fix(rule.fix),
        };
        Some(finding.about(rule.variable))
    };
    let findings: Vec<_> = RULES.iter().filter_map(of).collect();
    if findings.is_empty() {
        return vec![Finding::ok(
            "messaging.variables",
            "no variable keeps UCX, libfabric, Open MPI or NCCL from using Ferroce's devices",
        )];
    }
    findings
}

fn names_device(list: &str, system: &System) -> bool {
    list.split(',').any(|name| {
        let name = name.split(':').next().unwrap_or(name).trim();
        system
            .devices
            .iter()
            .any(|(device, _)| device == name || (!name.is_empty() && device.starts_with(name)))
    })
}
