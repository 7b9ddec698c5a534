//! How much is to be done, by whom, and how: the choices of a run beside its network and its seed.

use std::fmt;
use std::str::FromStr;

use ferroce_proto::congestion::{self, DcqcnParameters};

/// How much is to be done, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Workload {
    /// Hosts, at least 2.
    pub hosts: u32,
    /// Connections between pairs of them, and groups of datagram queue pairs.
    pub connections: u32,
    /// Work requests on each, in each direction that sends.
    pub requests: u32,
    /// Bytes of the largest message.
    pub largest: u32,
    /// The services that connections are drawn from.
    pub services: Services,
    /// How connections come up.
    pub set_up: SetUp,
    /// What bounds how fast reliable connections send.
    pub congestion: Congestion,
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
        }
    }
}

/// An enumeration with a name for each value, which it prints as and parses from.
macro_rules! named {
    ($(#[$meta:meta])+ $what:literal, $type:ident { $( $(#[doc = $doc:literal])+ $value:ident = $name:literal, )+ }) => {
        $(#[$meta])+
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $type {
            $( $(#[doc = $doc])+ $value, )+
        }

        impl $type {
            /// One of each.
            pub const ALL: &[Self] = &[$( Self::$value ),+];

            /// Its name.
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
                found.ok_or_else(|| UnknownName { text: text.into(), what: $what, names: names() })
            }
        }
    };
}

/// A word that is none of those there are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownName {
    text: String,
    what: &'static str,
    names: Vec<&'static str>,
}

impl fmt::Display for UnknownName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\" is not {}; there are {}", self.text, self.what, self.names.join(", "))
    }
}

impl std::error::Error for UnknownName {}

named! {
    /// A transport service.
    "a service", Service {
        /// Reliable connection, some with a shared receive queue.
        Reliable = "rc",
        /// Unreliable connection.
        Unreliable = "uc",
        /// Unreliable datagram, some to a multicast group.
        Datagram = "ud",
        /// Extended reliable connection.
        Extended = "xrc",
    }
}

named! {
    /// How connections come up.
    "a way to set up", SetUp {
        /// Both ends know each other from the start.
        Direct = "direct",
        /// By the connection manager's datagrams.
        ConnectionManager = "cm",
        /// By the set-up exchange.
        Exchange = "exchange",
    }
}

named! {
    /// What bounds how fast reliable connections send.
    "a congestion control", Congestion {
        /// A window of fixed size.
        Window = "window",
        /// DCQCN: marks become notifications, notifications a lower rate.
        Dcqcn = "dcqcn",
        /// Nothing.
        None = "none",
    }
}

impl Congestion {
    /// As a queue pair is told.
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
    /// All there are.
    pub const ALL: Self = Self(0b1111);

    /// One alone.
    pub const fn only(service: Service) -> Self {
        Self(1 << service as u8)
    }

    /// Those in the set, in the order of [`Service::ALL`].
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
