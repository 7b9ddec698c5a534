//! The amount and kind of work of a run.

use std::fmt;
use std::str::FromStr;

use ferroce_proto::congestion::{self, DcqcnParameters};

/// The amount and kind of work of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Workload {
    /// Number of hosts, at least 2.
    pub hosts: u32,
    /// Number of connections between pairs of hosts; a group of UD QPs counts as one.
    pub connections: u32,
    /// Work requests per connection and direction that sends.
    pub requests: u32,
    /// Bytes of the largest message.
    pub largest: u32,
    /// The services that connections are drawn from.
    pub services: Services,
    /// How connections are established.
    pub set_up: SetUp,
    /// The congestion control of reliable connections.
    pub congestion: Congestion,
    /// When programs post their requests.
    pub posting: Posting,
}

impl Default for Workload {
    fn default() -> Self {
        Self {
            hosts: 2,
            connections: 4,
            requests: 16,
            largest: 9_000,
            services: Services::ALL,
            set_up: SetUp::Direct,
            congestion: Congestion::Window,
            posting: Posting::AtOnce,
        }
    }
}

/// Defines an enumeration with a name for each value, by which it prints and parses.
macro_rules! named {
    ($(#[$meta:meta])+ $kind:literal, $type:ident { $( $(#[doc = $doc:literal])+ $value:ident = $name:literal, )+ }) => {
        $(#[$meta])+
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $type {
            $( $(#[doc = $doc])+ $value, )+
        }

        impl $type {
            /// All values.
            pub const ALL: &[Self] = &[$( Self::$value ),+];

            /// Returns the name.
            pub const fn name(self) -> &'static str {
                match self {
                    $( Self::$value => $name, )+
                }
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.name())
            }
        }

        impl FromStr for $type {
            type Err = UnknownName;

            fn from_str(text: &str) -> Result<Self, UnknownName> {
                let found = Self::ALL.iter().copied().find(|one| one.name() == text);
                let names = || Self::ALL.iter().map(|one| one.name()).collect();
                found.ok_or_else(|| UnknownName { text: text.into(), kind: $kind, names: names() })
            }
        }
    };
}
pub(super) use named;

/// The error of an unknown name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownName {
    pub(super) text: String,
    pub(super) kind: &'static str,
    pub(super) names: Vec<&'static str>,
}

impl fmt::Display for UnknownName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\" is not {}; choose one of {}", self.text, self.kind, self.names.join(", "))
    }
}

impl std::error::Error for UnknownName {}

named! {
    /// A transport service.
    "a service", Service {
        /// RC, some with an SRQ.
        Reliable = "rc",
        /// UC.
        Unreliable = "uc",
        /// UD, some to a multicast group.
        Datagram = "ud",
        /// XRC.
        Extended = "xrc",
    }
}

named! {
    /// How connections are established.
    "a set-up method", SetUp {
        /// Connections are up from the start.
        Direct = "direct",
        /// By the connection manager's MADs.
        ConnectionManager = "cm",
        /// By the set-up exchange.
        Exchange = "exchange",
    }
}

named! {
    /// The congestion control of reliable connections.
    "a congestion control", Congestion {
        /// A window of fixed size.
        Window = "window",
        /// DCQCN: CE marks cause CNPs, and CNPs lower the rate.
        Dcqcn = "dcqcn",
        /// No congestion control.
        None = "none",
    }
}

named! {
    /// When programs post their requests.
    "a way to post", Posting {
        /// All requests when the connection is up.
        AtOnce = "at-once",
        /// RC, XRC and UC: lists of a few requests over time. What was posted is held back as the engine does it.
        Lists = "lists",
    }
}

impl Congestion {
    /// Returns the configuration of a QP.
    pub(super) fn to_config(self) -> congestion::Congestion {
        match self {
            // 32 packets of the largest MTU.
            Self::Window => congestion::Congestion::Window(congestion::cost(32 * 4096, 32)),
            Self::Dcqcn => congestion::Congestion::Dcqcn(DcqcnParameters::default()),
            Self::None => congestion::Congestion::Unlimited,
        }
    }
}

/// A set of services, never empty. Prints as `rc,uc` and parses from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Services(u8);

impl Services {
    /// All services.
    pub const ALL: Self = Self(0b1111);

    /// Returns the set of one service.
    pub const fn only(service: Service) -> Self {
        Self(1 << service as u8)
    }

    /// Returns the services in the set, in the order of [`Service::ALL`].
    pub fn iter(self) -> impl Iterator<Item = Service> {
        Service::ALL.iter().copied().filter(move |&one| self.0 >> one as u8 & 1 == 1)
    }
}

impl fmt::Display for Services {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.iter().map(Service::name).collect();
        f.write_str(&names.join(","))
    }
}

impl FromStr for Services {
    type Err = UnknownName;

    fn from_str(text: &str) -> Result<Self, UnknownName> {
        text.split(',').try_fold(Self(0), |set, name| {
            name.parse().map(|service: Service| Self(set.0 | 1 << service as u8))
        })
    }
}
