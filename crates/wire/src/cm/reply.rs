//! REP and RTU: the passive side accepts, the active side is ready.

use crate::cm::{CommId, Eecn, Failover, ResponseTimeout, RnrRetry, VendorId};
use crate::field::{Octets, header};
use crate::number::{Guid, Hex8, Psn, QKey, Qpn};

header! {
    /// Reply to request for communication (IBA 12.6.8, table 110): the passive side describes itself.
    pub struct Rep("CM REP", 232) {
        /// The sender's name for this connection.
        local_comm_id: CommId = 32,
        /// The receiver's name for it.
        remote_comm_id: CommId = 32,
        /// The sender's queue key; reliable datagram only.
        local_q_key: QKey = 32,
        /// The sender's queue pair; not that of an XRC target.
        local_qpn: Qpn = 24,
        /// Whose enhancements the MAD's attribute modifier accepts: bits 23 to 16.
        vendor_id_high: Hex8 = 8,
        /// The sender's end-to-end context for reliable datagrams; the queue pair of an XRC target.
        local_eecn: Eecn = 24,
        /// Vendor of the enhancements: bits 15 to 8.
        vendor_id_middle: Hex8 = 8,
        /// The sequence number with which the receiver of this message is to begin sending (IBA 12.7).
        starting_psn: Psn = 24,
        /// Vendor of the enhancements: bits 7 to 0.
        vendor_id_low: Hex8 = 8,
        /// How many RDMA reads and atomics the sender can have under way as responder.
        responder_resources: u8 = 8,
        /// How many RDMA reads and atomics the sender will have under way as requester.
        initiator_depth: u8 = 8,
        /// How long the sender's device may take to acknowledge: the receiver adds it to its ACK timeout.
        target_ack_delay: ResponseTimeout = 5,
        /// What became of the alternate path in the REQ.
        failover: Failover = 2,
        /// The sender's receive queue hands out end-to-end credits.
        end_to_end_flow_control: bool = 1,
        /// How often the receiver shall repeat a request after "receiver not ready".
        rnr_retry_count: RnrRetry = 3,
        /// The sender receives from a shared receive queue.
        shared_receive_queue: bool = 1,
        /// Reserved.
        reserved: u8 = 4,
        /// The sender's device.
        local_ca_guid: Guid = 64,
        /// The consumer's bytes.
        private_data: Octets<196> = 1568,
    }

    /// Ready to use (IBA 12.6.9, table 111): the REP arrived, and the active side is ready to send and receive.
    pub struct Rtu("CM RTU", 232) {
        /// The sender's name for this connection.
        local_comm_id: CommId = 32,
        /// The receiver's name for it.
        remote_comm_id: CommId = 32,
        /// The consumer's bytes.
        private_data: Octets<224> = 1792,
    }
}

impl Rep {
    /// The vendor of the enhancements, which stands in three separate bytes.
    pub const fn vendor_id(&self) -> VendorId {
        VendorId::from_bytes([self.vendor_id_high.0, self.vendor_id_middle.0, self.vendor_id_low.0])
    }

    /// This REP with another vendor.
    #[must_use]
    pub const fn with_vendor_id(mut self, vendor: VendorId) -> Self {
        let [high, middle, low] = vendor.to_bytes();
        self.vendor_id_high = Hex8(high);
        self.vendor_id_middle = Hex8(middle);
        self.vendor_id_low = Hex8(low);
        self
    }
}
