//! REJ and MRA: rejection and delayed response.

use crate::cm::{CommId, ReceivedMessage, RejectReason, RejectedMessage, ResponseTimeout};
use crate::field::{Octets, header};

header! {
    /// Reject (IBA 12.6.7, table 108): ends a connection attempt, or responds to an unexpected message.
    pub struct Rej("CM REJ", 232) {
        /// Communication ID of the sender; 0 if it has none.
        local_comm_id: CommId = 32,
        /// Communication ID of the receiver; 0 if unknown.
        remote_comm_id: CommId = 32,
        /// The rejected message.
        message: RejectedMessage = 2,
        /// Reserved.
        reserved1: u8 = 6,
        /// Length of the additional information in bytes.
        information_length: u8 = 7,
        /// Reserved.
        reserved2: u8 = 1,
        /// The reason.
        reason: RejectReason = 16,
        /// Additional information, such as acceptable values, depending on the reason (IBA 12.6.7.2).
        information: Octets<72> = 576,
        /// Private data of the consumer.
        private_data: Octets<148> = 1184,
    }

    /// Message receipt acknowledgement (IBA 12.6.6, table 107): the message arrived, and the response takes longer than
    /// announced.
    pub struct Mra("CM MRA", 232) {
        /// Communication ID of the sender.
        local_comm_id: CommId = 32,
        /// Communication ID of the receiver.
        remote_comm_id: CommId = 32,
        /// The acknowledged message.
        message: ReceivedMessage = 2,
        /// Reserved.
        reserved1: u8 = 6,
        /// Maximum time until the response.
        service_timeout: ResponseTimeout = 5,
        /// Reserved.
        reserved2: u8 = 3,
        /// Private data of the consumer.
        private_data: Octets<222> = 1776,
    }
}

impl Rej {
    /// The valid part of the additional information; the length is limited to the field.
    pub fn information(&self) -> &[u8] {
        super::counted(&self.information.0, self.information_length)
    }
}
