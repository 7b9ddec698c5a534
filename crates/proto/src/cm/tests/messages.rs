//! Private data and parse errors.

use super::super::{
    DrepData, DreqData, Ignored, MraData, PrivateDataTooLong, RejData, RepData, ReqData, RtuData,
    SidrRepData, SidrReqData, private_data, rdmacm_private_data,
};
use super::{at, gid, manager};
use ferroce_wire::cm::CommId;
use ferroce_wire::field::Octets;
use ferroce_wire::mad::MadError;
use ferroce_wire::rdmacm::IpHeader;
use std::string::ToString;

/// Asserts that exactly `N` bytes fit.
fn assert_capacity<const N: usize>(capacity: usize, _: Octets<N>) {
    assert_eq!(N, capacity);
    let bytes = [7; 256];
    assert_eq!(private_data::<N>(&bytes[..N]).unwrap().0, bytes[..N]);
    let too_long = PrivateDataTooLong { length: N + 1, capacity: N };
    assert_eq!(private_data::<N>(&bytes[..N + 1]), Err(too_long));
}

#[test]
fn each_message_has_its_private_data_size() {
    assert_capacity(92, ReqData::default());
    assert_capacity(196, RepData::default());
    assert_capacity(224, RtuData::default());
    assert_capacity(148, RejData::default());
    assert_capacity(222, MraData::default());
    assert_capacity(220, DreqData::default());
    assert_capacity(224, DrepData::default());
    assert_capacity(216, SidrReqData::default());
    assert_capacity(136, SidrRepData::default());
}

#[test]
fn the_rdma_cm_header_reduces_the_private_data_size() {
    let header = IpHeader::default();
    let bytes = [9; 256];
    assert!(rdmacm_private_data::<92>(&header, &bytes[..56]).is_ok());
    let too_long = PrivateDataTooLong { length: 57, capacity: 56 };
    assert_eq!(rdmacm_private_data::<92>(&header, &bytes[..57]), Err(too_long));
    assert_eq!(too_long.to_string(), "57 bytes of private data exceed the limit of 56");
    assert!(rdmacm_private_data::<216>(&header, &bytes[..180]).is_ok());
    assert!(rdmacm_private_data::<216>(&header, &bytes[..181]).is_err());
}

#[test]
fn every_parse_error_is_distinct() {
    let mut manager = manager(11);
    let short = manager.handle_mad(at(0), gid(12), &[1; 255]);
    assert_eq!(short, Err(Ignored::NotMad(MadError::Length(255))));
    let version = manager.handle_mad(at(0), gid(12), &[0; 256]);
    assert_eq!(version, Err(Ignored::NotMad(MadError::BaseVersion(0))));
    let mut mad = [0; 256];
    mad[..4].copy_from_slice(&[1, 3, 2, 3]);
    assert!(matches!(manager.handle_mad(at(0), gid(12), &mad), Err(Ignored::NotMessage(_))));
    mad[..4].copy_from_slice(&[1, 7, 2, 3]);
    let attribute = manager.handle_mad(at(0), gid(12), &mad);
    assert!(attribute.unwrap_err().to_string().contains("attribute"));
    mad[17] = 0x1a;
    assert_eq!(manager.handle_mad(at(0), gid(12), &mad), Err(Ignored::Unknown(CommId(0))));
    assert_eq!((manager.poll_transmit(), manager.poll_timeout()), (None, None));
}
