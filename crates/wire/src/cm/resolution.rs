//! SIDR_REQ and SIDR_REP: from a service to the datagram queue pair that offers it.

use crate::cm::{CommId, ServiceId, SidrStatus, VendorId};
use crate::field::{Octets, header};
use crate::number::{Hex8, Hex16, PKey, QKey, Qpn};

header! {
    /// Service ID resolution request (IBA 12.11.1, table 119).
    pub struct SidrReq("CM SIDR_REQ", 232) {
        /// The sender's name for this question.
        request_id: CommId = 32,
        /// The partition in which the service is wanted.
        partition: PKey = 16,
        /// Reserved.
        reserved: Hex16 = 16,
        /// The service that is asked for.
        service_id: ServiceId = 64,
        /// The consumer's bytes; RDMA-CM's IP header comes first in them.
        private_data: Octets<216> = 1728,
    }

    /// Service ID resolution reply (IBA 12.11.2, table 120).
    pub struct SidrRep("CM SIDR_REP", 232) {
        /// The request's name, given back.
        request_id: CommId = 32,
        /// What became of the request.
        status: SidrStatus = 8,
        /// How many bytes of the additional information count.
        information_length: u8 = 8,
        /// Vendor of the enhancements: bits 23 to 8.
        vendor_id_high: Hex16 = 16,
        /// The queue pair that offers the service.
        qpn: Qpn = 24,
        /// Vendor of the enhancements: bits 7 to 0.
        vendor_id_low: Hex8 = 8,
        /// The service, given back.
        service_id: ServiceId = 64,
        /// The queue key that its datagrams must carry.
        q_key: QKey = 32,
        /// Where to ask instead, by status.
        information: Octets<72> = 576,
        /// The consumer's bytes.
        private_data: Octets<136> = 1088,
    }
}

impl SidrRep {
    /// The additional information that counts. A length beyond the field is cut to it.
    pub fn information(&self) -> &[u8] {
        super::counted(&self.information.0, self.information_length)
    }

    /// The vendor of the enhancements, which stands in two places.
    pub const fn vendor_id(&self) -> VendorId {
        let [high, middle] = self.vendor_id_high.0.to_be_bytes();
        VendorId::from_bytes([high, middle, self.vendor_id_low.0])
    }

    /// This reply with another vendor.
    #[must_use]
    pub const fn with_vendor_id(mut self, vendor: VendorId) -> Self {
        let [high, middle, low] = vendor.to_bytes();
        self.vendor_id_high = Hex16(u16::from_be_bytes([high, middle]));
        self.vendor_id_low = Hex8(low);
        self
    }
}
