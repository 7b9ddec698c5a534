//! Forged REQs from a UDP socket: with the address of a peer, and in large numbers.

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};

use crate::ends::*;
use crate::other::port;
use ferroce::cm::{self, CmId, ConnectParameters, EventKind, PortSpace};
use ferroce::*;
use ferroce_proto::cm::{
    self as proto, Config, ConnectionManager, Transmit, rdmacm_private_data, roce_path,
};
use ferroce_proto::time::Instant;
use ferroce_wire::address::Gid;
use ferroce_wire::icrc::hidden::{Identification, UdpIpv4};
use ferroce_wire::number::{Guid, PKey};
use ferroce_wire::opcode::Opcode;
use ferroce_wire::rdmacm::{IpHeader, service_id};
use ferroce_wire::transport::{Bth, Deth};

/// A host that only sends packets.
struct Stranger {
    socket: UdpSocket,
    address: Ipv4Addr,
    manager: ConnectionManager,
}

impl Stranger {
    fn new(address: [u8; 4], guid: u64) -> Self {
        let address = Ipv4Addr::from(address);
        let socket = UdpSocket::bind(SocketAddr::from((address, 0))).unwrap();
        let manager = ConnectionManager::new(Config::new(Guid(guid), 0x5712_a6e1));
        Self { socket, address, manager }
    }

    /// A REQ of a QP with the maximum response timeout.
    fn req(&mut self, to: SocketAddr, queue_pair: Qpn) -> Transmit {
        let SocketAddr::V4(to) = to else { panic!("these tests are IPv4's") };
        let service = service_id(PortSpace::Tcp, to.port());
        let [from, at] = [self.address, *to.ip()].map(|ip| Gid::from_ip(ip.into()));
        let mut path = roce_path(from, at, 0);
        path.ack_timeout = AckTimeout(31);
        let header = IpHeader::v4(99, self.address, *to.ip());
        let wish = proto::ConnectParameters {
            local_response_timeout: cm::ResponseTimeout(31),
            max_cm_retries: 15,
            private_data: rdmacm_private_data(&header, b"").unwrap(),
            ..proto::ConnectParameters::new(service, queue_pair, Psn(1), path)
        };
        let id = self.manager.connect(Instant::ZERO, &wish).unwrap();
        let transmit = self.manager.poll_transmit().unwrap();
        self.manager.close(Instant::ZERO, id).unwrap();
        while self.manager.poll_transmit().is_some() {}
        transmit
    }

    /// Sends a MAD to the device.
    fn send(&self, transmit: &Transmit) {
        let to = SocketAddrV4::new(Ipv4Addr::LOCALHOST, port());
        let bth = Bth {
            opcode: Opcode::UD_SEND_ONLY,
            partition: PKey(0xffff),
            destination: Qpn(1),
            ..Bth::default()
        };
        let deth = Deth { queue_key: QKey(0x8001_0000), source: Qpn(1), ..Deth::default() };
        let mut packet = [&bth.to_bytes()[..], &deth.to_bytes(), &transmit.to_mad()].concat();
        let flow = UdpIpv4 {
            source: self.address.octets(),
            destination: to.ip().octets(),
            source_port: self.socket.local_addr().unwrap().port(),
            destination_port: to.port(),
        };
        let length = (8 + packet.len() + 4) as u16;
        let first = packet.first_chunk().unwrap();
        let mut icrc = flow.icrc(Identification::of_segment(0), length, first);
        icrc.update(&packet[12..]);
        packet.extend(icrc.finish());
        self.socket.send_to(&packet, to).unwrap();
    }
}

#[test]
fn a_sweep_of_forged_requests_ends_no_connection() {
    let pair = connected(V4, &ConnectParameters::default(), &ConnectParameters::default());
    let (client, server) = (&pair.client, &pair.server);
    let guid = client.1.context().unwrap().device().guid();
    let mut stranger = Stranger::new([127, 0, 0, 1], guid);
    // There is no listener: REQs that are not of the peer are rejected.
    let nowhere = SocketAddr::new(V4, 1);
    for end in [&client.2, &server.2] {
        let number = end.queue_pair.number().0;
        for low in 0..512 {
            let queue_pair = Qpn(number & !0x1ff | low);
            let req = stranger.req(nowhere, queue_pair);
            stranger.send(&req);
            if low % 64 == 63 {
                // The loopback keeps the order: earlier packets have been handled when this one arrives.
                server.2.receive(1024, 1024);
                client.2.receive(1024, 1024);
                data_both_ways(&client.2, &server.2);
            }
        }
    }
    assert!(client.1.is_connected() && server.1.is_connected());
    for channel in [&client.0, &server.0] {
        let event = channel.try_event().unwrap();
        assert!(event.is_none(), "{event:?}");
    }
}

#[test]
fn a_flood_of_requests_does_not_lock_out_others() {
    let there = channel();
    let (listener, address) = listener(&there, PortSpace::Tcp, V4, 0);
    let mut stranger = Stranger::new([127, 0, 0, 66], 0x666);
    // A server that accepts every request.
    let (stop, stopped) = std::sync::mpsc::channel();
    let server = std::thread::spawn(move || {
        let (mut ends, mut flooded, mut up) = (Vec::new(), 0, 0);
        loop {
            match next(&there).kind {
                EventKind::ConnectRequest(request) => {
                    let from = request.id.peer_address().unwrap().ip();
                    flooded += usize::from(from != V4);
                    let end = equip(&request.id);
                    end.receive(1024, 1024);
                    request.id.accept(&ConnectParameters::default()).unwrap();
                    ends.push((request.id.clone(), end));
                }
                EventKind::Established(_) => up += 1,
                EventKind::Disconnected(_) => {}
                other => panic!("{other:?}"),
            }
            if up == 3 && stopped.try_recv().is_ok() {
                drop(listener);
                return flooded;
            }
        }
    });
    let here = channel();
    let connect = || {
        let client: CmId = resolved(&here, PortSpace::Tcp, address);
        let end = equip(&client);
        client.connect(&ConnectParameters::default()).unwrap();
        expect!(here, client, EventKind::Established(_));
        (client, end)
    };
    // One connection before the flood, one in the middle, one after it.
    let mut clients = vec![connect()];
    for index in 0..5000 {
        let req = stranger.req(address, Qpn(0x100 + index));
        stranger.send(&req);
        if index == 2500 {
            clients.push(connect());
        }
    }
    stop.send(()).unwrap();
    clients.push(connect());
    let flooded = server.join().unwrap();
    assert!((1..=128).contains(&flooded), "{flooded}");
}
