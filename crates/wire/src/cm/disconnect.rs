//! DREQ and DREP: disconnection.

use crate::cm::CommId;
use crate::field::{Octets, header};
use crate::number::{Hex8, Qpn};

header! {
    /// Disconnection request (IBA 12.6.10, table 112). Either side may send it.
    pub struct Dreq("CM DREQ", 232) {
        /// Communication ID of the sender.
        local_comm_id: CommId = 32,
        /// Communication ID of the receiver.
        remote_comm_id: CommId = 32,
        /// The receiver's queue pair or end-to-end context, as a check.
        remote_qpn: Qpn = 24,
        /// Reserved.
        reserved: Hex8 = 8,
        /// Private data of the consumer.
        private_data: Octets<220> = 1760,
    }

    /// Disconnection reply (IBA 12.6.11, table 113).
    pub struct Drep("CM DREP", 232) {
        /// Communication ID of the sender.
        local_comm_id: CommId = 32,
        /// Communication ID of the receiver.
        remote_comm_id: CommId = 32,
        /// Private data of the consumer.
        private_data: Octets<224> = 1792,
    }
}
