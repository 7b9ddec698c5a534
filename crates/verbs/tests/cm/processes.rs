//! Two processes on one address, and the resources that connections leave behind.

use std::net::SocketAddr;
use std::time::Instant;

use crate::ends::*;
use crate::other::Other;
use ferroce::cm::{CmId, ConnectParameters, EventKind, PortSpace};
use ferroce::*;

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// Waits until the process has this number of descriptors: the device thread may still release a destroyed QP.
fn wait_for_descriptors(count: usize) {
    let start = Instant::now();
    while descriptors() != count {
        assert!(start.elapsed() < 20 * SECOND, "{} descriptors, not {count}", descriptors());
        std::thread::yield_now();
    }
}

/// Waits until all other threads of the process sleep: one that starts may have sockets open for a moment.
fn wait_for_sleeping_threads() {
    let this = std::fs::read_link("/proc/thread-self").unwrap();
    let is_awake = |task: &std::path::Path| {
        // A thread that has ended is not awake.
        let stat = std::fs::read_to_string(task.join("stat")).unwrap_or_default();
        let state = stat.rsplit(") ").next().and_then(|rest| rest.chars().next());
        task.file_name() != this.file_name() && state == Some('R')
    };
    let tasks = || std::fs::read_dir("/proc/self/task").unwrap().map(|task| task.unwrap().path());
    while tasks().any(|task| is_awake(&task)) {
        std::thread::yield_now();
    }
}

/// In its own process, because it counts descriptors.
#[test]
fn a_hundred_connections_leak_no_descriptors() {
    let mut child = Other::start("processes::count_descriptors");
    child.say("go");
    child.hear("nothing is left");
}

/// Sockets that a device opens and keeps besides the first to send from: the maximum of an address.
const SENDERS: usize = 15;

/// The two ends of the connection for the memory that a process shares with itself.
fn links() -> usize {
    if Options::from_env().unwrap().local == Local::Memory { 2 } else { 0 }
}

/// The other process of the test above.
#[test]
#[ignore = "a child process of another test"]
fn count_descriptors() {
    if !Other::is_me("processes::count_descriptors") {
        return;
    }
    let channel = channel();
    let context = {
        let keep = resolved(&channel, PortSpace::Tcp, SocketAddr::new(V4, 9));
        keep.context().unwrap()
    };
    wait_for_sleeping_threads();
    let before = descriptors();
    {
        let (listener, address) = listener(&channel, PortSpace::Tcp, V4, 0);
        for _ in 0..100 {
            let client = resolved(&channel, PortSpace::Tcp, address);
            let _end = equip(&client);
            let wish =
                ConnectParameters { ack_timeout: AckTimeout(1), ..ConnectParameters::default() };
            client.connect(&wish).unwrap();
            let asked = request(&channel, &listener);
            let _other = equip(&asked.id);
            asked.id.accept(&ConnectParameters::default()).unwrap();
            let (mut up, mut over) = (0, 0);
            while over < 2 {
                match next(&channel).kind {
                    EventKind::Established(_) => up += 1,
                    EventKind::Disconnected(_) => over += 1,
                    other => panic!("{other:?}"),
                }
                if up == 2 && over == 0 {
                    client.disconnect().unwrap();
                }
            }
            // Time-wait lasts little more than the ACK delay of 134 ms: the loop does not wait for it.
        }
        wait_for_descriptors(before + SENDERS + 1 + links());
        let again = CmId::new(&channel, PortSpace::Tcp).unwrap();
        assert!(again.bind(address).is_err());
        drop(listener);
        again.bind(address).unwrap();
    }
    wait_for_descriptors(before + SENDERS + links());
    // The connection that was started last leaves time-wait last, and reports it.
    let (listener, address) = listener(&channel, PortSpace::Tcp, V4, 0);
    let client = resolved(&channel, PortSpace::Tcp, address);
    let _end = equip(&client);
    client
        .connect(&ConnectParameters { ack_timeout: AckTimeout(8), ..Default::default() })
        .unwrap();
    let asked = request(&channel, &listener);
    let _other = equip(&asked.id);
    asked.id.accept(&ConnectParameters::default()).unwrap();
    let (mut up, mut rested) = (0, 0);
    while rested < 2 {
        match next(&channel).kind {
            EventKind::Established(_) => up += 1,
            EventKind::TimewaitExit => rested += 1,
            EventKind::Disconnected(_) => {}
            other => panic!("{other:?}"),
        }
        if up == 2 {
            client.disconnect().unwrap();
        }
    }
    assert_eq!(context.connections(), 0);
    println!("\nnothing is left");
}

/// The other process of the test below.
#[test]
#[ignore = "a child process of another test"]
fn listener_process() {
    if !Other::is_me("processes::listener_process") {
        return;
    }
    let channel = channel();
    let (listener, address) = listener(&channel, PortSpace::Tcp, V4, 0);
    println!("\nlistening {}", address.port());
    let asked = request(&channel, &listener);
    let end = equip(&asked.id);
    end.receive(1024, 1024);
    asked.id.accept(&with_data(b"from far")).unwrap();
    expect!(channel, asked.id, EventKind::Established(_));
    end.done();
    // The peer may disconnect on receipt: the ACK is not awaited.
    end.send(b"back");
    expect!(channel, asked.id, EventKind::Disconnected(_));
    let refused = request(&channel, &listener);
    refused.id.reject(b"once is enough").unwrap();
    println!("\ndone");
    // A duplicate may still need a response.
    let _ = std::io::stdin().read_line(&mut String::new());
}

#[test]
fn connects_to_a_listener_in_another_process() {
    let channel = channel();
    // Opened before the other process: its messages reach us first, and are forwarded.
    let early = resolved(&channel, PortSpace::Tcp, SocketAddr::new(V4, 9));
    let mut child = Other::beside("processes::listener_process");
    let port = child.hear("listening").parse().unwrap();
    let address = SocketAddr::new(V4, port);
    let taken = CmId::new(&channel, PortSpace::Tcp).unwrap();
    let error = taken.bind(address).unwrap_err();
    assert_eq!(error.errno(), ferroce_sys::errno::EADDRINUSE);
    let client = resolved(&channel, PortSpace::Tcp, address);
    let end = equip(&client);
    end.receive(1024, 1024);
    client.connect(&with_data(b"hello")).unwrap();
    let up = expect!(channel, client, EventKind::Established(up) => up);
    assert_eq!(up.private_data, padded(b"from far", 196));
    end.send(b"there");
    assert!(end.done().id != end.done().id);
    end.holds(1024, b"back");
    client.disconnect().unwrap();
    expect!(channel, client, EventKind::Disconnected(_));
    let second = resolved(&channel, PortSpace::Tcp, address);
    let _end = equip(&second);
    second.connect(&ConnectParameters::default()).unwrap();
    let data = expect!(
        channel, second, EventKind::Rejected { private_data, .. } => private_data
    );
    assert_eq!(data, padded(b"once is enough", 148));
    child.hear("done");
    child.say("bye");
    drop(early);
}

/// The last messages of a process arrive although it exits at once, even if its own socket receives them first and it must
/// forward them.
#[test]
fn messages_sent_before_exit_arrive() {
    for _ in 0..10 {
        let mut child = Other::beside("processes::last_words");
        let port: u16 = child.hear("port").parse().unwrap();
        let channel = channel();
        let client = resolved(&channel, PortSpace::Tcp, SocketAddr::new(V4, port));
        let _end = equip(&client);
        client.connect(&ConnectParameters::default()).unwrap();
        let heard =
            expect!(channel, client, EventKind::Rejected { private_data, .. } => private_data);
        assert_eq!(heard, padded(b"last words", 148));
    }
}

/// The other process of the test above.
#[test]
#[ignore = "a child process of another test"]
fn last_words() {
    if !Other::is_me("processes::last_words") {
        return;
    }
    let channel = channel();
    let (listener, address) = listener(&channel, PortSpace::Tcp, V4, 0);
    println!("\nport {}", address.port());
    request(&channel, &listener).id.reject(b"last words").unwrap();
    // Exits without closing anything.
    std::process::abort();
}
