//! Migration between channels, ECE options, and the fields of CM messages.

use std::fs::File;

use ferroce::cm::{
    ConnectParameters, Enhancements, EventChannel, EventKind, PortSpace, RejectReason, VendorId,
};
use ferroce::{AckTimeout, Options, Qpn};
use ferroce_trace::file::CaptureReader;
use ferroce_wire::cm::CmMessage;
use ferroce_wire::mad::{MAD_LEN, Mad};

use crate::ends::*;
use crate::other::port;

#[test]
fn pending_events_move_to_the_new_channel() {
    let (first, second) = (channel(), channel());
    let (listening, address) = listener(&first, PortSpace::Tcp, V4, 1);
    let id = resolved(&first, PortSpace::Tcp, address);
    let end = equip(&id);
    id.connect(&ConnectParameters::default()).unwrap();
    // A pending request moves with its listener, and so does its cm_id.
    let deadline = ferroce_sys::clock::now() + 20_000_000_000;
    let mut poller = ferroce_sys::Poller::new();
    poller.watch(&first, ferroce_sys::Interest::Read);
    assert_eq!(poller.wait(Some(deadline)).unwrap(), 1);
    listening.migrate(&second);
    assert!(first.try_event().unwrap().is_none());
    let request = expect!(second, listening, EventKind::ConnectRequest(request) => request);
    let other = equip(&request.id);
    request.id.accept(&ConnectParameters::default()).unwrap();
    expect!(first, id, EventKind::Established(_));
    expect!(second, request.id, EventKind::Established(_));
    id.migrate(&second);
    request.id.migrate(&first);
    id.disconnect().unwrap();
    expect!(second, id, EventKind::Disconnected(_));
    expect!(first, request.id, EventKind::Disconnected(_));
    drop((end, other));
}

#[test]
fn enhancements_are_offered_and_accepted() {
    let events = channel();
    let (listening, address) = listener(&events, PortSpace::Tcp, V4, 1);
    let vendor = VendorId(0x15b3);
    let with = |options, number| ConnectParameters {
        enhancements: Enhancements { vendor, options },
        queue_pair: Some(Qpn(number)),
        ..ConnectParameters::default()
    };
    let id = resolved(&events, PortSpace::Tcp, address);
    id.connect(&with(0xdead_beef, 100)).unwrap();
    let request = expect!(events, listening, EventKind::ConnectRequest(request) => request);
    assert_eq!(request.parameters.enhancements, Enhancements { vendor, options: 0xdead_beef });
    request.id.accept(&with(7, 101)).unwrap();
    let response = expect!(events, id, EventKind::ConnectResponse(response) => response);
    assert_eq!(response.parameters.enhancements, Enhancements { vendor, options: 7 });

    let id = resolved(&events, PortSpace::Tcp, address);
    id.connect(&with(1, 102)).unwrap();
    // The first cm_id's disconnect event comes between the two.
    let request = loop {
        match next(&events).kind {
            EventKind::ConnectRequest(request) => break request,
            other => drop(other),
        }
    };
    request.id.reject_for(RejectReason::VENDOR_OPTION_NOT_SUPPORTED, &[]).unwrap();
    let reason = expect!(events, id, EventKind::Rejected { reason, .. } => reason);
    assert_eq!(reason, RejectReason::VENDOR_OPTION_NOT_SUPPORTED);
}

/// As with rdma_rxe: with the traffic class of the connection, and not ECN-capable.
#[test]
fn messages_have_the_traffic_class_of_their_connection() {
    let name = format!("ferroce-cm-class-{}.pcapng", std::process::id());
    let path = std::env::temp_dir().join(name);
    let options =
        Options { port: port(), capture: Some(path.clone()), ..Options::from_env().unwrap() };
    let events = EventChannel::with_options(options).unwrap();
    let (listening, address) = listener(&events, PortSpace::Tcp, V4, 1);
    let id = resolved(&events, PortSpace::Tcp, address);
    // The program does not set the two ECN bits.
    id.set_type_of_service(0x63);
    let end = equip(&id);
    id.connect(&ConnectParameters::default()).unwrap();
    let request = expect!(events, listening, EventKind::ConnectRequest(request) => request);
    let other = equip(&request.id);
    request.id.accept(&ConnectParameters::default()).unwrap();
    expect!(events, id, EventKind::Established(_));
    expect!(events, request.id, EventKind::Established(_));
    id.disconnect().unwrap();
    let context = id.context().unwrap();
    for _ in 0..2 {
        assert!(matches!(next(&events).kind, EventKind::Disconnected(_)));
    }
    context.flush_capture().unwrap();
    let mut reader = CaptureReader::new(File::open(&path).unwrap()).unwrap();
    let mut classes = Vec::new();
    while let Some(record) = reader.next_record().unwrap() {
        // The type of service, behind the Ethernet header.
        classes.push(record.data[15]);
    }
    drop((end, other));
    std::fs::remove_file(&path).unwrap();
    // REQ, REP, RTU, DREQ, DREP.
    assert_eq!(classes, [0x60; 5]);
}

/// In SIDR messages as well. The ACK timeout of a REQ is computed as in Linux: not less than our ACK delay.
#[test]
fn requests_contain_the_parameters_of_the_program() {
    let name = format!("ferroce-cm-chosen-{}.pcapng", std::process::id());
    let path = std::env::temp_dir().join(name);
    let options =
        Options { port: port(), capture: Some(path.clone()), ..Options::from_env().unwrap() };
    let events = EventChannel::with_options(options).unwrap();
    let nobody = "127.0.0.1:4".parse().unwrap();
    let id = resolved(&events, PortSpace::Udp, nobody);
    id.set_type_of_service(0x60);
    id.connect(&ConnectParameters { queue_pair: Some(Qpn(100)), ..ConnectParameters::default() })
        .unwrap();
    expect!(events, id, EventKind::Unreachable(Some(_)));
    for chosen in [0, 13, 14, 15, 16, 17, 19] {
        let id = resolved(&events, PortSpace::Tcp, nobody);
        let ack_timeout = AckTimeout(chosen);
        let queue_pair = Some(Qpn(100));
        id.connect(&ConnectParameters { ack_timeout, queue_pair, ..ConnectParameters::default() })
            .unwrap();
        expect!(events, id, EventKind::Rejected { .. });
    }
    id.context().unwrap().flush_capture().unwrap();
    let mut reader = CaptureReader::new(File::open(&path).unwrap()).unwrap();
    let (mut classes, mut timeouts) = (Vec::new(), Vec::new());
    while let Some(record) = reader.next_record().unwrap() {
        // Behind the Ethernet, IPv4 and UDP headers, BTH and DETH.
        let mad = Mad::parse(&record.data[62..][..MAD_LEN]).unwrap();
        match CmMessage::from_mad(&mad).unwrap() {
            CmMessage::SidrReq(_) | CmMessage::SidrRep(_) => classes.push(record.data[15]),
            CmMessage::Req(request) => timeouts.push(request.primary_ack_timeout.0),
            _ => {}
        }
    }
    std::fs::remove_file(&path).unwrap();
    assert_eq!(classes, [0x60, 0x60]);
    assert_eq!(timeouts, [0, 15, 16, 16, 17, 17, 19]);
}
