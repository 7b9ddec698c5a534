//! Processes that are killed, and the events of their peers.

use std::net::{IpAddr, SocketAddr};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::ends::*;
use crate::other::{Other, port};
use ferroce::cm::{CmId, ConnectParameters, DisconnectCause, EventChannel, EventKind, PortSpace};
use ferroce::*;

const SIGKILL: i32 = 9;
const SIGSEGV: i32 = 11;
const SIGTERM: i32 = 15;

fn connect(channel: &EventChannel, address: SocketAddr) -> (CmId, End) {
    let client = resolved(channel, PortSpace::Tcp, address);
    let end = equip(&client);
    client.connect(&ConnectParameters::default()).unwrap();
    expect!(channel, client, EventKind::Established(_));
    (client, end)
}

fn accept(channel: &EventChannel, listener: &CmId) -> (CmId, End) {
    let asked = request(channel, listener);
    let end = equip(&asked.id);
    asked.id.accept(&ConnectParameters::default()).unwrap();
    expect!(channel, asked.id, EventKind::Established(_));
    (asked.id.clone(), end)
}

/// The killed process, as a client.
#[test]
#[ignore = "a child process of another test"]
fn client_process() {
    if !Other::is_me("deaths::client_process") {
        return;
    }
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
    let channel = channel();
    let _up = connect(&channel, SocketAddr::new(V4, line.trim().parse().unwrap()));
    println!("\nup");
    let _ = std::io::stdin().read_line(&mut line);
}

/// The killed process, as a server.
#[test]
#[ignore = "a child process of another test"]
fn server_process() {
    if !Other::is_me("deaths::server_process") {
        return;
    }
    let channel = channel();
    let (listener, address) = listener(&channel, PortSpace::Tcp, V4, 0);
    println!("\nlistening {}", address.port());
    let _up = accept(&channel, &listener);
    println!("\nup");
    let _ = std::io::stdin().read_line(&mut String::new());
}

/// Kills the process. Rust's handler for stack overflows takes the first SIGSEGV and leaves the next to the kernel.
fn kill(other: &mut Other, signal: i32) {
    while !other.has_ended() {
        other.signal(signal);
        std::thread::yield_now();
    }
}

/// Expects the disconnect event, and flushed requests. Requests to a process that shared memory with this one fail
/// themselves, if they notice its end first.
fn expect_disconnect(channel: &EventChannel, id: &CmId, end: &End, busy: bool) {
    let cause = expect!(channel, id, EventKind::Disconnected(cause) => cause);
    // A process that ends before it is watched is probed, and another one of its address answers for it.
    let causes = [DisconnectCause::ProcessEnded, DisconnectCause::UnknownToPeer];
    assert!(causes.contains(&cause), "{cause:?}");
    if busy {
        let done = end.completions.wait().unwrap();
        let shares = Options::from_env().unwrap().local == Local::Memory;
        let failed = shares && done.status == Status::RetryExceeded;
        assert!(failed || done.status == Status::Flushed, "{done:?}");
        assert_eq!(done.id, WorkId(8));
    }
}

/// Posts a request that cannot complete: the peer has no receive request, and responds with RNR NAKs.
fn post(end: &End) {
    let data = Data::SgList(end.region.sge(0, 8).into());
    let request = SendRequest::new(WorkId(8), Operation::SEND, data);
    end.queue_pair.post_send(request).unwrap();
}

#[test]
fn a_server_is_notified_of_its_clients_death() {
    let channel = channel();
    let (listener, address) = listener(&channel, PortSpace::Tcp, V4, 0);
    for signal in [SIGTERM, SIGSEGV, SIGKILL] {
        for busy in [false, true] {
            let mut other = Other::beside("deaths::client_process");
            other.say(&address.port().to_string());
            let (id, end) = accept(&channel, &listener);
            other.hear("up");
            if busy {
                post(&end);
            }
            kill(&mut other, signal);
            expect_disconnect(&channel, &id, &end, busy);
        }
    }
}

/// As `ferroce run` does for a killed program. This one is alive, so that only the DREQ can end the connection.
#[test]
fn another_process_disconnects_an_orphan() {
    let ledger = std::env::temp_dir().join(format!("ferroce-ledger-{}", std::process::id()));
    std::fs::create_dir(&ledger).unwrap();
    let files = || -> Vec<_> {
        std::fs::read_dir(&ledger).unwrap().map(|entry| entry.unwrap().path()).collect()
    };
    let channel = channel();
    let (listener, address) = listener(&channel, PortSpace::Tcp, V4, 0);
    let mut command = std::process::Command::new(std::env::current_exe().unwrap());
    command.env("FERROCE_LEDGER", &ledger).env(crate::other::PORT, port().to_string());
    let mut other = Other::with(command, "deaths::client_process");
    other.say(&address.port().to_string());
    let (id, _end) = accept(&channel, &listener);
    other.hear("up");
    let [file] = &files()[..] else { panic!("{:?}", files()) };
    let options = Options { port: port(), ..Options::from_env().unwrap() };
    assert_eq!(disconnect_orphans(file, &options), 1);
    expect!(channel, id, EventKind::Disconnected(DisconnectCause::Peer));
    // A process that disconnects itself removes its ledger.
    other.say("done");
    other.wait();
    assert!(files().is_empty());
    std::fs::remove_dir(&ledger).unwrap();
}

#[test]
fn a_client_is_notified_of_its_servers_death() {
    let channel = channel();
    // The surviving process may be the first or the second of the address.
    let early = resolved(&channel, PortSpace::Tcp, SocketAddr::new(V4, 9));
    let mut early = Some(early);
    for signal in [SIGTERM, SIGSEGV, SIGKILL] {
        for busy in [false, true] {
            let mut other = Other::beside("deaths::server_process");
            let port = other.hear("listening").parse().unwrap();
            let (id, end) = connect(&channel, SocketAddr::new(V4, port));
            other.hear("up");
            if busy {
                post(&end);
            }
            kill(&mut other, signal);
            expect_disconnect(&channel, &id, &end, busy);
        }
        early = None;
    }
    assert!(early.is_none());
}

/// The address of [`distant_process`], in a network namespace of its own.
const DISTANT: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 78, 0, 2));

/// The killed process, as a server on another host.
#[test]
#[ignore = "a child process of another test"]
fn distant_process() {
    if !Other::is_me("deaths::distant_process") {
        return;
    }
    let channel = channel();
    let (listener, address) = listener(&channel, PortSpace::Tcp, DISTANT, 0);
    println!("\nlistening {}", address.port());
    let _up = accept(&channel, &listener);
    println!("\nup");
    let _ = std::io::stdin().read_line(&mut String::new());
}

/// A client that only waits: no request of its own would fail. The server is killed before any keepalive.
#[test]
fn a_waiting_client_notices_the_death_of_a_distant_server() {
    let ip = |arguments: &str| {
        let mut ip = Command::new("ip");
        ip.args(arguments.split(' ')).status().is_ok_and(|status| status.success())
    };
    let set_up = "echo; echo apart $$; read line; ip link set lo up && ip link set there up \
        && ip addr add 10.78.0.2/24 dev there && exec \"$0\" \"$@\"";
    let mut unshare = Command::new("unshare");
    unshare.args(["--net", "sh", "-c", set_up]).arg(std::env::current_exe().unwrap());
    unshare.env(crate::other::PORT, port().to_string());
    if !ferroce_test_support::namespace::is_own() || !ip("link add probe type veth peer name other")
    {
        return ferroce_test_support::skip("network interfaces cannot be created here");
    }
    let mut other = Other::with(unshare, "deaths::distant_process");
    let id = other.hear("apart");
    // Its host goes on, and says that nobody listens.
    let _host = std::fs::File::open(format!("/proc/{id}/ns/net")).unwrap();
    assert!(ip(&format!("link add here type veth peer name there netns {id}")));
    assert!(ip("addr add 10.78.0.1/24 dev here") && ip("link set here up"));
    other.say("go");
    let address = SocketAddr::new(DISTANT, other.hear("listening").parse().unwrap());
    let channel = channel();
    let client = CmId::resolve(&channel, PortSpace::Tcp, address, SECOND).unwrap();
    let _end = equip(&client);
    client.connect_blocking(&ConnectParameters::default(), None).unwrap();
    other.hear("up");
    other.kill();
    // With the first probe, or, if it was answered before the kill on a slow host, with the next keepalive.
    let deadline = Instant::now() + Duration::from_secs(60);
    let event = channel.wait(Some(deadline)).unwrap().expect("the death was not noticed");
    let expected = EventKind::Disconnected(DisconnectCause::NoResponse);
    assert_eq!(format!("{:?}", event.kind), format!("{expected:?}"));
}
