//! Establishing, rejecting and ending connections, and their messages.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use ferroce::cm::{CmId, ConnectParameters, EventKind, PortSpace, RejectReason, ResponseTimeout};
use ferroce::*;
use ferroce_wire::cm::{CmMessage, Req, ServiceId};
use ferroce_wire::number::{Lid, PKey};
use ferroce_wire::rdmacm::{IpHeader, private_data};

use crate::ends::*;
use crate::other::port;

fn connect_send_disconnect(ip: IpAddr, by_client: bool) {
    let wish = ConnectParameters { ack_timeout: AckTimeout(8), ..with_data(b"who are you") };
    let pair = connected(ip, &wish, &with_data(b"nobody in particular"));
    let (client, server) = (&pair.client, &pair.server);
    data_both_ways(&client.2, &server.2);
    let (first, second) = if by_client { (client, server) } else { (server, client) };
    for side in [first, second] {
        side.2.receive(2048, 64);
    }
    first.1.disconnect().unwrap();
    assert_eq!(first.2.queue_pair.state(), State::Error);
    // 69: the peer disconnected.
    for (side, reason) in [(first, 0), (second, 69)] {
        let flushed = side.2.completions.wait().unwrap();
        assert_eq!((flushed.status, flushed.vendor_error), (Status::Flushed, reason));
    }
    for side in [first, second] {
        expect!(side.0, side.1, EventKind::Disconnected(_));
        assert_eq!(side.2.queue_pair.state(), State::Error);
        side.1.disconnect().unwrap();
        expect!(side.0, side.1, EventKind::TimewaitExit);
    }
}

#[test]
fn the_client_disconnects_over_ipv4() {
    connect_send_disconnect(V4, true);
}

#[test]
fn the_server_disconnects_over_ipv4() {
    connect_send_disconnect(V4, false);
}

#[test]
fn the_client_disconnects_over_ipv6() {
    connect_send_disconnect(V6, true);
}

#[test]
fn the_server_disconnects_over_ipv6() {
    connect_send_disconnect(V6, false);
}

#[test]
fn queue_pairs_have_the_negotiated_attributes() {
    let wish = ConnectParameters {
        responder_resources: 5,
        initiator_depth: 3,
        retry_count: 6,
        rnr_retry: RnrRetry(4),
        ..ConnectParameters::default()
    };
    let answer = ConnectParameters {
        responder_resources: 16,
        initiator_depth: 2,
        rnr_retry: RnrRetry(2),
        ..ConnectParameters::default()
    };
    let pair = connected(V4, &wish, &answer);
    let (client, server) =
        (pair.client.2.queue_pair.attributes(), pair.server.2.queue_pair.attributes());
    assert_eq!((client.state, server.state), (Some(State::ReadyToSend), Some(State::ReadyToSend)));
    // The initiator depth of one is the responder resources of the other.
    assert_eq!((client.max_rd_atomic, server.max_dest_rd_atomic), (Some(3), Some(3)));
    assert_eq!((server.max_rd_atomic, client.max_dest_rd_atomic), (Some(2), Some(2)));
    assert_eq!((client.retry_count, server.retry_count), (Some(6), Some(6)));
    assert_eq!((client.rnr_retry, server.rnr_retry), (Some(RnrRetry(2)), Some(RnrRetry(4))));
    assert_eq!((client.send_psn, server.send_psn), (server.receive_psn, client.receive_psn));
    assert_eq!((client.timeout, server.timeout), (Some(AckTimeout(19)), Some(AckTimeout(19))));
    assert_eq!(client.path_mtu, server.path_mtu);
}

#[test]
fn a_rejection_delivers_its_private_data() {
    let channel = channel();
    let (listener, address) = listener(&channel, PortSpace::Tcp, V4, 0);
    let client = resolved(&channel, PortSpace::Tcp, address);
    let end = equip(&client);
    client.connect(&ConnectParameters::default()).unwrap();
    let asked = request(&channel, &listener);
    assert!(asked.id.reject(&[0; 149]).is_err());
    asked.id.reject(b"not today").unwrap();
    let (reason, data) = expect!(
        channel, client, EventKind::Rejected { reason, private_data } => (reason, private_data)
    );
    assert_eq!((reason, data), (RejectReason::CONSUMER_REJECT, padded(b"not today", 148)));
    assert_eq!(end.queue_pair.state(), State::Error);
    assert!(asked.id.accept(&ConnectParameters::default()).is_err());
}

#[test]
fn a_port_without_listener_is_rejected_at_once() {
    for ip in [V4, V6] {
        let channel = channel();
        // A port that we have bound, so that no other process can listen there.
        let bound = CmId::new(&channel, PortSpace::Tcp).unwrap();
        bound.bind(SocketAddr::new(ip, 0)).unwrap();
        let client = resolved(&channel, PortSpace::Tcp, bound.local_address().unwrap());
        let _end = equip(&client);
        client.connect(&ConnectParameters::default()).unwrap();
        let reason = expect!(channel, client, EventKind::Rejected { reason, .. } => reason);
        assert_eq!(reason, RejectReason::INVALID_SERVICE_ID);
        // A port that is not bound.
        let nowhere = SocketAddr::new(ip, 9);
        let client = resolved(&channel, PortSpace::Tcp, nowhere);
        let _end = equip(&client);
        client.connect(&ConnectParameters::default()).unwrap();
        let reason = expect!(channel, client, EventKind::Rejected { reason, .. } => reason);
        assert_eq!(reason, RejectReason::INVALID_SERVICE_ID);
    }
}

#[test]
fn a_silent_peer_is_unreachable() {
    let channel = channel();
    let silent = UdpSocket::bind(("127.77.0.1", port())).unwrap();
    let client = resolved(&channel, PortSpace::Tcp, "127.77.0.1:7471".parse().unwrap());
    let end = equip(&client);
    let before = Instant::now();
    client.connect(&short_timeouts()).unwrap();
    expect!(channel, client, EventKind::Unreachable(None));
    // Three times 16.8 ms for the peer and 4.2 ms for the packet lifetime.
    assert!(before.elapsed() >= Duration::from_millis(62), "{:?}", before.elapsed());
    assert_eq!(end.queue_pair.state(), State::Error);
    // Three REQs and a REJ.
    let mut bytes = [0; 2048];
    silent.set_read_timeout(Some(SECOND)).unwrap();
    let attributes: Vec<u8> = (0..4)
        .map(|_| {
            let length = silent.recv(&mut bytes).unwrap();
            assert_eq!(length, 12 + 8 + 256 + 4);
            bytes[12 + 8 + 17]
        })
        .collect();
    assert_eq!(attributes, [0x10, 0x10, 0x10, 0x12]);
    // The same for UD.
    let client = resolved(&channel, PortSpace::Udp, "127.77.0.1:7471".parse().unwrap());
    client.connect(&short_timeouts()).unwrap();
    expect!(channel, client, EventKind::Unreachable(None));
}

/// Compared with the REQ of rping on rdma_rxe (`tests/data/rxe/rping.pcap`), except IDs, numbers and addresses.
#[test]
fn a_request_equals_that_of_linux() {
    let channel = channel();
    let silent = UdpSocket::bind(("127.77.0.2", port())).unwrap();
    silent.set_read_timeout(Some(20 * SECOND)).unwrap();
    let client = resolved(&channel, PortSpace::Tcp, "127.77.0.2:7174".parse().unwrap());
    let end = equip(&client);
    client.connect(&with_data(b"rping")).unwrap();
    let mut bytes = [0; 2048];
    let (length, from) = silent.recv_from(&mut bytes).unwrap();
    assert_eq!(from.ip(), V4);
    let packet = ferroce_wire::packet::Packet::parse(&bytes[..length]).unwrap();
    let deth = packet.extensions.deth.unwrap();
    assert_eq!((deth.source, deth.queue_key), (Qpn(1), QKey(0x8001_0000)));
    let mad = ferroce_wire::mad::Mad::parse(packet.payload).unwrap();
    let Ok(CmMessage::Req(req)) = CmMessage::from_mad(&mad) else { panic!("no REQ") };
    let local = client.local_address().unwrap();
    let attributes = client.attributes(State::ReadyToReceive).unwrap();
    let header = IpHeader::v4(local.port(), Ipv4Addr::LOCALHOST, Ipv4Addr::new(127, 77, 0, 2));
    let expected = Req {
        local_comm_id: req.local_comm_id,
        local_ca_guid: req.local_ca_guid,
        service_id: ServiceId(0x0106_1c06),
        local_qpn: end.queue_pair.number(),
        starting_psn: attributes.receive_psn.unwrap(),
        responder_resources: 1,
        initiator_depth: 1,
        remote_response_timeout: ResponseTimeout(20),
        local_response_timeout: ResponseTimeout(20),
        retry_count: 7,
        rnr_retry_count: RnrRetry(7),
        max_cm_retries: 15,
        partition: PKey(0xffff),
        path_mtu: client.path_mtu(),
        primary_local_lid: Lid(0xffff),
        primary_remote_lid: Lid(0xffff),
        primary_local_gid: Gid::from_ip(V4),
        primary_remote_gid: Gid::from_ip(Ipv4Addr::new(127, 77, 0, 2).into()),
        primary_flow_label: (u32::from(local.port()) * 31 + 7174) & 0x000f_ffff,
        primary_hop_limit: 64,
        primary_ack_timeout: AckTimeout(19),
        private_data: private_data(&header, b"rping").unwrap(),
        ..Req::default()
    };
    assert_eq!(req, expected);
}
