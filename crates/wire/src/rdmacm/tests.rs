use std::format;
use std::string::ToString;

use proptest::prelude::*;

use super::*;
use crate::cm::captured;
use crate::cm::{CmMessage, Req, SidrReq};
use crate::field::{Header, Meaning, Value};
use crate::mad::Mad;

fn message(text: &str) -> CmMessage {
    CmMessage::from_mad(&Mad::parse(&captured::mad(text)).unwrap()).unwrap()
}

fn split(message: &CmMessage) -> Result<(IpHeader, &[u8]), NoIpHeader> {
    split_private_data(message.service_id().unwrap(), message.private_data())
}

#[test]
fn captured_headers_have_the_values_that_tshark_shows() {
    let (client, server) = (Ipv4Addr::new(10, 77, 0, 12), Ipv4Addr::new(10, 77, 0, 11));
    let req = message(captured::REQ);
    let (header, consumer) = split(&req).unwrap();
    assert_eq!(header, IpHeader::v4(0x97af, client, server));
    assert_eq!(header.source_ip(), Some(client.into()));
    assert_eq!(header.destination_ip(), Some(server.into()));
    assert_eq!(consumer, [0; 56]);

    let sidr = message(captured::SIDR_REQ);
    let (header, consumer) = split(&sidr).unwrap();
    assert_eq!(header, IpHeader::v4(0x92d0, client, server));
    assert_eq!(consumer, [0; 180]);

    let req = message(captured::REQ_V6);
    let (header, _) = split(&req).unwrap();
    let [client, server] = ["fd77::12", "fd77::11"].map(|text| text.parse::<Ipv6Addr>().unwrap());
    assert_eq!(header, IpHeader::v6(0xc73c, client, server));
    assert_eq!(header.source_ip(), Some(client.into()));
}

#[test]
fn the_rest_belongs_to_the_consumer() {
    let req = message(captured::REQ_RSTREAM);
    let (header, consumer) = split(&req).unwrap();
    assert_eq!(consumer.len(), 56);
    assert_eq!(consumer[..4], [1, 2, 1, 0x80]);
    assert_eq!(private_data::<92>(&header, &consumer[..40]).unwrap()[..], *req.private_data());
}

#[test]
fn private_data_is_padded_to_its_size() {
    let header = IpHeader::v4(1, Ipv4Addr::LOCALHOST, Ipv4Addr::LOCALHOST);
    assert!(private_data::<92>(&header, &[1; 56]).is_some());
    assert!(private_data::<92>(&header, &[1; 57]).is_none());
    assert!(private_data::<216>(&header, &[1; 180]).is_some());
    assert!(private_data::<216>(&header, &[1; 181]).is_none());
    assert!(private_data::<35>(&header, &[]).is_none());
    let service_id = service_id(PortSpace::Tcp, 7174);
    let octets = private_data(&header, b"hello").unwrap();
    let req: CmMessage = Req { service_id, private_data: octets, ..Req::default() }.into();
    assert_eq!(split(&req).unwrap().1.strip_prefix(b"hello"), Some(&[0; 51][..]));
    let octets = private_data(&header, b"hello").unwrap();
    let sidr: CmMessage = SidrReq { service_id, private_data: octets, ..SidrReq::default() }.into();
    assert_eq!(split(&sidr).unwrap().1.len(), 180);
}

#[test]
fn service_ids_encode_port_spaces() {
    assert_eq!(service_id(PortSpace::Tcp, 0x1c06).0, 0x0000_0000_0106_1c06);
    assert_eq!(service_id(PortSpace::Udp, 0x1c06).0, 0x0000_0000_0111_1c06);
    assert_eq!(service_id(PortSpace::Ib, 1).0, 0x0000_0000_013f_0001);
    assert_eq!(service_id(PortSpace::Ipoib, 1).0, 0x0000_0000_0002_0001);
    for foreign in [0, 0x0001_0001, 0x0107_0001, 0x1_0106_1c06, 0x0200_0000_0106_1c06, u64::MAX] {
        assert_eq!(split_service_id(ServiceId(foreign)), None, "{foreign:#x}");
    }
    let meaning = |id| Meaning(&ServiceId(id)).to_string();
    assert_eq!(meaning(0x0000_0000_0111_1c06), "RDMA-CM, UDP port 7174");
    assert_eq!(meaning(0x0200_0000_0000_0001), "locally administered");
}

#[test]
fn missing_headers_are_reported_with_the_cause() {
    let service = service_id(PortSpace::Tcp, 1);
    let header = IpHeader::v4(1, Ipv4Addr::LOCALHOST, Ipv4Addr::LOCALHOST);
    let foreign = ServiceId(0x1234);
    let bytes = header.to_bytes();
    assert_eq!(split_private_data(foreign, &bytes), Err(NoIpHeader::Service(foreign)));
    assert_eq!(split_private_data(service, &bytes[..35]), Err(NoIpHeader::Length(35)));
    let with = |header: IpHeader| split_private_data(service, &header.to_bytes()).map(|_| ());
    assert_eq!(with(IpHeader { major_version: 1, ..header }), Err(NoIpHeader::Version(1)));
    assert_eq!(with(IpHeader { ip_version: 0, ..header }), Err(NoIpHeader::IpVersion(0)));
    assert_eq!(with(IpHeader { minor_version: 1, ..header }), Ok(()));
}

#[test]
fn addresses_are_displayed_by_family() {
    let shown = |address: PaddedAddress| Value(&address).to_string();
    assert_eq!(shown(Ipv4Addr::new(10, 77, 0, 12).into()), "10.77.0.12");
    assert_eq!(shown(Ipv6Addr::LOCALHOST.into()), "::1");
    assert_eq!(shown("fd77::12".parse::<Ipv6Addr>().unwrap().into()), "fd77::12");
}

#[test]
fn the_documentation_lists_the_header() {
    let document = include_str!("../../../../docs/connection-manager.md");
    for spec in <IpHeader as Header>::FIELDS {
        let bit = if spec.bit % 8 == 0 { "" } else { ".4" };
        let row =
            format!("| {}{bit} | {} | {} | {} |", spec.bit / 8, spec.width, spec.name, spec.doc);
        assert!(document.lines().any(|line| line == row), "no line {row}");
    }
}

proptest! {
    #[test]
    fn emit_is_the_inverse_of_parse(bytes in any::<[u8; 32]>(), head in any::<[u8; 4]>()) {
        let mut whole = [0; IpHeader::LEN];
        whole[..4].copy_from_slice(&head);
        whole[4..].copy_from_slice(&bytes);
        prop_assert_eq!(IpHeader::parse(&whole).to_bytes(), whole);
    }

    #[test]
    fn service_ids_round_trip(port: u16, space in proptest::sample::select(&PortSpace::ALL[..])) {
        prop_assert_eq!(split_service_id(service_id(space, port)), Some((space, port)));
    }
}
