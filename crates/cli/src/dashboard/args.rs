//! Arguments of `ferroce dashboard`.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, ValueEnum, ValueHint};

use crate::duration::Interval;

/// Examples for the help text and the man page.
pub(crate) const EXAMPLES: &str = "\
Examples:
  ferroce dashboard                            prints the address to open in a browser
  ferroce dashboard --listen 8080              on another port of the loopback
  ferroce dashboard --allow-run                with the form that runs demo, perf and compare
  ferroce dashboard --metrics-token-file token for Prometheus: docs/dashboard.md
  ssh -L 7470:localhost:7470 host ferroce dashboard     watch another host";

/// The port if `--listen` names none.
const PORT: u16 = 7470;

/// Arguments of `ferroce dashboard`.
#[derive(Args, Debug)]
pub(crate) struct DashboardArgs {
    /// Where to listen: a port of the loopback, or an address and a port; port 0 chooses any port
    #[arg(long, value_name = "ADDRESS:PORT", default_value_t = ListenAddress::DEFAULT)]
    pub(crate) listen: ListenAddress,

    /// Accept requests for this host name, too
    ///
    /// Requests name the host they are for. Only localhost and addresses are accepted, because a page of another site
    /// could otherwise reach the dashboard by a name that it points at this machine (DNS rebinding). May be repeated.
    #[arg(long, value_name = "NAME")]
    pub(crate) allow_host: Vec<String>,

    /// Show the form that runs demo, perf and compare on this machine
    #[arg(long)]
    pub(crate) allow_run: bool,

    /// When to collect the last packets of QPs, for their ladders
    ///
    /// Collecting costs the processes a copy of the headers of each packet, and through shared memory it slows bulk
    /// transfers.
    #[arg(long, value_name = "WHEN", default_value = "open")]
    pub(crate) packets: Packets,

    /// Time between two samples
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = interval)]
    pub(crate) interval: Interval,

    /// Accept the token in this file for /metrics, in addition to the token of the page
    ///
    /// The token of the page changes with every start. The file lets a Prometheus server keep its configuration.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) metrics_token_file: Option<PathBuf>,

    /// Serve /metrics without a token, to everyone who can connect
    #[arg(long, conflicts_with = "metrics_token_file")]
    pub(crate) metrics_public: bool,

    /// Print the address and the token as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// When packets are collected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Packets {
    /// While a QP is open in a browser
    Open,
    /// Always, so that an anomaly leads to the packets around it
    Always,
    /// Never
    Never,
}

/// The address to listen on: the loopback unless an address is named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ListenAddress(pub(crate) SocketAddr);

impl ListenAddress {
    const DEFAULT: Self = Self(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), PORT));
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for ListenAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let loopback = |port| SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port);
        let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
        let port = text.strip_prefix("localhost:").or(text.strip_prefix(':')).unwrap_or(text);
        let address = match (text.parse(), port.parse(), bare.parse()) {
            (Ok(address), _, _) => address,
            (_, Ok(port), _) => loopback(port),
            (_, _, Ok(ip)) => SocketAddr::new(ip, PORT),
            _ if text == "localhost" => loopback(PORT),
            _ => {
                return Err(
                    "expected a port, or an address and a port, such as 8080 or 192.0.2.1:8080"
                        .to_owned(),
                );
            }
        };
        Ok(Self(address))
    }
}

/// A sampling interval: less would cost more than it shows, and more would hide what happens.
fn interval(text: &str) -> Result<Interval, String> {
    let interval: Interval = text.parse()?;
    if !(100_000_000..=60_000_000_000).contains(&interval.nanoseconds) {
        return Err("must be from 100ms to 60s".to_owned());
    }
    Ok(interval)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_an_address_it_is_the_loopback() {
        for (text, address) in [
            ("8080", "127.0.0.1:8080"),
            (":0", "127.0.0.1:0"),
            ("localhost", "127.0.0.1:7470"),
            ("localhost:81", "127.0.0.1:81"),
            ("192.0.2.1", "192.0.2.1:7470"),
            ("0.0.0.0:80", "0.0.0.0:80"),
            ("::1", "[::1]:7470"),
            ("[::1]", "[::1]:7470"),
            ("[::1]:80", "[::1]:80"),
        ] {
            assert_eq!(text.parse(), Ok(ListenAddress(address.parse().unwrap())), "{text}");
        }
        for text in ["", "99999", "host:80", "localhosts", "localhost:", "1.2.3:4"] {
            assert!(text.parse::<ListenAddress>().is_err(), "{text}");
        }
    }

    #[test]
    fn the_interval_is_bounded() {
        assert!(interval("100ms").is_ok() && interval("1min").is_ok());
        assert!(interval("99ms").is_err() && interval("2min").is_err());
    }
}
