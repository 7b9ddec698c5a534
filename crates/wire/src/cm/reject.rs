//! REJ and MRA: no, and not yet.

use crate::cm::{CommId, ReceivedMessage, RejectReason, RejectedMessage, ResponseTimeout};
use crate::field::{Octets, header};

header! {
    /// Reject (IBA 12.6.7, table 108): ends the attempt to connect, or answers a message out of place.
    pub struct Rej("CM REJ", 232) {
        /// The sender's name for the connection; 0 when it never gave it one.
        local_comm_id: CommId = 32,
        /// The receiver's name for it; 0 when the sender could not read it.
        remote_comm_id: CommId = 32,
        /// What is rejected.
        message: RejectedMessage = 2,
        /// Reserved.
        reserved1: u8 = 6,
        /// How many bytes of the additional information count.
        information_length: u8 = 7,
        /// Reserved.
        reserved2: u8 = 1,
        /// Why.
        reason: RejectReason = 16,
        /// What would have been acceptable, by reason (IBA 12.6.7.2).
        information: Octets<72> = 576,
        /// The consumer's bytes.
        private_data: Octets<148> = 1184,
    }

    /// Message receipt acknowledgement (IBA 12.6.6, table 107): the message arrived, and the answer takes longer than
    /// was announced.
    pub struct Mra("CM MRA", 232) {
        /// The sender's name for this connection.
        local_comm_id: CommId = 32,
        /// The receiver's name for it.
        remote_comm_id: CommId = 32,
        /// What arrived.
        message: ReceivedMessage = 2,
        /// Reserved.
        reserved1: u8 = 6,
        /// How long the answer will take at most, from now on.
        service_timeout: ResponseTimeout = 5,
        /// Reserved.
        reserved2: u8 = 3,
        /// The consumer's bytes.
        private_data: Octets<222> = 1776,
    }
}

impl Rej {
    /// The additional information that counts. A length beyond the field is cut to it.
    pub fn information(&self) -> &[u8] {
        super::counted(&self.information.0, self.information_length)
    }
}
