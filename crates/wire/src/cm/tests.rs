use core::time::Duration;
use std::format;
use std::string::{String, ToString};
use std::vec::Vec;

use proptest::prelude::*;

use super::captured::{self, mad};
use super::*;
use crate::address::Gid;
use crate::field::{Meaning, Octets, Value};
use crate::mad::{MadError, MadStatus};
use crate::number::{Guid, Hex8, Lid, PKey, Psn, QKey, Qpn};
use crate::rdmacm;

fn message(text: &str) -> CmMessage {
    let bytes = mad(text);
    let mad = Mad::parse(&bytes).unwrap();
    assert_eq!(mad.to_bytes(), bytes);
    CmMessage::from_mad(&mad).unwrap()
}

/// Fields, values and meanings of a message.
fn shown(message: &CmMessage) -> Vec<(&'static str, String, String)> {
    let mut fields = Vec::new();
    message.visit(&mut |spec, value| {
        fields.push((spec.name, Value(value).to_string(), Meaning(value).to_string()));
    });
    fields
}

fn gid(address: &str) -> Gid {
    Gid::from_ip(address.parse().unwrap())
}

#[test]
fn captured_mads_round_trip() {
    for text in captured::ALL {
        let bytes = mad(text);
        let mad = Mad::parse(&bytes).unwrap();
        let message = CmMessage::from_mad(&mad).unwrap();
        assert_eq!(message.to_mad(mad.header.transaction), bytes, "{}", message.name());
    }
}

#[test]
fn captured_req_has_the_values_that_tshark_shows() {
    let CmMessage::Req(req) = message(captured::REQ) else { panic!("a REQ") };
    let path = Path {
        local_lid: Lid(0xffff),
        remote_lid: Lid(0xffff),
        local_gid: gid("10.77.0.12"),
        remote_gid: gid("10.77.0.11"),
        // tshark 4.0 reads three bytes here and shows 0x27a, and the first byte as the rate.
        flow_label: 0x27a37,
        hop_limit: 64,
        ack_timeout: AckTimeout(0x13),
        ..Path::default()
    };
    let expected = Req {
        local_comm_id: CommId(0xea97_7e3f),
        service_id: rdmacm::service_id(rdmacm::PortSpace::Tcp, 0x1c06),
        local_ca_guid: Guid(0x5054_00ff_fe77_0012),
        local_qpn: Qpn(0x1a),
        responder_resources: 1,
        initiator_depth: 1,
        remote_response_timeout: ResponseTimeout(0x14),
        starting_psn: Psn(0xbb_5a9b),
        local_response_timeout: ResponseTimeout(0x14),
        retry_count: 7,
        partition: PKey(0xffff),
        path_mtu: PathMtu::MTU_4096,
        rnr_retry_count: RnrRetry::FOR_EVER,
        max_cm_retries: 15,
        private_data: req.private_data,
        ..Req::default()
    };
    assert_eq!(req, expected.with_primary_path(&path));
    assert_eq!(req.primary_path(), path);
    assert_eq!(req.alternate_path(), None);
    assert_eq!(req.transport(), Some(Transport::Rc));
    assert_eq!(req.remote_response_timeout.duration(), Duration::from_nanos(4_294_967_296));
}

#[test]
fn captured_rep_has_the_values_that_tshark_shows() {
    let expected = Rep {
        local_comm_id: CommId(0xeb97_7e3f),
        remote_comm_id: CommId(0xea97_7e3f),
        local_qpn: Qpn(0x1a),
        starting_psn: Psn(0x71_75ab),
        responder_resources: 1,
        initiator_depth: 1,
        target_ack_delay: ResponseTimeout(0x0f),
        failover: Failover::ACCEPTED,
        rnr_retry_count: RnrRetry(7),
        local_ca_guid: Guid(0x5054_00ff_fe77_0011),
        ..Rep::default()
    };
    assert_eq!(message(captured::REP), expected.into());
}

#[test]
fn captured_short_messages_have_the_values_that_tshark_shows() {
    let (client, server) = (CommId(0xea97_7e3f), CommId(0xeb97_7e3f));
    let rtu = Rtu { local_comm_id: client, remote_comm_id: server, ..Rtu::default() };
    assert_eq!(message(captured::RTU), rtu.into());
    let dreq = Dreq {
        local_comm_id: client,
        remote_comm_id: server,
        remote_qpn: Qpn(0x1a),
        ..Dreq::default()
    };
    assert_eq!(message(captured::DREQ), dreq.into());
    let drep = Drep { local_comm_id: server, remote_comm_id: client, ..Drep::default() };
    assert_eq!(message(captured::DREP), drep.into());
    let rej = Rej {
        remote_comm_id: CommId(0xec97_7e3f),
        message: RejectedMessage::REQ,
        reason: RejectReason::INVALID_SERVICE_ID,
        ..Rej::default()
    };
    assert_eq!(message(captured::REJ), rej.into());
}

#[test]
fn captured_service_resolution_is_parsed() {
    let service = rdmacm::service_id(rdmacm::PortSpace::Udp, 7174);
    let question = message(captured::SIDR_REQ);
    let CmMessage::SidrReq(req) = question else { panic!("a SIDR_REQ") };
    assert_eq!((req.partition, req.service_id), (PKey(0xffff), service));
    let expected = SidrRep {
        request_id: req.request_id,
        status: SidrStatus::VALID,
        qpn: Qpn(0x1c),
        service_id: service,
        q_key: QKey(0x0123_4567),
        ..SidrRep::default()
    };
    let answer = message(captured::SIDR_REP);
    assert_eq!(answer, expected.into());
    assert_eq!(answer.remote_comm_id(), question.local_comm_id());
}

#[test]
fn req_fields_have_values_and_meanings() {
    let fields = shown(&message(captured::REQ));
    let field = |name| {
        let (_, value, meaning) = fields.iter().find(|field| field.0 == name).unwrap();
        (value.as_str(), meaning.as_str())
    };
    assert_eq!(field("service_id"), ("0x0000000001061c06", "RDMA-CM, TCP port 7174"));
    assert_eq!(field("local_comm_id"), ("0xea977e3f", ""));
    assert_eq!(field("remote_response_timeout"), ("0x14", "4.295s"));
    assert_eq!(field("transport_service"), ("0x0", "reliable connection"));
    assert_eq!(field("path_mtu"), ("0x5", "4096 bytes"));
    assert_eq!(field("rnr_retry_count"), ("0x7", "for ever"));
    assert_eq!(field("primary_local_gid"), ("::ffff:10.77.0.12", "IPv4, mapped"));
    assert_eq!(field("primary_packet_rate"), ("0x00", "not given"));
    assert_eq!(field("alternate_ack_timeout"), ("0x00", "no timeout"));
}

/// Offsets and widths from the IBA tables, for fields that an earlier wrong width would move.
#[test]
fn fields_are_at_the_specified_offsets() {
    let at = |message: CmMessage, name: &str| {
        let spec = message.fields().iter().find(|spec| spec.name == name).unwrap();
        (spec.bit / 8, spec.bit % 8, spec.width)
    };
    let req: CmMessage = Req::default().into();
    assert_eq!(at(req, "local_q_key"), (28, 0, 32));
    assert_eq!(at(req, "transport_service"), (43, 5, 2));
    assert_eq!(at(req, "retry_count"), (47, 5, 3));
    assert_eq!(at(req, "rdc_exists"), (50, 4, 1));
    assert_eq!(at(req, "extended_transport"), (51, 5, 3));
    assert_eq!(at(req, "primary_packet_rate"), (91, 2, 6));
    assert_eq!(at(req, "primary_subnet_local"), (94, 4, 1));
    assert_eq!(at(req, "alternate_local_lid"), (96, 0, 16));
    assert_eq!(at(req, "alternate_ack_timeout"), (139, 0, 5));
    assert_eq!(at(req, "suggested_path_supported"), (139, 5, 1));
    assert_eq!(at(Rep::default().into(), "failover"), (26, 5, 2));
    assert_eq!(at(Rep::default().into(), "shared_receive_queue"), (27, 3, 1));
    assert_eq!(at(Rej::default().into(), "information_length"), (9, 0, 7));
    assert_eq!(at(Mra::default().into(), "service_timeout"), (9, 0, 5));
    assert_eq!(at(Lap::default().into(), "remote_response_timeout"), (15, 0, 5));
    assert_eq!(at(Lap::default().into(), "alternate_packet_rate"), (61, 2, 6));
    assert_eq!(at(Lap::default().into(), "alternate_ack_timeout"), (63, 0, 5));
    assert_eq!(at(Apr::default().into(), "status"), (9, 0, 8));
    assert_eq!(at(SidrReq::default().into(), "service_id"), (8, 0, 64));
    assert_eq!(at(SidrRep::default().into(), "vendor_id_low"), (11, 0, 8));
    assert_eq!(at(SidrRep::default().into(), "q_key"), (20, 0, 32));

    // Each message ends with its private data.
    let room = [92, 222, 148, 196, 224, 220, 224, 216, 136, 168, 148];
    for (&attribute, room) in CmMessage::ATTRIBUTES.iter().zip(room) {
        let message = CmMessage::parse(attribute, &[0; DATA_LEN]).unwrap();
        assert_eq!(message.attribute(), attribute);
        assert_eq!(at(message, "private_data"), (DATA_LEN - room, 0, room * 8));
        assert_eq!(message.private_data().len(), room);
    }
}

#[test]
fn the_documentation_lists_every_message() {
    let document = include_str!("../../../../docs/connection-manager.md");
    for &attribute in CmMessage::ATTRIBUTES {
        let message = CmMessage::parse(attribute, &[0; DATA_LEN]).unwrap();
        let (name, length) = (&message.name()["CM ".len()..], message.private_data().len());
        let row = format!("| {name} | {attribute} | {length} |");
        assert!(document.lines().any(|line| line.starts_with(&row)), "no line {row}");
    }
    let reasons = format!("one of {} reasons", RejectReason::ALL.len());
    assert!(document.contains(&reasons), "not {reasons}");
}

#[test]
fn paths_of_req_and_lap_round_trip() {
    let path = Path {
        local_lid: Lid(0x1234),
        remote_lid: Lid(0x4321),
        local_gid: gid("fd77::12"),
        remote_gid: gid("fd77::11"),
        flow_label: 0xf_1234,
        packet_rate: PacketRate::GBPS_100,
        traffic_class: Hex8(0x60),
        hop_limit: 63,
        service_level: 5,
        subnet_local: true,
        ack_timeout: AckTimeout(18),
        ..Path::default()
    };
    let req = Req::default().with_primary_path(&path);
    assert_eq!((req.primary_path(), req.alternate_path()), (path, None));
    assert_eq!(req.primary_traffic_class, Hex8(0x60));
    let req = Req::default().with_alternate_path(&path);
    assert_eq!((req.primary_path(), req.alternate_path()), (Path::default(), Some(path)));
    assert_eq!(req.alternate_packet_rate, PacketRate::GBPS_100);
    let lap = Lap::default().with_alternate_path(&path);
    assert_eq!(lap.alternate_path(), path);
    assert_eq!(Lap::parse(&lap.to_bytes()).alternate_path(), path);
}

#[test]
fn all_reject_reasons_are_defined() {
    let codes: Vec<u16> = RejectReason::ALL.iter().map(|reason| reason.0).collect();
    let expected: Vec<u16> = (1..=33).chain([35]).collect();
    assert_eq!(codes, expected);
    let meanings: std::collections::HashSet<_> =
        RejectReason::ALL.iter().map(|reason| Meaning(reason).to_string()).collect();
    assert_eq!(meanings.len(), codes.len());
    assert_eq!(Meaning(&RejectReason(34)).to_string(), "reserved");
    assert_eq!(Meaning(&RejectReason::CONSUMER_REJECT).to_string(), "rejected by the consumer");
}

#[test]
fn additional_information_is_bounded() {
    let information = Octets([7; 72]);
    for length in 0..=u8::MAX {
        let rej = Rej { information, information_length: length & 0x7f, ..Rej::default() };
        assert_eq!(rej.information().len(), usize::from(length & 0x7f).min(72));
        let apr = Apr { information, information_length: length, ..Apr::default() };
        let rep = SidrRep { information, information_length: length, ..SidrRep::default() };
        // An excessive length yields the whole field.
        assert_eq!(apr.information().len(), usize::from(length).min(72));
        assert_eq!(rep.information().len(), usize::from(length).min(72));
    }
}

#[test]
fn timeouts_double_per_code() {
    assert_eq!(ResponseTimeout(0).duration(), Duration::from_nanos(4096));
    assert_eq!(ResponseTimeout(31).duration(), Duration::from_nanos(4096 << 31));
    assert_eq!(AckTimeout::NEVER.duration(), None);
    assert_eq!(AckTimeout(14).duration(), Some(Duration::from_nanos(67_108_864)));
    for code in 0..32 {
        assert_eq!(ResponseTimeout::at_least(ResponseTimeout(code).duration()).0, code);
    }
    assert_eq!(ResponseTimeout::at_least(Duration::from_secs(1)).0, 18);
    assert_eq!(ResponseTimeout::at_least(Duration::MAX).0, 31);
    assert_eq!(AckTimeout::at_least(Duration::ZERO), AckTimeout(1));
}

#[test]
fn path_mtu_codes_round_trip() {
    for (code, bytes) in [(1, 256), (2, 512), (3, 1024), (4, 2048), (5, 4096)] {
        assert_eq!(PathMtu(code).bytes(), Some(bytes));
        assert_eq!(PathMtu::from_bytes(bytes), Some(PathMtu(code)));
    }
    assert_eq!((PathMtu(0).bytes(), PathMtu(6).bytes()), (None, None));
    assert_eq!(PathMtu::from_bytes(1500), None);
}

#[test]
fn transport_codes_round_trip() {
    for transport in [Transport::Rc, Transport::Uc, Transport::Rd, Transport::Xrc] {
        let (service, extended) = transport.codes();
        assert_eq!(Transport::from_codes(service, extended), Some(transport));
    }
    assert_eq!(Transport::from_codes(TransportService::EXTENDED, ExtendedTransport(2)), None);
}

#[test]
fn vendor_ids_round_trip() {
    let vendor = VendorId(0x12_3456);
    let rep = Rep::default().with_vendor_id(vendor);
    assert_eq!((rep.vendor_id(), rep.vendor_id_middle), (vendor, Hex8(0x34)));
    let rep = SidrRep::default().with_vendor_id(vendor);
    assert_eq!((rep.vendor_id(), rep.vendor_id_low), (vendor, Hex8(0x56)));
}

#[test]
fn invalid_mads_are_rejected_with_the_cause() {
    let bytes = mad(captured::RTU);
    assert_eq!(Mad::parse(&bytes[..255]), Err(MadError::Length(255)));
    assert_eq!(Mad::parse(&[]), Err(MadError::Length(0)));
    let with = |at: usize, value: u8| {
        let mut bytes = bytes;
        bytes[at] = value;
        bytes
    };
    assert_eq!(Mad::parse(&with(0, 2)), Err(MadError::BaseVersion(2)));
    let error =
        |bytes: [u8; MAD_LEN]| CmMessage::from_mad(&Mad::parse(&bytes).unwrap()).unwrap_err();
    assert_eq!(error(with(1, 3)), MessageError::Class(ManagementClass::SUBNET_ADMINISTRATION));
    assert_eq!(error(with(2, 1)), MessageError::ClassVersion(1));
    assert_eq!(error(with(3, 0x81)), MessageError::Method(Method::GET_RESPONSE));
    assert_eq!(error(with(17, 0x1b)), MessageError::Attribute(AttributeId(0x1b)));
    assert!(Method::GET_RESPONSE.is_response() && !Method::SEND.is_response());
    assert_eq!(Meaning(&MadStatus(0x1c)).to_string(), "invalid value in attribute or modifier");
}

fn bytes<const N: usize>() -> impl Strategy<Value = [u8; N]> {
    proptest::collection::vec(any::<u8>(), N).prop_map(|bytes| bytes.try_into().unwrap())
}

proptest! {
    /// Random bytes randomize every field, so both directions are covered.
    #[test]
    fn emit_is_the_inverse_of_parse(bytes in bytes::<DATA_LEN>()) {
        for &attribute in CmMessage::ATTRIBUTES {
            let message = CmMessage::parse(attribute, &bytes).unwrap();
            prop_assert_eq!(message.to_bytes(), bytes);
            prop_assert_eq!(CmMessage::parse(message.attribute(), &message.to_bytes()), Ok(message));
            prop_assert!(bytes.ends_with(message.private_data()));
            prop_assert_eq!(shown(&message).len(), message.fields().len());
        }
    }

    #[test]
    fn any_mad_is_parsed_or_rejected(version in 0u8..3, rest in proptest::collection::vec(any::<u8>(), 253..258)) {
        let bytes: Vec<u8> = [version].into_iter().chain(rest).collect();
        match Mad::parse(&bytes) {
            Ok(mad) => prop_assert_eq!(&mad.to_bytes()[..], &bytes[..]),
            Err(MadError::Length(found)) => prop_assert_eq!(found, bytes.len()),
            Err(MadError::BaseVersion(found)) => prop_assert_eq!(found, version),
        }
    }

    #[test]
    fn paths_of_a_req_are_parts_of_it(bytes in bytes::<DATA_LEN>()) {
        let req = Req::parse(&bytes);
        prop_assert_eq!(req.with_primary_path(&req.primary_path()), req);
        if let Some(path) = req.alternate_path() {
            prop_assert_eq!(req.with_alternate_path(&path), req);
        }
    }
}
