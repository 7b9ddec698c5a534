//! Who may read the dashboard: a token, and checks against pages of other sites.
//!
//! Three independent checks, because each covers what the others do not:
//! - The `Host` header must be `localhost`, an address, or a name given by `--allow-host`. A page of another site that points its own
//!   name at this machine (DNS rebinding) sends its own name.
//! - `Origin` and `Sec-Fetch-Site`, which a browser adds and a page cannot change, must name the dashboard itself.
//! - The token: other users of this machine can connect to the loopback, too. The page gets it by its address and sends
//!   it as a header. It is not a cookie: browsers send cookies to all ports of a host, which may belong to others.

use std::net::{IpAddr, SocketAddr};

use axum::http::header::{AUTHORIZATION, HOST, ORIGIN};
use axum::http::{HeaderMap, HeaderName, HeaderValue};

/// Sent with every response. Scripts, styles and data come from this server alone, nothing is inline, and no page can
/// frame it.
pub(super) const HEADERS: [(&str, &str); 8] = [
    (
        "content-security-policy",
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    ("x-content-type-options", "nosniff"),
    ("x-frame-options", "DENY"),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-resource-policy", "same-origin"),
    ("cross-origin-opener-policy", "same-origin"),
    ("permissions-policy", "camera=(), microphone=(), geolocation=()"),
    ("cache-control", "no-store"),
];

/// Adds [`HEADERS`].
pub(super) fn protect(headers: &mut HeaderMap) {
    for (name, value) in HEADERS {
        headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
}

/// A secret, compared in a time that does not depend on its bytes.
#[derive(Clone)]
pub(super) struct Token(String);

impl Token {
    /// A random token of 128 bits.
    pub(super) fn random() -> Self {
        let mut bytes = [0; 16];
        ferroce_sys::random::fill(&mut bytes);
        Self(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
    }

    /// The token of a file: its first line.
    pub(super) fn from_text(text: &str) -> Result<Self, &'static str> {
        let token = text.lines().next().unwrap_or_default().trim();
        if token.len() < 16 {
            return Err("the token must have 16 characters or more");
        }
        if !token.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err("the token must consist of printable ASCII characters");
        }
        Ok(Self(token.to_owned()))
    }

    pub(super) fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether `other` is this token.
    pub(super) fn is(&self, other: &str) -> bool {
        let (ours, theirs) = (self.0.as_bytes(), other.as_bytes());
        // The length is no secret.
        if ours.len() != theirs.len() {
            return false;
        }
        let differences = ours.iter().zip(theirs).fold(0, |found, (a, b)| found | (a ^ b));
        // Without it, the compiler could return at the first difference.
        std::hint::black_box(differences) == 0
    }
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token(…)")
    }
}

/// Who may read `/metrics`.
#[derive(Clone, Debug)]
pub(super) enum MetricsAccess {
    /// Whoever has the token of the page.
    Page,
    /// The same, and whoever has this token.
    Token(Token),
    /// Everyone who can connect.
    Public,
}

/// Why a request was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    Host,
    Origin,
    Token,
    RunIsOff,
}

impl Refusal {
    /// What to do about it, for the person who sees it.
    pub(super) const fn message(self) -> &'static str {
        match self {
            Self::Host => {
                "refused: the Host header names another host. Use localhost or the address that the dashboard listens \
                 on, or name the host with --allow-host.\n"
            }
            Self::Origin => {
                "refused: a page of another site made this request. Open the address that ferroce dashboard printed.\n"
            }
            Self::Token => {
                "refused: the token is missing or wrong. Open the address that ferroce dashboard printed when it \
                 started, or send the token as `Authorization: Bearer TOKEN`.\n"
            }
            Self::RunIsOff => {
                "refused: start ferroce dashboard with --allow-run to run commands.\n"
            }
        }
    }
}

/// The checks of every request.
#[derive(Clone, Debug)]
pub(super) struct Guard {
    pub(super) token: Token,
    pub(super) metrics: MetricsAccess,
    /// Names that are accepted as the host, in addition to `localhost`.
    pub(super) names: Vec<String>,
    /// The address that the server listens on.
    pub(super) listen: SocketAddr,
}

impl Guard {
    /// Checks where a request comes from. `authority` is the host of an absolute request target.
    pub(super) fn check_source(
        &self,
        headers: &HeaderMap,
        authority: Option<&str>,
    ) -> Result<(), Refusal> {
        let host = only(headers, &HOST).ok_or(Refusal::Host)?;
        if !self.is_our_host(host) || authority.is_some_and(|name| !self.is_our_host(name)) {
            return Err(Refusal::Host);
        }
        if headers.contains_key(ORIGIN) {
            let origin = only(headers, &ORIGIN).ok_or(Refusal::Origin)?;
            // A proxy that adds TLS keeps the Host header.
            let origin = origin.strip_prefix("http://").or(origin.strip_prefix("https://"));
            if !origin.is_some_and(|origin| origin.eq_ignore_ascii_case(host)) {
                return Err(Refusal::Origin);
            }
        }
        match headers.get("sec-fetch-site").map(HeaderValue::as_bytes) {
            // Older browsers and other programs do not send it.
            None | Some(b"same-origin" | b"none") => Ok(()),
            Some(_) => Err(Refusal::Origin),
        }
    }

    /// Checks the token of the page's address.
    pub(super) fn check_page(&self, token: Option<&str>) -> Result<(), Refusal> {
        token.filter(|token| self.token.is(token)).map(|_| ()).ok_or(Refusal::Token)
    }

    /// Checks the token of a request for data.
    pub(super) fn check_data(&self, headers: &HeaderMap) -> Result<(), Refusal> {
        self.check_page(bearer(headers))
    }

    /// Checks the token of a request for `/metrics`.
    pub(super) fn check_metrics(&self, headers: &HeaderMap) -> Result<(), Refusal> {
        match &self.metrics {
            MetricsAccess::Public => Ok(()),
            MetricsAccess::Token(token) if bearer(headers).is_some_and(|sent| token.is(sent)) => {
                Ok(())
            }
            MetricsAccess::Token(_) | MetricsAccess::Page => self.check_data(headers),
        }
    }

    /// Whether a request with this `Host` is for the dashboard. The port is not compared: it differs behind `ssh -L`,
    /// and a page of another site cannot choose the host.
    fn is_our_host(&self, host: &str) -> bool {
        let name = without_port(host);
        if name.eq_ignore_ascii_case("localhost")
            || self.names.iter().any(|allowed| allowed.eq_ignore_ascii_case(name))
        {
            return true;
        }
        let bare = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
        let Ok(address) = bare.parse::<IpAddr>() else { return false };
        let address = address.to_canonical();
        let ours = self.listen.ip().to_canonical();
        // An address cannot be rebound. One that is not ours reaches us only by forwarding.
        address.is_loopback() || address == ours || ours.is_unspecified()
    }
}

/// The value of a header that occurs exactly once.
fn only<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?.to_str().ok()?;
    values.next().is_none().then_some(value)
}

/// The token of `Authorization: Bearer TOKEN`.
fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = only(headers, &AUTHORIZATION)?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

/// The host of `host:port`, `[address]:port`, or either without a port.
fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port))
            if !name.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit()) =>
        {
            // An IPv6 address in a Host header is in brackets; without them it has no port.
            if name.contains(':') && !name.starts_with('[') { host } else { name }
        }
        _ => host,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guard(listen: &str, names: &[&str]) -> Guard {
        Guard {
            token: Token("0123456789abcdef0123456789abcdef".to_owned()),
            metrics: MetricsAccess::Page,
            names: names.iter().map(|&name| name.to_owned()).collect(),
            listen: listen.parse().unwrap(),
        }
    }

    fn headers(list: &[(&'static str, &str)]) -> HeaderMap {
        let entry = |(name, value): &(&'static str, &str)| {
            (HeaderName::from_static(name), HeaderValue::from_str(value).unwrap())
        };
        let mut map = HeaderMap::new();
        for (name, value) in list.iter().map(entry) {
            map.append(name, value);
        }
        map
    }

    #[test]
    fn only_our_hosts_are_accepted() {
        let local = guard("127.0.0.1:7470", &["box.example"]);
        for host in [
            "localhost",
            "LOCALHOST:7470",
            "localhost:9999",
            "127.0.0.1:7470",
            "127.0.0.2",
            "[::1]:7470",
            "[::ffff:127.0.0.1]",
            "box.example",
            "Box.Example:80",
        ] {
            assert_eq!(local.check_source(&headers(&[("host", host)]), None), Ok(()), "{host}");
        }
        for host in [
            "evil.example",
            "evil.example:7470",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "192.0.2.1",
            "",
            ":7470",
            "box.example.",
            "localhost:7470:1",
            "[::1",
            "localhost:x",
            "0.0.0.0",
            "[::2]",
        ] {
            assert_eq!(
                local.check_source(&headers(&[("host", host)]), None),
                Err(Refusal::Host),
                "{host}"
            );
        }
        assert_eq!(local.check_source(&HeaderMap::new(), None), Err(Refusal::Host));
        let twice = headers(&[("host", "localhost"), ("host", "localhost")]);
        assert_eq!(local.check_source(&twice, None), Err(Refusal::Host));
        let host = headers(&[("host", "localhost")]);
        assert_eq!(local.check_source(&host, Some("localhost:7470")), Ok(()));
        assert_eq!(local.check_source(&host, Some("evil.example")), Err(Refusal::Host));
    }

    #[test]
    fn an_address_that_was_named_is_a_host() {
        let one = guard("192.0.2.1:80", &[]);
        assert!(one.is_our_host("192.0.2.1") && one.is_our_host("localhost"));
        assert!(!one.is_our_host("192.0.2.2"));
        let all = guard("[::]:80", &[]);
        assert!(all.is_our_host("192.0.2.2:80") && all.is_our_host("[2001:db8::1]:80"));
        assert!(!all.is_our_host("evil.example"));
    }

    #[test]
    fn pages_of_other_sites_are_refused() {
        let guard = guard("127.0.0.1:7470", &[]);
        let check = |more: &[(&'static str, &str)]| {
            let all = [&[("host", "localhost:7470")], more].concat();
            guard.check_source(&headers(&all), None)
        };
        for good in [
            ("origin", "http://localhost:7470"),
            ("origin", "https://localhost:7470"),
            ("sec-fetch-site", "same-origin"),
            ("sec-fetch-site", "none"),
        ] {
            assert_eq!(check(&[good]), Ok(()), "{good:?}");
        }
        for bad in [
            ("origin", "http://evil.example"),
            ("origin", "null"),
            ("origin", "http://localhost:7471"),
            ("origin", "http://localhost"),
            ("origin", "file://"),
            ("sec-fetch-site", "cross-site"),
            ("sec-fetch-site", "same-site"),
            ("sec-fetch-site", ""),
        ] {
            assert_eq!(check(&[bad]), Err(Refusal::Origin), "{bad:?}");
        }
    }

    #[test]
    fn the_token_must_match_as_a_whole() {
        let guard = guard("127.0.0.1:7470", &[]);
        let right = "0123456789abcdef0123456789abcdef";
        assert_eq!(guard.check_page(Some(right)), Ok(()));
        for wrong in [
            "",
            "0",
            &right[1..],
            "0123456789abcdef0123456789abcdeF",
            "0123456789abcdef0123456789abcdeg",
        ] {
            assert_eq!(guard.check_page(Some(wrong)), Err(Refusal::Token), "{wrong}");
        }
        assert_eq!(guard.check_page(None), Err(Refusal::Token));
        let bearer = |value: &str| guard.check_data(&headers(&[("authorization", value)]));
        assert_eq!(bearer(&format!("Bearer {right}")), Ok(()));
        assert_eq!(bearer(&format!("bearer  {right}")), Ok(()));
        for wrong in [
            right.to_owned(),
            format!("Basic {right}"),
            format!("Bearer{right}"),
            "Bearer ".to_owned(),
        ] {
            assert_eq!(bearer(&wrong), Err(Refusal::Token), "{wrong}");
        }
    }

    #[test]
    fn metrics_have_their_own_token() {
        let mut guard = guard("127.0.0.1:7470", &[]);
        let with = |token: &str| headers(&[("authorization", &format!("Bearer {token}"))]);
        let page = with(guard.token.as_str());
        let own = with("a-token-of-prometheus");
        assert_eq!(guard.check_metrics(&own), Err(Refusal::Token));
        guard.metrics = MetricsAccess::Token(Token::from_text("a-token-of-prometheus\n").unwrap());
        assert_eq!((guard.check_metrics(&own), guard.check_metrics(&page)), (Ok(()), Ok(())));
        assert_eq!(guard.check_metrics(&HeaderMap::new()), Err(Refusal::Token));
        // It opens nothing else.
        assert_eq!(guard.check_data(&own), Err(Refusal::Token));
        guard.metrics = MetricsAccess::Public;
        assert_eq!(guard.check_metrics(&HeaderMap::new()), Ok(()));
    }

    #[test]
    fn tokens_are_random_and_weak_ones_are_refused() {
        assert_ne!(Token::random().as_str(), Token::random().as_str());
        assert_eq!(Token::random().as_str().len(), 32);
        for weak in ["", "short", "\n0123456789abcdef", "0123456789 abcdef", "0123456789abcdeé"] {
            assert!(Token::from_text(weak).is_err(), "{weak}");
        }
        assert!(!format!("{:?}", Token::random()).contains(|c: char| c.is_ascii_digit()));
    }
}
