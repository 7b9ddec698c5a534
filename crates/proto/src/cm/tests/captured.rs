//! rdma_rxe's messages from the captures in `tests/data/rxe`, compared with ours for the same parameters.

use super::super::{
    AcceptParameters, ConnectParameters, ConnectionManager, DrepData, DreqData, Event, QueryId,
    Resolution, ResolveParameters, RtuData, private_data, rdmacm_private_data, roce_path,
};
use super::{at, config, gid, manager, only};
use ferroce_wire::cm::{CmMessage, CommId, PathMtu, Req, ServiceId, SidrReq};
use ferroce_wire::mad::{MAD_LEN, Mad, TransactionId};
use ferroce_wire::number::{Psn, QKey, Qpn};
use ferroce_wire::rdmacm::IpHeader;
use std::net::Ipv4Addr;
use std::vec::Vec;

/// `rping.pcap`, frames 1, 2, 3, 52, 53. Trailing zeros are omitted.
const REQ: &str = "
    0107020300000000 000000023f7e97ea 0010000000000000
    ea977e3f 00000000 0000000001061c06 505400fffe770012 00000000 00000000
    00001a01 00000001 000000a0 bb5a9ba7 ffff57f0
    ffffffff 00000000000000000000ffff0a4d000c 00000000000000000000ffff0a4d000b 27a37000 00400098
    00000000 00000000000000000000000000000000 00000000000000000000000000000000 00000000 00000000
    004097af 0000000000000000000000000a4d000c 0000000000000000000000000a4d000b";
const REP: &str = "
    0107020300000000 000000023f7e97ea 0013000000000000
    eb977e3f ea977e3f 00000000 00001a00 00000000 7175ab00 010178e0 505400fffe770011";
const RTU: &str = "
    0107020300000000 000000023f7e97ea 0014000000000000 ea977e3f eb977e3f";
const DREQ: &str = "
    0107020300000000 000000023f7e97ea 0015000000000000 ea977e3f eb977e3f 00001a00";
const DREP: &str = "
    0107020300000000 000000023f7e97ea 0016000000000000 eb977e3f ea977e3f";

/// `ucmatose.pcap`, frames 1 and 31: the passive side disconnects, in a new transaction.
const UCMATOSE_REQ: &str = "
    0107020300000000 000000023f7e97e9 0010000000000000
    e9977e3f 00000000 0000000001061d2f 505400fffe770012 00000000 00000000
    00001d01 00000001 000000a0 6edf90a5 ffff50f0
    ffffffff 00000000000000000000ffff0a4d000c 00000000000000000000ffff0a4d000b 2f551000 00400098
    00000000 00000000000000000000000000000000 00000000000000000000000000000000 00000000 00000000
    00409b9e 0000000000000000000000000a4d000c 0000000000000000000000000a4d000b";
const UCMATOSE_DREQ: &str = "
    0107020300000000 000000023f7e97ed 0015000000000000 ed977e3f e9977e3f 00001d00";

/// `cm_reject.pcap`, frames 1 and 2.
const REFUSED_REQ: &str = "
    0107020300000000 000000023f7e97ec 0010000000000000
    ec977e3f 00000000 000000000106270f 505400fffe770012 00000000 00000000
    00002101 00000001 000000a0 dbc7d8a7 ffff57f0
    ffffffff 00000000000000000000ffff0a4d000c 00000000000000000000ffff0a4d000b 01658000 00400098
    00000000 00000000000000000000000000000000 00000000000000000000000000000000 00000000 00000000
    00408397 0000000000000000000000000a4d000c 0000000000000000000000000a4d000b";
const REJ: &str = "
    0107020300000000 000000023f7e97ec 0012000000000000 00000000 ec977e3f 0000 0008";

/// `udaddy.pcap`, frames 1 and 2.
const SIDR_REQ: &str = "
    0107020300000000 000000023f7e97e8 0017000000000000
    e8977e3f ffff 0000 0000000001111c06
    004092d0 0000000000000000000000000a4d000c 0000000000000000000000000a4d000b";
const SIDR_REP: &str = "
    0107020300000000 000000023f7e97e8 0018000000000000
    e8977e3f 00000000 00001c00 0000000001111c06 01234567";

fn mad(text: &str) -> [u8; MAD_LEN] {
    let digits: Vec<u8> =
        text.chars().filter_map(|digit| digit.to_digit(16).map(|digit| digit as u8)).collect();
    let mut mad = [0; MAD_LEN];
    for (byte, pair) in mad.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = pair[0] << 4 | pair[1];
    }
    mad
}

fn message(text: &str) -> (TransactionId, CmMessage) {
    let bytes = mad(text);
    let mad = Mad::parse(&bytes).unwrap();
    (mad.header.transaction, CmMessage::from_mad(&mad).unwrap())
}

/// Replaces the communication IDs in a MAD, which differ between managers.
fn with_ids(mut mad: [u8; MAD_LEN], sender: CommId, receiver: CommId) -> [u8; MAD_LEN] {
    mad[24..28].copy_from_slice(&sender.0.to_be_bytes());
    mad[28..32].copy_from_slice(&receiver.0.to_be_bytes());
    mad
}

fn with_transaction(mut mad: [u8; MAD_LEN], transaction: TransactionId) -> [u8; MAD_LEN] {
    mad[8..16].copy_from_slice(&transaction.0.to_be_bytes());
    mad
}

/// A manager for the host that ran rdma_rxe: the last byte of its GUID is its address in hexadecimal digits.
fn rxe_manager(host: u8, guid: u64) -> ConnectionManager {
    let mut config = config(host);
    config.ca_guid.0 = guid;
    ConnectionManager::new(config)
}

const CLIENT: u64 = 0x5054_00ff_fe77_0012;
const SERVER: u64 = 0x5054_00ff_fe77_0011;

fn rping_parameters() -> ConnectParameters {
    let [source, destination] = [12, 11].map(|host| Ipv4Addr::new(10, 77, 0, host));
    let header = IpHeader::v4(0x97af, source, destination);
    ConnectParameters {
        path_mtu: PathMtu::MTU_4096,
        rnr_retry_count: ferroce_wire::cm::RnrRetry(7),
        private_data: rdmacm_private_data(&header, b"").unwrap(),
        ..ConnectParameters::new(
            ServiceId(0x0106_1c06),
            Qpn(0x1a),
            Psn(0xbb_5a9b),
            roce_path(gid(12), gid(11), 0x2_7a37),
        )
    }
}

#[test]
fn active_side_sends_the_messages_of_rping() {
    let mut a = rxe_manager(12, CLIENT);
    let id = a.connect(at(0), &rping_parameters()).unwrap();
    let ours = id.comm_id();
    let req = only(&mut a);
    // Every field is equal except the communication IDs.
    let (_, CmMessage::Req(captured)) = message(REQ) else { panic!("no REQ") };
    assert_eq!(req.message, CmMessage::Req(Req { local_comm_id: ours, ..captured }));
    // Their REP, with our communication ID.
    let theirs = CommId(0xeb97_7e3f);
    let rep = with_transaction(with_ids(mad(REP), theirs, ours), req.transaction);
    a.handle_mad(at(1), gid(11), &rep).unwrap();
    let Some(Event::Reply(_, reply)) = a.poll_event() else { panic!("no reply") };
    assert_eq!((reply.remote_qpn, reply.starting_psn), (Qpn(0x1a), Psn(0x71_75ab)));
    a.ready(id, RtuData::default()).unwrap();
    let same_names = |text| with_transaction(with_ids(mad(text), ours, theirs), req.transaction);
    assert_eq!(only(&mut a).to_mad(), same_names(RTU));
    a.disconnect(at(2), id, DreqData::default()).unwrap();
    assert_eq!(only(&mut a).to_mad(), same_names(DREQ));
    a.handle_mad(at(3), gid(11), &with_ids(mad(DREP), theirs, ours)).unwrap();
    assert!(matches!(a.poll_event(), Some(Event::Disconnected(..))));
}

#[test]
fn passive_side_sends_the_messages_of_rping() {
    let mut b = rxe_manager(11, SERVER);
    b.listen(ServiceId(0x0106_1c06), 1).unwrap();
    b.handle_mad(at(0), gid(12), &mad(REQ)).unwrap();
    let Some(Event::Request(id, request)) = b.poll_event() else { panic!("no request") };
    assert_eq!((request.remote_qpn, request.starting_psn), (Qpn(0x1a), Psn(0xbb_5a9b)));
    assert_eq!(request.path_mtu, PathMtu::MTU_4096);
    assert_eq!((request.retry_count, request.max_cm_retries), (7, 15));
    b.accept(at(1), id, &AcceptParameters::new(Qpn(0x1a), Psn(0x71_75ab))).unwrap();
    let theirs = CommId(0xea97_7e3f);
    // Every byte is equal except our communication ID.
    assert_eq!(only(&mut b).to_mad(), with_ids(mad(REP), id.comm_id(), theirs));
    b.handle_mad(at(2), gid(12), &with_ids(mad(RTU), theirs, id.comm_id())).unwrap();
    assert!(matches!(b.poll_event(), Some(Event::Established(..))));
    b.handle_mad(at(3), gid(12), &with_ids(mad(DREQ), theirs, id.comm_id())).unwrap();
    b.confirm_disconnect(at(4), id, DrepData::default()).unwrap();
    assert_eq!(only(&mut b).to_mad(), with_ids(mad(DREP), id.comm_id(), theirs));
}

#[test]
fn passive_side_disconnects_as_in_ucmatose() {
    let mut b = rxe_manager(11, SERVER);
    b.listen(ServiceId(0x0106_1d2f), 1).unwrap();
    b.handle_mad(at(0), gid(12), &mad(UCMATOSE_REQ)).unwrap();
    let Some(Event::Request(id, _)) = b.poll_event() else { panic!("no request") };
    b.accept(at(1), id, &AcceptParameters::new(Qpn(0x1d), Psn(1))).unwrap();
    let rep = only(&mut b);
    b.handle_data_received(id).unwrap();
    b.disconnect(at(2), id, DreqData::default()).unwrap();
    let dreq = only(&mut b);
    let theirs = CommId(0xe997_7e3f);
    let expected =
        with_transaction(with_ids(mad(UCMATOSE_DREQ), id.comm_id(), theirs), dreq.transaction);
    assert_eq!(dreq.to_mad(), expected);
    // The handshake used the peer's transaction; this one uses a local transaction that contains our communication
    // ID.
    let (captured, _) = message(UCMATOSE_DREQ);
    assert_eq!(captured.0 as u32, u32::from_le_bytes([0xed, 0x97, 0x7e, 0x3f]));
    assert_eq!(dreq.transaction.0 as u32, id.comm_id().0);
    assert_eq!(rep.transaction, message(UCMATOSE_REQ).0);
}

#[test]
fn without_a_listener_the_rej_equals_that_of_rdma_rxe() {
    let mut b = manager(11);
    assert!(b.handle_mad(at(0), gid(12), &mad(REFUSED_REQ)).is_err());
    assert_eq!(only(&mut b).to_mad(), mad(REJ));
}

#[test]
fn service_resolution_equals_that_of_udaddy() {
    let service = ServiceId(0x0111_1c06);
    let mut b = manager(11);
    b.listen_datagrams(service).unwrap();
    b.handle_mad(at(0), gid(12), &mad(SIDR_REQ)).unwrap();
    let Some(Event::Query(id, query)) = b.poll_event() else { panic!("no query") };
    let _: QueryId = id;
    let answer = Resolution::valid(Qpn(0x1c), QKey(0x0123_4567), private_data(b"").unwrap());
    b.answer(id, &answer).unwrap();
    assert_eq!(only(&mut b).to_mad(), mad(SIDR_REP));
    let mut a = manager(12);
    let mut parameters = ResolveParameters::new(gid(11), service);
    parameters.private_data = query.private_data;
    a.resolve(at(0), &parameters).unwrap();
    let CmMessage::SidrReq(ours) = only(&mut a).message else { panic!("no SIDR_REQ") };
    let (_, CmMessage::SidrReq(captured)) = message(SIDR_REQ) else { panic!("no SIDR_REQ") };
    assert_eq!(ours, SidrReq { request_id: ours.request_id, ..captured });
}
