//! SIDR_REQ and SIDR_REP: resolution of a service ID to a UD queue pair.

use crate::cm::{CommId, ServiceId, SidrStatus, VendorId};
use crate::field::{Octets, header};
use crate::number::{Hex8, Hex16, PKey, QKey, Qpn};

header! {
    /// Service ID resolution request (IBA 12.11.1, table 119).
    pub struct SidrReq("CM SIDR_REQ", 232) {
        /// Request ID.
        request_id: CommId = 32,
        /// Partition key.
        partition: PKey = 16,
        /// Reserved.
        reserved: Hex16 = 16,
        /// The requested service.
        service_id: ServiceId = 64,
        /// Private data of the consumer, starting with the RDMA-CM IP header.
        private_data: Octets<216> = 1728,
    }

    /// Service ID resolution reply (IBA 12.11.2, table 120).
    pub struct SidrRep("CM SIDR_REP", 232) {
        /// Request ID, echoed.
        request_id: CommId = 32,
        /// Outcome of the request.
        status: SidrStatus = 8,
        /// Length of the additional information in bytes.
        information_length: u8 = 8,
        /// Vendor of the enhancements: bits 23 to 8.
        vendor_id_high: Hex16 = 16,
        /// Queue pair of the service.
        qpn: Qpn = 24,
        /// Vendor of the enhancements: bits 7 to 0.
        vendor_id_low: Hex8 = 8,
        /// The service, echoed.
        service_id: ServiceId = 64,
        /// Q_Key of the service.
        q_key: QKey = 32,
        /// Additional information, such as a redirection, depending on the status.
        information: Octets<72> = 576,
        /// Private data of the consumer.
        private_data: Octets<136> = 1088,
    }
}

impl SidrRep {
    /// The valid part of the additional information; the length is limited to the field.
    pub fn information(&self) -> &[u8] {
        super::counted(&self.information.0, self.information_length)
    }

    /// The vendor of the enhancements, stored in two parts.
    pub const fn vendor_id(&self) -> VendorId {
        let [high, middle] = self.vendor_id_high.0.to_be_bytes();
        VendorId::from_bytes([high, middle, self.vendor_id_low.0])
    }

    /// Returns the reply with another vendor.
    #[must_use]
    pub const fn with_vendor_id(mut self, vendor: VendorId) -> Self {
        let [high, middle, low] = vendor.to_bytes();
        self.vendor_id_high = Hex16(u16::from_be_bytes([high, middle]));
        self.vendor_id_low = Hex8(low);
        self
    }
}
