//! What a change of a queue pair consists of: one list gives the names, the set and the typed values.

use core::fmt;
use core::ops::{BitOr, Sub};

use ferroce_wire::cm::{AckTimeout, PathMtu, RnrRetry};
use ferroce_wire::number::{LIMIT_24, Psn, QKey, Qpn};
use ferroce_wire::setup::AccessFlags;
use ferroce_wire::syndrome::RnrTimer;

use super::state::State;
use super::value::{AddressVector, AlternatePath, Capabilities, Migration, timeout_fits};

/// All attributes in one list: name, number of its bit in `ibv_qp_attr_mask`, words, mask of libibverbs, range in words,
/// field of `QueuePairAttributes`, and whether a value is in the range.
macro_rules! attributes {
    ($(
        $(#[$doc:meta])+
        $variant:ident $constant:ident = $bit:literal, $words:literal, $verbs:literal, $range:literal,
        $field:ident: $type:ty, $fits:expr;
    )+) => {
        /// One attribute of a queue pair (IBA 11.2.5.2).
        #[doc(alias = "ibv_qp_attr_mask")]
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Attribute {
            $( $(#[$doc])+ $variant = $bit, )+
        }

        impl Attribute {
            /// All of them, in the order of their bits.
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            /// The name in words.
            pub const fn name(self) -> &'static str {
                match self { $( Self::$variant => $words, )+ }
            }

            /// The bit's name in libibverbs.
            pub const fn verbs_name(self) -> &'static str {
                match self { $( Self::$variant => $verbs, )+ }
            }

            /// The values it can have, in words.
            pub const fn range(self) -> &'static str {
                match self { $( Self::$variant => $range, )+ }
            }
        }

        impl AttributeMask {
            $( $(#[$doc])+ pub const $constant: Self = Self(1 << $bit); )+
        }

        /// A change of a queue pair: the values that are given. What is `None` stays as it is.
        #[doc(alias = "ibv_qp_attr")]
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct QueuePairAttributes {
            $( $(#[$doc])+ pub $field: Option<$type>, )+
        }

        impl QueuePairAttributes {
            /// Which values are given.
            pub fn attributes(&self) -> AttributeMask {
                let mut given = AttributeMask::NONE;
                $( if self.$field.is_some() { given = given | AttributeMask::$constant; } )+
                given
            }

            /// Which of the given values are out of their range.
            pub fn out_of_range(&self) -> AttributeMask {
                let mut wrong = AttributeMask::NONE;
                $(
                    let fits: fn(&$type) -> bool = $fits;
                    if self.$field.as_ref().is_some_and(|value| !fits(value)) {
                        wrong = wrong | AttributeMask::$constant;
                    }
                )+
                wrong
            }

            /// Takes over what `change` gives: so a `QueuePairAttributes` also remembers all that a queue pair was told.
            pub fn absorb(&mut self, change: &Self) {
                $( self.$field = change.$field.or(self.$field); )+
            }

            /// Forgets the values of these attributes.
            pub fn clear(&mut self, attributes: AttributeMask) {
                $( if attributes.contains(Attribute::$variant) { self.$field = None; } )+
            }
        }
    };
}

attributes! {
    /// The state to go to. When it is not given, the state stays and only other attributes change.
    State STATE = 0, "state", "IBV_QP_STATE", "a state", state: State, |_| true;
    /// The state that the owner believes the queue pair to be in: the change is refused when it is not, as after an
    /// error that the owner has not seen yet.
    CurrentState CURRENT_STATE = 1, "current state", "IBV_QP_CUR_STATE", "the actual state",
        current_state: State, |_| true;
    /// Whether an event tells when the send queue is drained.
    DrainNotice DRAIN_NOTICE = 2, "drain notice", "IBV_QP_EN_SQD_ASYNC_NOTIFY", "yes or no",
        drain_notice: bool, |_| true;
    /// What peers may do with the memory of this queue pair's domain. Local flags mean nothing here, but programs
    /// give them.
    Access ACCESS = 3, "access", "IBV_QP_ACCESS_FLAGS", "defined access flags",
        access: AccessFlags, access_fits;
    /// Which entry of the port's partition table it belongs to.
    Partition PARTITION = 4, "partition", "IBV_QP_PKEY_INDEX", "an index", partition: u16, |_| true;
    /// The port.
    Port PORT = 5, "port", "IBV_QP_PORT", "1 or higher", port: u8, |&port| port != 0;
    /// The key that datagrams must bring.
    QueueKey QUEUE_KEY = 6, "queue key", "IBV_QP_QKEY", "32 bits", queue_key: QKey, |_| true;
    /// Where the peer is.
    Path PATH = 7, "path", "IBV_QP_AV", "port 1 or higher, 20-bit flow label, 4-bit service level",
        path: AddressVector, AddressVector::fits;
    /// The largest payload of a packet.
    PathMtu PATH_MTU = 8, "path MTU", "IBV_QP_PATH_MTU", "code 1 to 5, for 256 to 4096 bytes",
        path_mtu: PathMtu, |mtu| mtu.bytes().is_some();
    /// How long to wait for an acknowledge before sending again: 4.096 µs · 2^code, 0 for ever (IBA 9.7.6.1.3).
    Timeout TIMEOUT = 9, "timeout", "IBV_QP_TIMEOUT", "code 0 to 31", timeout: AckTimeout, timeout_fits;
    /// How often to send again when no acknowledge comes, or a sequence error (IBA 9.9.2.1.1).
    RetryCount RETRY_COUNT = 10, "retry count", "IBV_QP_RETRY_CNT", "0 to 7",
        retry_count: u8, |&count| count <= 7;
    /// How often to send again when the peer has no receive posted; 7 for ever (IBA 9.7.5.2.8).
    RnrRetry RNR_RETRY = 11, "RNR retry", "IBV_QP_RNR_RETRY", "0 to 7",
        rnr_retry: RnrRetry, |retry| retry.0 <= RnrRetry::FOR_EVER.0;
    /// The PSN of the first request that arrives.
    ReceivePsn RECEIVE_PSN = 12, "receive PSN", "IBV_QP_RQ_PSN", "24 bits",
        receive_psn: Psn, |psn| psn.0 < LIMIT_24;
    /// How many READs and atomics may be under way to the peer.
    MaxReads MAX_READS = 13, "max_rd_atomic", "IBV_QP_MAX_QP_RD_ATOMIC", "8 bits, the device's limit",
        max_rd_atomic: u8, |_| true;
    /// A second path to migrate to.
    AlternatePath ALTERNATE_PATH = 14, "alternate path", "IBV_QP_ALT_PATH", "like path and timeout",
        alternate_path: AlternatePath, AlternatePath::fits;
    /// How long a peer shall wait at least after "receiver not ready".
    MinRnrTimer MIN_RNR_TIMER = 15, "min RNR timer", "IBV_QP_MIN_RNR_TIMER", "code 0 to 31",
        min_rnr_timer: RnrTimer, |_| true;
    /// The PSN of the first request that leaves.
    SendPsn SEND_PSN = 16, "send PSN", "IBV_QP_SQ_PSN", "24 bits", send_psn: Psn, |psn| psn.0 < LIMIT_24;
    /// How many READs and atomics of the peer may be under way.
    MaxPeerReads MAX_PEER_READS = 17, "max_dest_rd_atomic", "IBV_QP_MAX_DEST_RD_ATOMIC",
        "8 bits, the device's limit", max_dest_rd_atomic: u8, |_| true;
    /// Where the connection stands with its alternate path.
    Migration MIGRATION = 18, "path migration", "IBV_QP_PATH_MIG_STATE", "migrated, rearm or armed",
        migration: Migration, |_| true;
    /// New sizes of the queues.
    Capabilities CAPABILITIES = 19, "capabilities", "IBV_QP_CAP", "the device's limits",
        capabilities: Capabilities, |_| true;
    /// The peer's queue pair.
    Destination DESTINATION = 20, "destination QPN", "IBV_QP_DEST_QPN", "24 bits",
        destination: Qpn, |qpn| qpn.0 < LIMIT_24;
    /// The rate that packets are paced at, in kbit/s.
    RateLimit RATE_LIMIT = 25, "rate limit", "IBV_QP_RATE_LIMIT", "kbit/s", rate_limit: u32, |_| true;
}

/// Whether all flags are ones that have a name.
fn access_fits(access: &AccessFlags) -> bool {
    AccessFlags::all().contains(*access)
}

/// A set of attributes, with the bits of `ibv_qp_attr_mask`.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct AttributeMask(u32);

impl AttributeMask {
    /// No attribute.
    pub const NONE: Self = Self(0);
    /// Every attribute.
    pub const ALL: Self = Self::of(Attribute::ALL);

    /// These.
    pub const fn of(list: &[Attribute]) -> Self {
        let (mut bits, mut at) = (0, 0);
        while at < list.len() {
            bits |= 1 << list[at] as u32;
            at += 1;
        }
        Self(bits)
    }

    /// The set with these bits; `None` when one of them is no attribute.
    pub const fn from_bits(bits: u32) -> Option<Self> {
        if bits & !Self::ALL.0 == 0 { Some(Self(bits)) } else { None }
    }

    /// The bits of `ibv_qp_attr_mask`.
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// Whether none is in it.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether this one is in it.
    pub const fn contains(self, attribute: Attribute) -> bool {
        self.0 & 1 << attribute as u32 != 0
    }

    /// Those in it, in the order of their bits.
    pub fn iter(self) -> impl Iterator<Item = Attribute> {
        Attribute::ALL.iter().copied().filter(move |&attribute| self.contains(attribute))
    }
}

impl From<Attribute> for AttributeMask {
    fn from(attribute: Attribute) -> Self {
        Self::of(&[attribute])
    }
}

impl BitOr for AttributeMask {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl Sub for AttributeMask {
    type Output = Self;

    /// Those that are not in `other`.
    fn sub(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }
}

impl fmt::Display for Attribute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl fmt::Display for AttributeMask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, attribute) in self.iter().enumerate() {
            let separator = if position == 0 { "" } else { ", " };
            write!(f, "{separator}{attribute}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for AttributeMask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AttributeMask({self})")
    }
}
