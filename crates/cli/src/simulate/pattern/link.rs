//! The link that `--capture` records.

use std::str::FromStr;

use ferroce_sim::rdma::traffic::Experiment;
use ferroce_sim::{HostId, Vantage};

/// A link on the command line: `host3`, `leaf0-spine1`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Link {
    /// Between a host and its switch, or the other host.
    Host(u32),
    /// Between a leaf and a spine switch.
    Trunk { leaf: u32, spine: u32 },
}

impl FromStr for Link {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = |text: &str, kind: &str| text.strip_prefix(kind)?.parse().ok();
        let trunk = || {
            let (leaf, spine) = text.split_once('-')?;
            Some(Self::Trunk { leaf: number(leaf, "leaf")?, spine: number(spine, "spine")? })
        };
        let host = number(text, "host").map(Self::Host);
        host.or_else(trunk).ok_or_else(|| "expected a link, such as host3 or leaf0-spine1".into())
    }
}

impl Link {
    /// Where a capture of this link is made; an error if the network does not have it.
    pub(super) fn vantage(self, experiment: &Experiment) -> Result<Vantage, String> {
        match self {
            Self::Host(host) if host < experiment.hosts => Ok(Vantage::Host(HostId(host))),
            Self::Host(host) => {
                Err(format!("there is no host {host}; the last is {}", experiment.hosts - 1))
            }
            Self::Trunk { leaf, spine } => {
                let network = experiment.leaf_spine().ok_or("only leaf-spine has such a link")?;
                let (leaves, spines) = (network.leaves - 1, network.spines - 1);
                let link = network.link(leaf, spine).map(Vantage::Trunk);
                link.ok_or_else(|| {
                    format!(
                        "there is no such link; the last leaf is {leaves}, the last spine {spines}"
                    )
                })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_have_names() {
        assert_eq!("host12".parse(), Ok(Link::Host(12)));
        assert_eq!("leaf1-spine0".parse(), Ok(Link::Trunk { leaf: 1, spine: 0 }));
        for wrong in ["", "3", "host", "host-1", "leaf1", "spine0-leaf1", "leaf1-spine0x"] {
            assert!(wrong.parse::<Link>().is_err(), "{wrong}");
        }
    }
}
