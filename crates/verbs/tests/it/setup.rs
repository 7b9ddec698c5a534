//! The set-up exchange over the loopback: two devices of one process, each with a slot, as of two processes.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::support;
use ferroce::setup::{
    self, Agreement, Application, Client, ConnectionParameters, Growth, Peer, Phase, Presence,
    QpParameters, RegionParameters, RetryPolicy, Search, Server, ServerConfig, SetupError, present,
};
use ferroce::*;

const ACCESS: AccessFlags = AccessFlags::LOCAL_WRITE
    .union(AccessFlags::REMOTE_WRITE)
    .union(AccessFlags::REMOTE_READ)
    .union(AccessFlags::REMOTE_ATOMIC);

/// Opens a device whose port only the devices of this test use.
fn open(test: u16, receive_buffer: usize) -> Context {
    let port = 10_000 + (std::process::id() % 1_000 * 10) as u16 + test;
    let mut options = Options { port, ..support::options() };
    // Opening with equal options returns the same device.
    options.sockets.receive_buffer = receive_buffer;
    support::open(&options)
}

fn source(context: &Context) -> (u8, Gid) {
    let index = support::gid_index(context, false).unwrap();
    (index, context.device().gids()[usize::from(index)].gid)
}

struct Factory {
    pd: ProtectionDomain,
    completions: CompletionQueue,
    service: ServiceType,
    refuses: Option<setup::Status>,
}

impl Factory {
    fn new(context: &Context, service: ServiceType) -> Self {
        let channel = CompletionChannel::new().unwrap();
        let completions = context.completion_queue(64, Some(&channel)).unwrap();
        Self { pd: context.protection_domain(), completions, service, refuses: None }
    }

    fn make(&self) -> QueuePair {
        let options = QueuePairOptions::new(self.service, &self.completions);
        self.pd.queue_pair(&options).unwrap()
    }
}

impl Application for Factory {
    fn queue_pair(&mut self, _: &Peer, theirs: &QpParameters) -> Result<QueuePair, setup::Status> {
        assert_ne!(theirs.qp_number, Qpn(0));
        Ok(self.make())
    }

    fn region(
        &mut self,
        _: &Peer,
        theirs: &RegionParameters,
    ) -> Result<Arc<MemoryRegion>, setup::Status> {
        let region = self.pd.allocate(theirs.length as usize, ACCESS);
        region.map(Arc::new).map_err(|_| setup::Status::NO_MEMORY_REGION)
    }

    fn connect(&mut self, _: &Peer, _: &Agreement) -> Result<(), setup::Status> {
        self.refuses.map_or(Ok(()), Err)
    }
}

fn serve(context: &Context) -> Server {
    Server::new(context, source(context).1.to_ip(), ServerConfig::new(present(context))).unwrap()
}

/// Connects the second device to the first, and WRITEs.
fn connect_and_write(server_context: &Context, client_context: &Context, service: ServiceType) {
    let server = serve(server_context);
    let (index, gid) = source(client_context);
    let factory = Factory::new(client_context, service);
    let queue_pair = factory.make();
    let regions = [1000, 2000].map(|length| factory.pd.allocate(length, ACCESS).unwrap());
    let mut application = Factory::new(server_context, service);
    let (accepted, established) = std::thread::scope(|scope| {
        let accepting = scope.spawn(|| server.accept(&mut application, None).unwrap().unwrap());
        let client = Client::begin(client_context, index, gid, RetryPolicy::default()).unwrap();
        let [one, two] = &regions;
        let done = client.establish(&queue_pair, &[one, two], ConnectionParameters::default());
        (accepting.join().unwrap(), done.unwrap())
    });
    assert_eq!(established.device.guid.0, server_context.device().guid());
    assert_eq!(established.queue_pair.qp_number, accepted.queue_pair.number());
    assert_eq!(accepted.theirs.qp_number, queue_pair.number());
    assert_eq!(queue_pair.state(), State::ReadyToSend);
    assert_eq!(accepted.queue_pair.state(), State::ReadyToSend);
    for phase in [Phase::Discovery, Phase::QueuePairs] {
        assert!(established.times.phase(phase).unwrap().round_trip.is_some());
    }
    if service == ServiceType::UnreliableDatagram {
        return;
    }
    assert_eq!(established.agreement, accepted.agreement);
    let phases = [Phase::Discovery, Phase::QueuePairs, Phase::Memory, Phase::Connection];
    let sum: Duration =
        phases.iter().map(|phase| established.times.duration(*phase).unwrap()).sum();
    assert_eq!(sum, established.times.total());
    let theirs = established.regions[1];
    assert_eq!(theirs.region.length, 2000);
    regions[0].write(0, b"it is there").unwrap();
    let remote = RemoteAddress { address: theirs.region.address, key: theirs.remote_key };
    let write = Operation::Write { remote, immediate: None };
    let data = Data::SgList(regions[0].sge(0, 11).into());
    queue_pair.post_send(SendRequest::new(WorkId(1), write, data)).unwrap();
    let done = factory.completions.wait().unwrap();
    assert_eq!((done.id, done.status), (WorkId(1), Status::Success));
    if service == ServiceType::ReliableConnection {
        let mut found = [0; 11];
        accepted.regions[1].read(0, &mut found).unwrap();
        assert_eq!(&found, b"it is there");
    }
}

#[test]
fn sets_up_connections_of_all_services() {
    for (test, service) in [
        (0, ServiceType::ReliableConnection),
        (1, ServiceType::UnreliableConnection),
        (2, ServiceType::UnreliableDatagram),
    ] {
        let (one, other) = (open(test, 1 << 20), open(test, 1 << 19));
        // Packets for QP 2 reach the slot of the first device, which forwards those of the other.
        connect_and_write(&one, &other, service);
        connect_and_write(&other, &one, service);
    }
}

#[test]
fn a_refusal_reaches_the_client() {
    let (one, other) = (open(3, 1 << 20), open(3, 1 << 19));
    let server = serve(&one);
    let (index, gid) = source(&other);
    let factory = Factory::new(&other, ServiceType::ReliableConnection);
    let mut application = Factory::new(&one, ServiceType::ReliableConnection);
    application.refuses = Some(setup::Status::REJECTED);
    let error = std::thread::scope(|scope| {
        let client = Client::begin(&other, index, gid, RetryPolicy::default()).unwrap();
        let accepting = scope.spawn(|| {
            let deadline = Instant::now() + Duration::from_millis(500);
            server.accept(&mut application, Some(deadline)).unwrap().is_none()
        });
        let failed = client.establish(&factory.make(), &[], ConnectionParameters::default());
        assert!(accepting.join().unwrap());
        failed.unwrap_err()
    });
    let setup::Error::Exchange(SetupError::Refused(refused)) = error else { panic!("{error}") };
    assert_eq!((refused.phase, refused.status), (Phase::Connection, setup::Status::REJECTED));
    // An address has one server.
    let taken = Server::new(&other, gid.to_ip(), ServerConfig::new(present(&other))).unwrap_err();
    assert!(matches!(taken, setup::Error::System(_)), "{taken}");
}

#[test]
fn a_missing_server_times_out() {
    let context = open(4, 1 << 20);
    let (index, gid) = source(&context);
    let factory = Factory::new(&context, ServiceType::ReliableConnection);
    let retry = RetryPolicy {
        attempts: 2,
        first: Duration::from_millis(5),
        growth: Growth::Fixed,
        longest: Duration::from_millis(5),
    };
    let client = Client::begin(&context, index, gid, retry).unwrap();
    let error =
        client.establish(&factory.make(), &[], ConnectionParameters::default()).unwrap_err();
    let expected = SetupError::NoAnswer { phase: Phase::Discovery, attempts: 2 };
    assert!(matches!(error, setup::Error::Exchange(error) if error == expected), "{error}");
}

/// Discovery by multicast is tested by `two_hosts` of the command, which has an interface with multicast.
#[test]
fn devices_are_found_by_address() {
    let (one, other) = (open(5, 1 << 20), open(5, 1 << 19));
    let (index, gid) = source(&other);
    // The response ends the search before its duration.
    let found = || {
        let search = Search::begin(&other, &[(index, gid)], Duration::from_secs(60)).unwrap();
        let mut responders = std::iter::from_fn(|| search.wait().unwrap());
        responders.find(|responder| responder.peer.address == gid).expect("no response")
    };
    // A server responds as well as a presence.
    let server = serve(&one);
    assert_eq!(found().answer.unwrap().guid.0, one.device().guid());
    drop(server);
    let presence = Presence::new(&one).unwrap();
    assert_eq!(presence.addresses(), one.device().gids().len());
    let ours = found();
    assert_eq!(ours.answer.unwrap().guid.0, one.device().guid());
    assert!(ours.round_trip.is_some());
    // A presence refuses connections.
    let factory = Factory::new(&other, ServiceType::ReliableConnection);
    let client = Client::begin(&other, index, gid, RetryPolicy::default()).unwrap();
    let error =
        client.establish(&factory.make(), &[], ConnectionParameters::default()).unwrap_err();
    let setup::Error::Exchange(SetupError::Refused(refused)) = error else { panic!("{error}") };
    assert_eq!((refused.phase, refused.status), (Phase::QueuePairs, setup::Status::REJECTED));
}
