//! The rows for connection manager messages. tshark dissects REQ, REP, RTU, REJ, DREQ and DREP; of the others it prints
//! the bytes.

use ferroce_wire::address::Ip4;
use ferroce_wire::cm::{CmMessage, Drep, Dreq, Rej, Rep, Req, Rtu};
use ferroce_wire::rdmacm::{self, IpHeader};

use super::ours::{Located, Ours, field_place};
use super::table::{Found, Row, header_rows, rows};

/// Functions from a packet to the message of one kind in it.
macro_rules! messages {
    ($($function:ident $variant:ident),+) => {$(
        fn $function(ours: &Ours<'_>) -> Located<$variant> {
            match ours.message {
                Some(CmMessage::$variant(message)) => Some((message, ours.message_at()?)),
                _ => None,
            }
        }
    )+};
}

messages!(req Req, rep Rep, rtu Rtu, rej Rej, dreq Dreq, drep Drep);

pub fn all() -> Vec<Row> {
    [request(), paths(), service(), reply(), reject(), disconnect()].into_iter().flatten().collect()
}

fn request() -> Vec<Row> {
    header_rows!(BehindBth Req, req;
        "infiniband.cm.req": local_comm_id,
        "infiniband.cm.req.serviceid": service_id,
        "infiniband.cm.req.localcaguid": local_ca_guid,
        "infiniband.cm.req.localqkey": local_q_key,
        "infiniband.cm.req.localqpn": local_qpn,
        "infiniband.cm.req.responderres": responder_resources,
        "infiniband.cm.req.localeecn": local_eecn,
        "infiniband.cm.req.initdepth": initiator_depth,
        "infiniband.cm.req.remoteeecn": remote_eecn,
        "infiniband.cm.req.remoteresptout": remote_response_timeout,
        "infiniband.cm.req.transpsvctype": transport_service,
        "infiniband.cm.req.e2eflowctrl": end_to_end_flow_control,
        "infiniband.cm.req.startpsn": starting_psn,
        "infiniband.cm.req.localresptout": local_response_timeout,
        "infiniband.cm.req.retrcount": retry_count,
        "infiniband.cm.req.pkey": partition,
        "infiniband.cm.req.pppmtu": path_mtu,
        "infiniband.cm.req.rdcexist": rdc_exists,
        "infiniband.cm.req.rnrretrcount": rnr_retry_count,
        "infiniband.cm.req.maxcmretr": max_cm_retries,
        "infiniband.cm.req.srq": shared_receive_queue,
        "infiniband.cm.req.ext_transport": extended_transport,
        "infiniband.cm.req.prim_locallid": primary_local_lid,
        "infiniband.cm.req.prim_remotelid": primary_remote_lid,
        "infiniband.cm.req.prim_tfcclass": primary_traffic_class,
        "infiniband.cm.req.prim_hoplim": primary_hop_limit,
        "infiniband.cm.req.prim_sl": primary_service_level,
        "infiniband.cm.req.prim_subnetlocal": primary_subnet_local,
        "infiniband.cm.req.prim_reserved1": reserved4,
        "infiniband.cm.req.prim_localacktout": primary_ack_timeout,
        "infiniband.cm.req.prim_reserved2": reserved5,
        "infiniband.cm.req.alt_locallid": alternate_local_lid,
        "infiniband.cm.req.alt_remotelid": alternate_remote_lid,
        "infiniband.cm.req.alt_tfcclass": alternate_traffic_class,
        "infiniband.cm.req.alt_hoplim": alternate_hop_limit,
        "infiniband.cm.req.alt_sl": alternate_service_level,
        "infiniband.cm.req.alt_subnetlocal": alternate_subnet_local,
        "infiniband.cm.req.alt_localacktout": alternate_ack_timeout,
    )
}

/// The parts of the four bytes with a path's flow label.
#[derive(Clone, Copy)]
enum Flow {
    Label,
    Reserved,
    PacketRate,
}

fn paths() -> Vec<Row> {
    /// In packets over IPv4, tshark prints the last four bytes of the GIDs under separate names.
    fn gid(ours: &Ours<'_>, name: &str, as_ipv4: bool) -> Option<Vec<Found>> {
        let (req, at) = req(ours).filter(|_| ours.ipv4().is_some() == as_ipv4)?;
        let gid =
            if name.contains("local") { req.primary_local_gid } else { req.primary_remote_gid };
        let place = field_place::<Req>(at, name);
        match (as_ipv4, gid.0.last_chunk::<4>()) {
            (true, Some(&last)) => Some(Found::at(place.end - 4..place.end, &Ip4(last))),
            _ => Some(Found::at(place, &gid)),
        }
    }

    /// Flow label (20 bits), reserved (6) and packet rate (6) share four bytes. No tshark gets all three right: 4.0 and
    /// 4.4 read the flow label as if only three bytes were there, which loses its low 8 bits, and what is reserved from
    /// a byte of the flow label, each from another. 4.0 takes the packet rate from there as well.
    fn flow(ours: &Ours<'_>, path: &str, part: Flow) -> Option<Vec<Found>> {
        let (req, at) = req(ours)?;
        let (label, rate) = match path {
            "primary" => (req.primary_flow_label, req.primary_packet_rate),
            _ => (req.alternate_flow_label, req.alternate_packet_rate),
        };
        let rate_place = field_place::<Req>(at, &format!("{path}_packet_rate"));
        let at = field_place::<Req>(at, &format!("{path}_flow_label")).start;
        let label_bits = |byte: usize, shift: u32, mask: u32| {
            Found::at(at + byte..at + byte + 1, &(label >> shift & mask))
        };
        let (in_4_0, in_4_4) = match part {
            Flow::Label => return Some(label_bits(0, 8, 0xfff)),
            Flow::Reserved => (label_bits(0, 18, 3), label_bits(2, 2, 3)),
            Flow::PacketRate => (label_bits(0, 12, 0x3f), Found::at(rate_place, &rate)),
        };
        Some(in_4_0.into_iter().chain(Found::as_alternatives(in_4_4)).collect())
    }

    rows!(BehindBth;
        "infiniband.cm.req.prim_localgid": |ours| gid(ours, "primary_local_gid", false),
        "infiniband.cm.req.prim_remotegid": |ours| gid(ours, "primary_remote_gid", false),
        "infiniband.cm.req.prim_localgid_ipv4": |ours| gid(ours, "primary_local_gid", true),
        "infiniband.cm.req.prim_remotegid_ipv4": |ours| gid(ours, "primary_remote_gid", true),
        "infiniband.cm.req.prim_flowlabel": |ours| flow(ours, "primary", Flow::Label),
        "infiniband.cm.req.prim_reserved0": |ours| flow(ours, "primary", Flow::Reserved),
        "infiniband.cm.req.prim_pktrate": |ours| flow(ours, "primary", Flow::PacketRate),
        "infiniband.cm.req.alt_flowlabel": |ours| flow(ours, "alternate", Flow::Label),
        "infiniband.cm.req.alt_reserved0": |ours| flow(ours, "alternate", Flow::Reserved),
        "infiniband.cm.req.alt_pktrate": |ours| flow(ours, "alternate", Flow::PacketRate),
        "infiniband.cm.req.alt_localgid": |ours| {
            let (req, at) = req(ours)?;
            let at = field_place::<Req>(at, "alternate_local_gid").start;
            Some(Found::bytes(at, &req.alternate_local_gid.0))
        },
        "infiniband.cm.req.alt_remotegid": |ours| {
            let (req, at) = req(ours)?;
            let at = field_place::<Req>(at, "alternate_remote_gid").start;
            Some(Found::bytes(at, &req.alternate_remote_gid.0))
        },
        // Twice under one name: behind the subnet flag, and behind the ACK timeout. tshark's second includes the bit
        // for suggested paths.
        "infiniband.cm.req.alt_reserved1": |ours| {
            let (req, at) = req(ours)?;
            let last = u8::from(req.suggested_path_supported) << 2 | req.reserved8;
            let first = Found::in_field::<Req>(at, "reserved7", &req.reserved7);
            let second = Found::in_field::<Req>(at, "reserved8", &last);
            Some(first.into_iter().chain(second).collect())
        },
    )
}

fn service() -> Vec<Row> {
    let parts = rows!(BehindBth;
        "infiniband.cm.req.serviceid.prefix": |ours| {
            let (req, at) = req(ours)?;
            rdmacm::split_service_id(req.service_id)?;
            let at = field_place::<Req>(at, "service_id").start;
            Some(Found::bytes(at, &req.service_id.0.to_be_bytes()[..5]))
        },
        // The port space's low byte, which is IP's protocol number.
        "infiniband.cm.req.serviceid.protocol": |ours| {
            let (req, at) = req(ours)?;
            let (space, _) = rdmacm::split_service_id(req.service_id)?;
            let at = field_place::<Req>(at, "service_id").start + 5;
            Some(Found::at(at..at + 1, &(space.code() as u8)))
        },
        "infiniband.cm.req.serviceid.dport": |ours| {
            let (req, at) = req(ours)?;
            let (_, port) = rdmacm::split_service_id(req.service_id)?;
            let end = field_place::<Req>(at, "service_id").end;
            Some(Found::at(end - 2..end, &port))
        },
        "infiniband.cm.req.ip_cm": |ours| {
            let (_, at) = ours.ip_header()?;
            Some(Found::bytes(at, &req(ours)?.0.private_data.0))
        },
        "infiniband.cm.req.private": |ours| {
            let (req, at) = req(ours).filter(|_| ours.ip_header().is_none())?;
            Some(Found::in_field::<Req>(at, "private_data", &req.private_data))
        },
        "infiniband.cm.req.ip_cm.private": |ours| {
            let (_, at) = ours.ip_header()?;
            let (req, _) = req(ours)?;
            let (_, consumer) = rdmacm::split_private_data(req.service_id, &req.private_data.0).ok()?;
            Some(Found::bytes(at + IpHeader::LEN, consumer))
        },
        "infiniband.cm.req.ip_cm.sip4": |ours| ip_address(ours, "source", 4),
        "infiniband.cm.req.ip_cm.dip4": |ours| ip_address(ours, "destination", 4),
        "infiniband.cm.req.ip_cm.sip6": |ours| ip_address(ours, "source", 6),
        "infiniband.cm.req.ip_cm.dip6": |ours| ip_address(ours, "destination", 6),
    );
    let header = header_rows!(BehindBth IpHeader, Ours::ip_header;
        "infiniband.cm.req.ip_cm.majv": major_version,
        "infiniband.cm.req.ip_cm.minv": minor_version,
        "infiniband.cm.req.ip_cm.ipv": ip_version,
        "infiniband.cm.req.ip_cm.reserved": reserved,
        "infiniband.cm.req.ip_cm.sport": source_port,
    );
    [parts, header].into_iter().flatten().collect()
}

/// An address of RDMA-CM's header, when it is of the version asked for. IPv4 is its last four bytes.
fn ip_address(ours: &Ours<'_>, name: &str, version: u8) -> Option<Vec<Found>> {
    let (header, at) = ours.ip_header().filter(|(header, _)| header.ip_version == version)?;
    let address = if name == "source" { header.source_ip() } else { header.destination_ip() };
    let place = field_place::<IpHeader>(at, name);
    let len = if version == 4 { 4 } else { 16 };
    Some(Found::at(place.end - len..place.end, &address?))
}

fn reply() -> Vec<Row> {
    let rep = header_rows!(BehindBth Rep, rep;
        "infiniband.cm.rep": local_comm_id,
        "infiniband.cm.rep.remotecommid": remote_comm_id,
        "infiniband.cm.rep.localqkey": local_q_key,
        "infiniband.cm.rep.localqpn": local_qpn,
        "infiniband.cm.rep.localeecn": local_eecn,
        "infiniband.cm.rep.startpsn": starting_psn,
        "infiniband.cm.rep.respres": responder_resources,
        "infiniband.cm.rep.initdepth": initiator_depth,
        "infiniband.cm.rep.tgtackdelay": target_ack_delay,
        "infiniband.cm.rep.failoveracc": failover,
        "infiniband.cm.rep.e2eflowctrl": end_to_end_flow_control,
        "infiniband.cm.rep.rnrretrcount": rnr_retry_count,
        "infiniband.cm.rep.srq": shared_receive_queue,
        "infiniband.cm.rep.reserved": reserved,
        "infiniband.cm.rep.localcaguid": local_ca_guid,
        "infiniband.cm.rep.private": private_data,
    );
    let rtu = header_rows!(BehindBth Rtu, rtu;
        "infiniband.cm.rtu.localcommid": local_comm_id,
        "infiniband.cm.rtu.remotecommid": remote_comm_id,
        "infiniband.cm.rtu.private": private_data,
    );
    [rep, rtu].into_iter().flatten().collect()
}

fn reject() -> Vec<Row> {
    let fields = header_rows!(BehindBth Rej, rej;
        "infiniband.cm.rej.localcommid": local_comm_id,
        "infiniband.cm.rej.remotecommid": remote_comm_id,
        "infiniband.cm.rej.msgrej": message,
        "infiniband.cm.rej.rejinfolen": information_length,
        "infiniband.cm.rej.reserved1": reserved2,
        "infiniband.cm.rej.reason": reason,
        "infiniband.cm.rej.ari": information,
        "infiniband.cm.rej.private": private_data,
    );
    // Six bits are reserved, tshark prints the last two of them.
    let reserved = rows!(BehindBth;
        "infiniband.cm.rej.reserved0": |ours| {
            let (rej, at) = rej(ours)?;
            Some(Found::in_field::<Rej>(at, "reserved1", &(rej.reserved1 & 3)))
        },
    );
    [fields, reserved].into_iter().flatten().collect()
}

fn disconnect() -> Vec<Row> {
    let dreq = header_rows!(BehindBth Dreq, dreq;
        "infiniband.cm.dreq.localcommid": local_comm_id,
        "infiniband.cm.dreq.remotecommid": remote_comm_id,
        // A field of the DREQ, whatever its name.
        "infiniband.cm.req.remoteqpneecn": remote_qpn,
        "infiniband.cm.dreq.private": private_data,
    );
    let drep = header_rows!(BehindBth Drep, drep;
        "infiniband.cm.drsp.localcommid": local_comm_id,
        "infiniband.cm.drsp.remotecommid": remote_comm_id,
        "infiniband.cm.drsp.private": private_data,
    );
    [dreq, drep].into_iter().flatten().collect()
}
