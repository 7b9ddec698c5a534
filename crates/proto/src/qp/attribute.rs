//! QP attributes: one list defines the names, the mask and the typed values.

use core::fmt;
use core::ops::{BitOr, Sub};

use ferroce_wire::cm::{AckTimeout, PathMtu, RnrRetry};
use ferroce_wire::number::{LIMIT_24, Psn, QKey, Qpn};
use ferroce_wire::setup::AccessFlags;
use ferroce_wire::syndrome::RnrTimer;

use super::state::State;
use super::value::{AddressVector, AlternatePath, Capabilities, Migration, timeout_fits};

/// All attributes in one list: variant, constant and bit number in `ibv_qp_attr_mask`, name, libibverbs name, range
/// in words, field of `QueuePairAttributes`, and its range check.
macro_rules! attributes {
    ($(
        $(#[$doc:meta])+
        $variant:ident $constant:ident = $bit:literal, $words:literal, $verbs:literal, $range:literal,
        $field:ident: $type:ty, $fits:expr;
    )+) => {
        /// A QP attribute (IBA 11.2.5.2).
        #[doc(alias = "ibv_qp_attr_mask")]
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Attribute {
            $( $(#[$doc])+ $variant = $bit, )+
        }

        impl Attribute {
            /// All attributes, in the order of their bits.
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            /// The name.
            pub const fn name(self) -> &'static str {
                match self { $( Self::$variant => $words, )+ }
            }

            /// The libibverbs name.
            pub const fn verbs_name(self) -> &'static str {
                match self { $( Self::$variant => $verbs, )+ }
            }

            /// The valid values, in words.
            pub const fn range(self) -> &'static str {
                match self { $( Self::$variant => $range, )+ }
            }
        }

        impl AttributeMask {
            $( $(#[$doc])+ pub const $constant: Self = Self(1 << $bit); )+
        }

        /// Attributes to set. `None` leaves a value unchanged.
        #[doc(alias = "ibv_qp_attr")]
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct QueuePairAttributes {
            $( $(#[$doc])+ pub $field: Option<$type>, )+
        }

        impl QueuePairAttributes {
            /// The attributes that are set.
            pub fn attributes(&self) -> AttributeMask {
                let mut given = AttributeMask::NONE;
                $( if self.$field.is_some() { given = given | AttributeMask::$constant; } )+
                given
            }

            /// The set attributes whose values are out of range.
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

            /// Merges `change` into `self`, so that a `QueuePairAttributes` can also accumulate the current values of
            /// a QP.
            pub fn absorb(&mut self, change: &Self) {
                $( self.$field = change.$field.or(self.$field); )+
            }

            /// Clears these attributes.
            pub fn clear(&mut self, attributes: AttributeMask) {
                $( if attributes.contains(Attribute::$variant) { self.$field = None; } )+
            }
        }
    };
}

attributes! {
    /// The new state. Without it the state stays, and only other attributes change.
    State STATE = 0, "state", "IBV_QP_STATE", "a state", state: State, |_| true;
    /// The assumed current state: the change is refused if it differs, for example after an error that the owner has
    /// not noticed yet.
    CurrentState CURRENT_STATE = 1, "current state", "IBV_QP_CUR_STATE", "the actual state",
        current_state: State, |_| true;
    /// Whether an event reports that the send queue is drained.
    DrainNotice DRAIN_NOTICE = 2, "drain notice", "IBV_QP_EN_SQD_ASYNC_NOTIFY", "yes or no",
        drain_notice: bool, |_| true;
    /// Remote access rights. Local flags have no effect here, but programs set them.
    Access ACCESS = 3, "access", "IBV_QP_ACCESS_FLAGS", "defined access flags",
        access: AccessFlags, access_fits;
    /// Index into the port's P_Key table.
    Partition PARTITION = 4, "partition", "IBV_QP_PKEY_INDEX", "an index", partition: u16, |_| true;
    /// The port.
    Port PORT = 5, "port", "IBV_QP_PORT", "1 or higher", port: u8, |&port| port != 0;
    /// The Q_Key that datagrams must carry.
    QueueKey QUEUE_KEY = 6, "queue key", "IBV_QP_QKEY", "32 bits", queue_key: QKey, |_| true;
    /// The path to the peer.
    Path PATH = 7, "path", "IBV_QP_AV", "port 1 or higher, 20-bit flow label, 4-bit service level",
        path: AddressVector, AddressVector::fits;
    /// The largest payload of a packet.
    PathMtu PATH_MTU = 8, "path MTU", "IBV_QP_PATH_MTU", "code 1 to 5, for 256 to 4096 bytes",
        path_mtu: PathMtu, |mtu| mtu.bytes().is_some();
    /// Local ACK timeout: 4.096 µs · 2^code, 0 for none (IBA 9.7.6.1.3).
    Timeout TIMEOUT = 9, "timeout", "IBV_QP_TIMEOUT", "code 0 to 31", timeout: AckTimeout, timeout_fits;
    /// Retry count for timeouts and sequence errors (IBA 9.9.2.1.1).
    RetryCount RETRY_COUNT = 10, "retry count", "IBV_QP_RETRY_CNT", "0 to 7",
        retry_count: u8, |&count| count <= 7;
    /// Retry count for RNR NAKs; 7 for unlimited (IBA 9.7.5.2.8).
    RnrRetry RNR_RETRY = 11, "RNR retry", "IBV_QP_RNR_RETRY", "0 to 7",
        rnr_retry: RnrRetry, |retry| retry.0 <= RnrRetry::FOR_EVER.0;
    /// First PSN to receive.
    ReceivePsn RECEIVE_PSN = 12, "receive PSN", "IBV_QP_RQ_PSN", "24 bits",
        receive_psn: Psn, |psn| psn.0 < LIMIT_24;
    /// Maximum outstanding READs and atomics as requester.
    MaxRdAtomic MAX_RD_ATOMIC = 13, "max_rd_atomic", "IBV_QP_MAX_QP_RD_ATOMIC", "8 bits, the device's limit",
        max_rd_atomic: u8, |_| true;
    /// The alternate path for migration.
    AlternatePath ALTERNATE_PATH = 14, "alternate path", "IBV_QP_ALT_PATH", "like path and timeout",
        alternate_path: AlternatePath, AlternatePath::fits;
    /// Minimum RNR timer of the peer's wait after an RNR NAK.
    MinRnrTimer MIN_RNR_TIMER = 15, "min RNR timer", "IBV_QP_MIN_RNR_TIMER", "code 0 to 31",
        min_rnr_timer: RnrTimer, |_| true;
    /// First PSN to send.
    SendPsn SEND_PSN = 16, "send PSN", "IBV_QP_SQ_PSN", "24 bits", send_psn: Psn, |psn| psn.0 < LIMIT_24;
    /// Maximum outstanding READs and atomics as responder.
    MaxDestRdAtomic MAX_DEST_RD_ATOMIC = 17, "max_dest_rd_atomic", "IBV_QP_MAX_DEST_RD_ATOMIC",
        "8 bits, the device's limit", max_dest_rd_atomic: u8, |_| true;
    /// Path migration state.
    Migration MIGRATION = 18, "path migration", "IBV_QP_PATH_MIG_STATE", "migrated, rearm or armed",
        migration: Migration, |_| true;
    /// Queue sizes.
    Capabilities CAPABILITIES = 19, "capabilities", "IBV_QP_CAP", "the device's limits",
        capabilities: Capabilities, |_| true;
    /// The peer's QPN.
    Destination DESTINATION = 20, "destination QPN", "IBV_QP_DEST_QPN", "24 bits",
        destination: Qpn, |qpn| qpn.0 < LIMIT_24;
    /// Packet pacing rate in kbit/s.
    RateLimit RATE_LIMIT = 25, "rate limit", "IBV_QP_RATE_LIMIT", "kbit/s", rate_limit: u32, |_| true;
}

/// Whether all flags are defined.
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

    /// The set of these attributes.
    pub const fn of(list: &[Attribute]) -> Self {
        let (mut bits, mut at) = (0, 0);
        while at < list.len() {
            bits |= 1 << list[at] as u32;
            at += 1;
        }
        Self(bits)
    }

    /// The set with these bits; `None` if a bit is undefined.
    pub const fn from_bits(bits: u32) -> Option<Self> {
        if bits & !Self::ALL.0 == 0 { Some(Self(bits)) } else { None }
    }

    /// The bits of `ibv_qp_attr_mask`.
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// Whether the set is empty.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether it contains the attribute.
    pub const fn contains(self, attribute: Attribute) -> bool {
        self.0 & 1 << attribute as u32 != 0
    }

    /// The attributes, in the order of their bits.
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

    /// The attributes that are not in `other`.
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
