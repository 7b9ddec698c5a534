//! REP and RTU: connection reply and ready to use.

use crate::cm::{CommId, Eecn, Failover, ResponseTimeout, RnrRetry, VendorId};
use crate::field::{Octets, header};
use crate::number::{Guid, Hex8, Psn, QKey, Qpn};

header! {
    /// Reply to request for communication (IBA 12.6.8, table 110), sent by the passive side.
    pub struct Rep("CM REP", 232) {
        /// Communication ID of the sender.
        local_comm_id: CommId = 32,
        /// Communication ID of the receiver.
        remote_comm_id: CommId = 32,
        /// Q_Key of the sender; reliable datagram only.
        local_q_key: QKey = 32,
        /// The sender's queue pair, except for an XRC target.
        local_qpn: Qpn = 24,
        /// Vendor of the enhancements accepted in the MAD's attribute modifier: bits 23 to 16.
        vendor_id_high: Hex8 = 8,
        /// The sender's end-to-end context for reliable datagrams; the queue pair of an XRC target.
        local_eecn: Eecn = 24,
        /// Vendor of the enhancements: bits 15 to 8.
        vendor_id_middle: Hex8 = 8,
        /// Starting PSN that the receiver of this message must use for sending (IBA 12.7).
        starting_psn: Psn = 24,
        /// Vendor of the enhancements: bits 7 to 0.
        vendor_id_low: Hex8 = 8,
        /// Maximum RDMA READs and atomics in flight of the sender as responder.
        responder_resources: u8 = 8,
        /// Maximum RDMA READs and atomics in flight of the sender as requester.
        initiator_depth: u8 = 8,
        /// Maximum ACK delay of the sender's device, which the receiver adds to its ACK timeout.
        target_ack_delay: ResponseTimeout = 5,
        /// Outcome of the alternate path in the REQ.
        failover: Failover = 2,
        /// The sender's receive queue uses end-to-end credits.
        end_to_end_flow_control: bool = 1,
        /// Retry count of the receiver after RNR NAKs.
        rnr_retry_count: RnrRetry = 3,
        /// The sender uses an SRQ.
        shared_receive_queue: bool = 1,
        /// Reserved.
        reserved: u8 = 4,
        /// GUID of the sender's device.
        local_ca_guid: Guid = 64,
        /// Private data of the consumer.
        private_data: Octets<196> = 1568,
    }

    /// Ready to use (IBA 12.6.9, table 111), sent by the active side after the REP.
    pub struct Rtu("CM RTU", 232) {
        /// Communication ID of the sender.
        local_comm_id: CommId = 32,
        /// Communication ID of the receiver.
        remote_comm_id: CommId = 32,
        /// Private data of the consumer.
        private_data: Octets<224> = 1792,
    }
}

impl Rep {
    /// The vendor of the enhancements, stored in three separate bytes.
    pub const fn vendor_id(&self) -> VendorId {
        VendorId::from_bytes([self.vendor_id_high.0, self.vendor_id_middle.0, self.vendor_id_low.0])
    }

    /// Returns the REP with another vendor.
    #[must_use]
    pub const fn with_vendor_id(mut self, vendor: VendorId) -> Self {
        let [high, middle, low] = vendor.to_bytes();
        self.vendor_id_high = Hex8(high);
        self.vendor_id_middle = Hex8(middle);
        self.vendor_id_low = Hex8(low);
        self
    }
}
