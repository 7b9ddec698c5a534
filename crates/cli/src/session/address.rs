//! Addresses to listen on and connect to, as users write them.

use std::net::{IpAddr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::ops::Range;
use std::str::FromStr;

use ferroce_sys::interface::interfaces;

use super::PORT;
use super::failure::Failure;

/// A local address to listen on: `ADDRESS:PORT`, `ADDRESS`, `:PORT`.
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

/// The scope of an IPv6 address, as in `fe80::1%eth0` and `[fe80::1%2]:80`, and its position.
fn scope(text: &str) -> Option<(Range<usize>, &str)> {
    let start = text.find('%')? + 1;
    let end = text[start..].find(']').map_or(text.len(), |length| start + length);
    Some((start..end, &text[start..end]))
}

/// Replaces an interface name in the scope by its index, because the standard library parses no names.
fn with_index(text: &str) -> String {
    let index = scope(text).and_then(|(place, name)| {
        let found = interfaces().ok()?.into_iter().find(|one| one.name == name)?;
        Some((place, found.index.to_string()))
    });
    let mut text = text.to_owned();
    if let Some((place, index)) = index {
        text.replace_range(place, &index);
    }
    text
}

/// A numeric host address without a port.
pub(crate) fn host(text: &str) -> Result<SocketAddr, String> {
    let is_port = text.parse::<SocketAddr>().is_ok();
    let address = numeric(text).filter(|_| !is_port).ok_or_else(|| {
        unknown_scope(text).unwrap_or_else(|| "not an address, such as 192.0.2.1".into())
    })?;
    has_scope(address)?;
    Ok(address)
}

/// A link-local address needs a scope: it exists on every link.
fn has_scope(address: SocketAddr) -> Result<(), String> {
    match address {
        SocketAddr::V6(v6) if v6.ip().is_unicast_link_local() && v6.scope_id() == 0 => {
            let ip = v6.ip();
            Err(format!("{ip} is link-local: name the interface, such as {ip}%eth0"))
        }
        _ => Ok(()),
    }
}

/// The error for an address whose scope is not an interface.
fn unknown_scope(text: &str) -> Option<String> {
    let (_, name) = scope(text)?;
    Some(format!("{text}: no interface {name}; `ip link` lists the interfaces"))
}

/// A numeric address with or without a port. IPv6 addresses may be in brackets.
fn numeric(text: &str) -> Option<SocketAddr> {
    let text = with_index(text);
    let text = text.as_str();
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

/// Resolves a name or an address.
pub(crate) fn resolve(text: &str) -> Result<SocketAddr, Failure> {
    if let Some(address) = numeric(text) {
        return has_scope(address).map(|()| address).map_err(Failure::Other);
    }
    if let Some(message) = unknown_scope(text) {
        return Err(Failure::Other(message));
    }
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) => match port.parse() {
            Ok(port) => (host, port),
            Err(_) => return Err(Failure::Other(format!("{text}: {port:?} is not a port number"))),
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
    fn addresses_are_parsed_with_and_without_port() {
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

    #[test]
    fn link_local_addresses_need_a_scope() {
        let index = interfaces().unwrap().into_iter().find(|one| one.name == "lo").unwrap().index;
        for (text, port) in [("fe80::1%lo", PORT), ("[fe80::1%lo]", PORT), ("[fe80::1%lo]:80", 80)]
        {
            let wanted: SocketAddr = format!("[fe80::1%{index}]:{port}").parse().unwrap();
            assert_eq!(resolve(text).unwrap(), wanted, "{text}");
            assert_eq!(text.parse::<Listen>(), Ok(Listen(wanted)), "{text}");
        }
        assert_eq!(host("fe80::1%lo").unwrap().ip(), "fe80::1".parse::<IpAddr>().unwrap());
        for text in ["fe80::1", "[fe80::1]:80"] {
            let message = resolve(text).unwrap_err().to_string();
            assert!(message.contains("name the interface, such as fe80::1%eth0"), "{message}");
        }
        for text in ["fe80::1%nowhere", "[fe80::1%nowhere]:80"] {
            let message = resolve(text).unwrap_err().to_string();
            assert!(message.contains("no interface nowhere"), "{message}");
        }
        assert!(host("fe80::1").is_err() && host("192.0.2.1:80").is_err() && host("name").is_err());
    }
}
