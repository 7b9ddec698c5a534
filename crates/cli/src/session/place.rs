//! Where to listen and to connect, as people write it.

use std::net::{IpAddr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::str::FromStr;

use super::PORT;
use super::failure::Failure;

/// An address of this machine to listen at: `ADDRESS:PORT`, `ADDRESS`, `:PORT`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Listen(pub(crate) SocketAddr);

impl FromStr for Listen {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let any = IpAddr::V6(Ipv6Addr::UNSPECIFIED);
        if let Some(port) = text.strip_prefix(':').and_then(|port| port.parse().ok()) {
            return Ok(Self(SocketAddr::new(any, port)));
        }
        numeric(text)
            .map(Self)
            .ok_or_else(|| "not ADDRESS:PORT, such as 192.0.2.1:7471 or [2001:db8::1]:7471".into())
    }
}

/// An address in digits, with a port or without. IPv6 addresses may stand in brackets.
fn numeric(text: &str) -> Option<SocketAddr> {
    if let Ok(address) = text.parse() {
        return Some(address);
    }
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    match bare.parse::<IpAddr>() {
        Ok(ip) => Some(SocketAddr::new(ip, PORT)),
        // With its scope, `fe80::1%2`.
        Err(_) => format!("[{bare}]:{PORT}").parse().ok(),
    }
}

/// The address that a name or address stands for.
pub(crate) fn resolve(text: &str) -> Result<SocketAddr, Failure> {
    if let Some(address) = numeric(text) {
        return Ok(address);
    }
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) => match port.parse() {
            Ok(port) => (host, port),
            Err(_) => return Err(Failure::Other(format!("{text}: {port:?} is no port"))),
        },
        None => (text, PORT),
    };
    let found = (host, port).to_socket_addrs();
    let found = found.map_err(|error| Failure::Other(format!("{host}: {error}")))?;
    found.into_iter().next().ok_or_else(|| Failure::Other(format!("{host} has no address")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_people_write_them() {
        for (text, address) in [
            ("192.0.2.1:80", "192.0.2.1:80"),
            ("192.0.2.1", "192.0.2.1:7471"),
            ("::1", "[::1]:7471"),
            ("[::1]", "[::1]:7471"),
            ("[::1]:80", "[::1]:80"),
            ("fe80::1%2", "[fe80::1%2]:7471"),
            (":80", "[::]:80"),
        ] {
            assert_eq!(text.parse::<Listen>().map(|listen| listen.0), Ok(address.parse().unwrap()));
        }
        assert!("somewhere".parse::<Listen>().is_err());
        assert!(resolve("127.0.0.1:port").is_err());
        assert_eq!(resolve("127.0.0.1").unwrap().port(), PORT);
    }
}
