//! What /proc and /sys tell about the kernel's limits, this process's rights, and its namespaces.

use std::fs;

/// Bits of the capability sets (capabilities(7)).
pub(in crate::doctor) const NET_ADMIN: u32 = 12;
pub(in crate::doctor) const NET_RAW: u32 = 13;

/// A resource limit; `None` is unlimited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::doctor) struct Limit {
    pub(in crate::doctor) soft: Option<u64>,
    pub(in crate::doctor) hard: Option<u64>,
}

/// The kernel and this process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::doctor) struct Kernel {
    pub(in crate::doctor) user: u32,
    pub(in crate::doctor) release: String,
    /// `net.core.rmem_max` and `wmem_max`, if visible: other network namespaces than the first hide them.
    pub(in crate::doctor) rmem_max: Option<u64>,
    pub(in crate::doctor) wmem_max: Option<u64>,
    /// The effective capabilities.
    pub(in crate::doctor) capabilities: u64,
    pub(in crate::doctor) files: Option<Limit>,
    pub(in crate::doctor) locked: Option<Limit>,
    /// Whether this process is in the network namespace of process 1, if that can be seen.
    pub(in crate::doctor) first_network: Option<bool>,
    /// Whether it is in the first user namespace.
    pub(in crate::doctor) first_user: Option<bool>,
}

impl Kernel {
    pub(super) fn read() -> Self {
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let limits = fs::read_to_string("/proc/self/limits").unwrap_or_default();
        let sysctl = |name: &str| {
            fs::read_to_string(format!("/proc/sys/net/core/{name}")).ok()?.trim().parse().ok()
        };
        let namespace = |process: &str| fs::read_link(format!("/proc/{process}/ns/net")).ok();
        Self {
            user: field(&status, "Uid:")
                .and_then(|text| text.split_whitespace().nth(1)?.parse().ok())
                .unwrap_or(0),
            release: fs::read_to_string("/proc/sys/kernel/osrelease")
                .unwrap_or_default()
                .trim()
                .to_owned(),
            rmem_max: sysctl("rmem_max"),
            wmem_max: sysctl("wmem_max"),
            capabilities: field(&status, "CapEff:")
                .and_then(|text| u64::from_str_radix(text.trim(), 16).ok())
                .unwrap_or(0),
            files: limit(&limits, "Max open files"),
            locked: limit(&limits, "Max locked memory"),
            first_network: namespace("1").zip(namespace("self")).map(|(first, own)| first == own),
            first_user: fs::read_to_string("/proc/self/uid_map").ok().map(|map| is_whole(&map)),
        }
    }

    pub(in crate::doctor) fn has(&self, capability: u32) -> bool {
        self.capabilities & (1 << capability) != 0
    }
}

fn field<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    status.lines().find_map(|line| line.strip_prefix(name))
}

/// A row of /proc/self/limits: its name, the soft limit, the hard limit, the unit.
fn limit(limits: &str, name: &str) -> Option<Limit> {
    let row = field(limits, name)?;
    let mut values = row.split_whitespace().map(|text| text.parse().ok());
    Some(Limit { soft: values.next()?, hard: values.next()? })
}

/// Whether a uid_map maps all IDs to themselves, as only that of the first user namespace does.
fn is_whole(map: &str) -> bool {
    map.split_whitespace().eq(["0", "0", "4294967295"])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_parsed() {
        let text = "Limit                     Soft Limit           Hard Limit           Units     \n\
                    Max locked memory         8388608              unlimited            bytes     \n\
                    Max open files            1024                 1048576              files     \n";
        assert_eq!(
            limit(text, "Max locked memory"),
            Some(Limit { soft: Some(8_388_608), hard: None })
        );
        assert_eq!(
            limit(text, "Max open files"),
            Some(Limit { soft: Some(1024), hard: Some(1_048_576) })
        );
        assert_eq!(limit(text, "Max cpu time"), None);
    }

    #[test]
    fn only_the_first_user_namespace_maps_all_ids() {
        assert!(is_whole("         0          0 4294967295\n"));
        assert!(!is_whole("         0       1000          1\n"));
    }
}
