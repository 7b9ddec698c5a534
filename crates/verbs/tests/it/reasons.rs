//! What the adapter says of programs that do something wrong: the sentence names the cause, and the completion has its
//! number.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::support::{
    ACCESS, Side, attributes, bring_up, connect, gid_index, open_alone, options, over_sockets, side,
};
use ferroce::*;

/// The reports of this process.
static REPORTS: Mutex<Vec<String>> = Mutex::new(Vec::new());

fn listen() {
    report::listen(|text| REPORTS.lock().unwrap().push(text.to_owned()));
}

/// Waits for a report that starts with this text.
fn report(start: &str) -> String {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let reports = REPORTS.lock().unwrap().clone();
        match reports.iter().find(|text| text.starts_with(start)) {
            Some(text) => return text.clone(),
            None if Instant::now() < deadline => std::thread::yield_now(),
            None => panic!("no report of {start}: {reports:#?}"),
        }
    }
}

/// Waits for a report about a queue pair.
fn report_of(side: &Side) -> String {
    report(&format!("QP {:#08x}: ", side.queue_pair.number().0))
}

/// Waits for a completion with an error.
fn failure(side: &Side) -> WorkCompletion {
    let done = side.completions.wait().unwrap();
    assert_ne!(done.status, Status::Success);
    done
}

/// The name of the reason in `vendor_err`.
fn name(done: &WorkCompletion) -> &'static str {
    REASONS.iter().find(|entry| entry.number == done.vendor_error).unwrap().name
}

/// Two connected queue pairs.
fn pair(service: ServiceType, mtu: usize) -> [Side; 2] {
    listen();
    let context = open_alone(&options());
    let index = gid_index(&context, false).unwrap();
    let sides = [(); 2].map(|()| side(&context, service, 1 << 16));
    connect(&sides[0], &sides[1], index, mtu);
    sides
}

fn reliable() -> [Side; 2] {
    pair(ServiceType::ReliableConnection, 1024)
}

/// Two queue pairs that are connected with attributes that `change` has changed for the second.
fn apart(change: impl Fn(&mut QueuePairAttributes)) -> [Side; 2] {
    apart_with(&options(), change)
}

fn apart_with(options: &Options, change: impl Fn(&mut QueuePairAttributes)) -> [Side; 2] {
    listen();
    let context = open_alone(options);
    let index = gid_index(&context, false).unwrap();
    let sides = [(); 2].map(|()| side(&context, ServiceType::ReliableConnection, 1 << 16));
    for (at, peer) in [(0, 1), (1, 0)] {
        let number = sides[peer].queue_pair.number();
        let mut attributes = attributes(&context, index, number, 1024);
        // Failures do not take long: a few attempts of 4 ms.
        (attributes.timeout, attributes.retry_count) = (Some(AckTimeout(10)), Some(3));
        attributes.rnr_retry = Some(RnrRetry(3));
        if at == 1 {
            change(&mut attributes);
        }
        bring_up(&sides[at].queue_pair, &attributes);
    }
    sides
}

/// What the adapter of the peer says of an RDMA WRITE of 4096 bytes to this place.
fn refused_write(remote: impl FnOnce(&Side) -> RemoteAddress) -> String {
    let [a, b] = reliable();
    let remote = remote(&b);
    a.post(1, Operation::Write { remote, immediate: None }, 0, 4096);
    let done = failure(&a);
    assert_eq!((done.status, name(&done)), (Status::RemoteAccess, "peer_refused"));
    let text = report_of(&a);
    let asked = format!("4096 bytes at {:#x} with rkey {:#x}", remote.address.0, remote.key.0);
    assert!(text.contains("remote access error") && text.contains(&asked), "{text}");
    report_of(&b)
}

#[test]
fn an_unknown_rkey() {
    let text = refused_write(|b| RemoteAddress { key: RKey(0x1234_5678), ..b.region.remote(0) });
    assert!(text.contains("RDMA WRITE") && text.ends_with("rkey 0x12345678 is unknown"), "{text}");
}

#[test]
fn a_deregistered_rkey() {
    let text = refused_write(|b| {
        let region = b.pd.allocate(8192, ACCESS).unwrap();
        region.remote(0)
    });
    assert!(text.ends_with("was deregistered"), "{text}");
}

#[test]
fn a_key_of_another_protection_domain() {
    let mut kept = None;
    let text = refused_write(|b| {
        let region = b.context.protection_domain().allocate(8192, ACCESS).unwrap();
        let remote = region.remote(0);
        kept = Some(region);
        remote
    });
    assert!(text.contains("belongs to another protection domain"), "{text}");
}

#[test]
fn an_address_out_of_range() {
    let text = refused_write(|b| b.region.remote((1 << 16) - 96));
    assert!(text.contains("is an MR of 65536 bytes at"), "{text}");
    assert!(text.ends_with("the access ends 4000 bytes behind it"), "{text}");
}

#[test]
fn a_missing_access_flag() {
    let mut kept = None;
    let text = refused_write(|b| {
        let access = AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_READ;
        let region = b.pd.allocate(8192, access).unwrap();
        let remote = region.remote(0);
        kept = Some(region);
        remote
    });
    assert!(text.ends_with("is an MR without REMOTE_WRITE"), "{text}");
}

#[test]
fn a_wrong_lkey() {
    let [a, b] = reliable();
    let sge = Sge { key: LKey(0x77), ..a.region.sge(0, 100) };
    let data = Data::SgList(sge.into());
    a.queue_pair.post_send(SendRequest::new(WorkId(1), Operation::SEND, data)).unwrap();
    let done = failure(&a);
    assert_eq!((done.status, name(&done)), (Status::LocalProtection, "key_unknown"));
    let text = report_of(&a);
    assert!(text.contains("reading the data to send of 100 bytes"), "{text}");
    assert!(text.ends_with("lkey 0x77 is unknown"), "{text}");
    drop(b);
}

#[test]
fn a_receive_with_a_wrong_lkey() {
    let [a, b] = reliable();
    let sge = Sge { key: LKey(0x78), ..b.region.sge(0, 100) };
    let request = ReceiveRequest { id: WorkId(5), sg_list: sge.into() };
    b.queue_pair.post_receive(request).unwrap();
    a.post(1, Operation::SEND, 0, 60);
    let done = failure(&b);
    assert_eq!((done.status, name(&done)), (Status::LocalProtection, "key_unknown"));
    let text = report_of(&b);
    assert!(text.contains("writing received data of 60 bytes"), "{text}");
    let done = failure(&a);
    assert_eq!((done.status, name(&done)), (Status::RemoteOperation, "peer_refused"));
}

#[test]
fn a_message_longer_than_the_receive() {
    let [a, b] = reliable();
    b.post_receive(5, 0, 100);
    a.post(1, Operation::SEND, 0, 200);
    let done = failure(&b);
    assert_eq!((done.status, name(&done)), (Status::LocalLength, "message_too_long"));
    let text = report_of(&b);
    assert!(text.contains("200 bytes is longer than the receive request of 100 bytes"), "{text}");
}

#[test]
fn an_operation_that_the_queue_pair_does_not_allow() {
    let [a, b] = apart(|attributes| attributes.access = Some(AccessFlags::REMOTE_READ));
    let operation = Operation::Write { remote: b.region.remote(0), immediate: None };
    a.post(1, operation, 0, 8);
    assert_eq!(failure(&a).status, Status::RemoteInvalidRequest);
    let text = report_of(&b);
    assert!(text.contains("the queue pair lacks REMOTE_WRITE (qp_access_flags"), "{text}");
}

#[test]
fn a_smaller_path_mtu_of_the_peer() {
    // Through shared memory, messages are not cut into packets.
    let options = over_sockets();
    let [a, b] = apart_with(&options, |set| set.path_mtu = PathMtu::from_bytes(256));
    b.post_receive(5, 0, 4096);
    a.post(1, Operation::SEND, 0, 1000);
    let done = failure(&b);
    assert_eq!((done.status, name(&done)), (Status::LocalLength, "payload_over_mtu"));
    let text = report_of(&b);
    assert!(text.contains("payload of 1000 bytes over the path MTU of 256"), "{text}");
}

/// The peer executes the message, and counts more packets in it than were sent.
#[test]
fn a_smaller_path_mtu_of_the_peer_through_shared_memory() {
    let options = Options { local: Local::Memory, ..options() };
    let [a, b] = apart_with(&options, |set| set.path_mtu = PathMtu::from_bytes(256));
    a.post(1, Operation::Write { remote: b.region.remote(0), immediate: None }, 0, 1000);
    let done = failure(&a);
    assert_eq!((done.status, name(&done)), (Status::RetryExceeded, "peer_counts_more"));
    let text = report_of(&a);
    assert!(text.contains("its path_mtu is smaller than 1024"), "{text}");
}

/// The peer expects a PSN behind those that are sent: it answers nothing.
#[test]
fn a_first_psn_that_is_too_low() {
    let [a, b] = apart(|attributes| attributes.receive_psn = Some(Psn(0x1388)));
    b.post_receive(5, 0, 100);
    a.post(1, Operation::SEND, 0, 10);
    let text = report_of(&b);
    assert!(text.ends_with("does rq_psn match the peer's sq_psn?"), "{text}");
    assert!(text.contains("PSN 0xfffff0, expected 0x1388"), "{text}");
    let done = failure(&a);
    assert_eq!((done.status, name(&done)), (Status::RetryExceeded, "no_response"));
    let text = report_of(&a);
    assert!(text.contains("4 attempts, and none before") && text.contains("rq_psn"), "{text}");
}

/// The peer expects a PSN before those that are sent: it asks for that one.
#[test]
fn a_first_psn_that_is_too_high() {
    let [a, b] = apart(|attributes| attributes.receive_psn = Some(Psn(0xff_ff00)));
    b.post_receive(5, 0, 100);
    a.post(1, Operation::SEND, 0, 10);
    let done = failure(&a);
    assert_eq!((done.status, name(&done)), (Status::RetryExceeded, "peer_expects"));
    let text = report_of(&a);
    assert!(
        text.contains("the peer expects PSN 0xffff00, this queue pair sends 0xfffff0"),
        "{text}"
    );
    assert!(text.ends_with("does sq_psn match the peer's rq_psn?"), "{text}");
}

#[test]
fn a_queue_pair_that_does_not_exist() {
    let [a, b] = apart(|_| ());
    drop(b.queue_pair);
    a.post(1, Operation::SEND, 0, 10);
    let text = report("dropped a packet for QP");
    assert!(text.contains("which does not exist: was it destroyed"), "{text}");
    let done = failure(&a);
    assert_eq!((done.status, name(&done)), (Status::RetryExceeded, "no_response"));
}

#[test]
fn a_queue_pair_that_does_not_receive_yet() {
    listen();
    let context = open_alone(&options());
    let index = gid_index(&context, false).unwrap();
    let [a, b] = [(); 2].map(|()| side(&context, ServiceType::ReliableConnection, 4096));
    let attributes = attributes(&context, index, b.queue_pair.number(), 1024);
    bring_up(&a.queue_pair, &attributes);
    let mut init = QueuePairAttributes { state: Some(State::Init), ..attributes };
    let rule = rule(ServiceType::ReliableConnection, State::Reset, State::Init).unwrap();
    init.clear(init.attributes() - rule.required - AttributeMask::STATE);
    b.queue_pair.modify(&init).unwrap();
    a.post(1, Operation::SEND, 0, 10);
    let text = report_of(&b);
    assert!(text.contains("is in INIT, it needs RTR or RTS to receive"), "{text}");
}

#[test]
fn no_receive_in_all_attempts() {
    let [a, b] = apart(|_| ());
    a.post(1, Operation::SEND, 0, 10);
    let done = failure(&a);
    assert_eq!((done.status, name(&done)), (Status::RnrRetryExceeded, "rnr_exhausted"));
    assert!(report_of(&a).contains("4 attempts: raise rnr_retry"), "{}", report_of(&a));
    let text = report_of(&b);
    assert!(
        text.ends_with("no receive request is posted: the sender repeats its message"),
        "{text}"
    );
}

#[test]
fn a_wrong_q_key() {
    let service = ServiceType::UnreliableDatagram;
    let [a, b] = pair(service, 1024);
    b.post_receive(5, 0, 200);
    let gid = a.context.device().gids()[usize::from(gid_index(&a.context, false).unwrap())].gid;
    let address = a.pd.address_handle(&AddressVector {
        port: 1,
        source_index: gid_index(&a.context, false).unwrap(),
        destination: gid,
        ..AddressVector::default()
    });
    let address = address.unwrap();
    let request = |queue_key, id| {
        address.request(WorkId(id), b.queue_pair.number(), queue_key, a.data(0, 64))
    };
    a.queue_pair.post_datagram(request(QKey(0x1111), 1)).unwrap();
    let text = report_of(&b);
    assert!(text.contains("its Q_Key is 0x1111, the queue pair has 0x1234"), "{text}");
    // A buffer without room for the GRH.
    b.queue_pair
        .modify(&QueuePairAttributes { state: Some(State::Reset), ..Default::default() })
        .unwrap();
    let attributes = attributes(&b.context, gid_index(&b.context, false).unwrap(), Qpn(1), 1024);
    bring_up(&b.queue_pair, &attributes);
    b.post_receive(6, 0, 64);
    a.queue_pair.post_datagram(request(QKey(0x1234), 2)).unwrap();
    let done = failure(&b);
    assert_eq!((done.status, name(&done)), (Status::LocalLength, "datagram_too_long"));
}

#[test]
fn a_completion_queue_that_is_too_small() {
    let [a, b] = reliable();
    let small = a.context.completion_queue(1, None).unwrap();
    let options = QueuePairOptions::new(ServiceType::ReliableConnection, &small);
    let c = a.pd.queue_pair(&options).unwrap();
    let index = gid_index(&a.context, false).unwrap();
    let d = side(&a.context, ServiceType::ReliableConnection, 4096);
    bring_up(&c, &attributes(&a.context, index, d.queue_pair.number(), 1024));
    bring_up(&d.queue_pair, &attributes(&a.context, index, c.number(), 1024));
    for id in 0..2 {
        let operation = Operation::Write { remote: d.region.remote(0), immediate: None };
        c.post_send(SendRequest::new(WorkId(id), operation, a.data(0, 8))).unwrap();
    }
    let text = report(&format!("QP {:#08x}: CQ {} with 1 entries", c.number().0, small.id()));
    assert!(text.contains("the queue pair is in ERR; create a larger CQ"), "{text}");
    assert_eq!(c.state(), State::Error);
    let ended = report::ended();
    assert!(ended.iter().any(|one| one.queue_pair == c.number() && one.number == 80), "{ended:?}");
    drop(b);
}
