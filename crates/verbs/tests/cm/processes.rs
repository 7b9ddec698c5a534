//! Two processes on one address, and what is left of connections in one.

use std::net::SocketAddr;
use std::time::Instant;

use crate::ends::*;
use crate::other::Other;
use ferroce::cm::{CmId, ConnectParameters, EventKind, PortSpace};
use ferroce::*;

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// The device's thread may be about to let go of a queue pair that is gone: what counts is what is left after that.
fn settle_at(count: usize) {
    let start = Instant::now();
    while descriptors() != count {
        assert!(start.elapsed() < 20 * SECOND, "{} descriptors, not {count}", descriptors());
        std::thread::yield_now();
    }
}

/// In a process of its own: descriptors are counted, and tests of one process would disturb each other.
#[test]
fn a_hundred_connections_leave_nothing_behind() {
    let mut child = Other::start("processes::count_descriptors");
    child.say("go");
    child.hear("nothing is left");
}

/// Sockets that a device opens to send from beside its first, and keeps: the address has as many as it may have.
const SENDERS: usize = 15;

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
                    EventKind::Disconnected => over += 1,
                    other => panic!("{other:?}"),
                }
                if up == 2 && over == 0 {
                    client.disconnect().unwrap();
                }
            }
            // Time-wait is the acknowledge delay of 134 ms and a little: nobody waits for it here.
        }
        settle_at(before + SENDERS + 1);
        let again = CmId::new(&channel, PortSpace::Tcp).unwrap();
        assert!(again.bind(address).is_err());
        drop(listener);
        again.bind(address).unwrap();
    }
    settle_at(before + SENDERS);
    // What rests is forgotten by and by: a connection that was begun last rests longest, and tells when it is over.
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
            EventKind::Disconnected => {}
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
    // The peer may end the connection as soon as it has this: nobody waits for the acknowledge.
    end.send(b"back");
    expect!(channel, asked.id, EventKind::Disconnected);
    let refused = request(&channel, &listener);
    refused.id.reject(b"once is enough").unwrap();
    println!("\ndone");
    // The answer to a duplicate may still be asked of us.
    let _ = std::io::stdin().read_line(&mut String::new());
}

#[test]
fn the_listener_is_another_process() {
    let channel = channel();
    // Open before the other process is: messages for it reach us first, and are passed on.
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
    expect!(channel, client, EventKind::Disconnected);
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

/// What a process says last is heard, though it ends at once: even where that comes to its own socket first, because it
/// was there before us.
#[test]
fn last_words_are_heard() {
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
    // Nothing is closed, and nobody is asked.
    std::process::abort();
}
