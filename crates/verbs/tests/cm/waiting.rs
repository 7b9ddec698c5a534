//! Processes that are stopped or killed while a thread waits for completions, and so receives the packets itself.

use std::net::SocketAddr;

use ferroce::Status;
use ferroce::cm::{ConnectParameters, EventKind, PortSpace};

use crate::ends::{V4, channel, equip, listener, next, resolved};
use crate::other::Other;

/// Accepts one connection, and prints each message that it receives.
#[test]
#[ignore = "the other process of the tests"]
fn receiver() {
    if !Other::is_me("waiting::receiver") {
        return;
    }
    let channel = channel();
    let (listener, address) = listener(&channel, PortSpace::Tcp, V4, 0);
    println!("\nlistening {}", address.port());
    let asked = expect!(channel, listener, EventKind::ConnectRequest(asked) => asked);
    let end = equip(&asked.id);
    (0..8).for_each(|_| end.receive(1024, 1024));
    asked.id.accept(&ConnectParameters::default()).unwrap();
    expect!(channel, asked.id, EventKind::Established(_));
    loop {
        println!("\nwaiting");
        let received = end.done();
        println!("\nreceived {}", received.length);
    }
}

#[test]
fn a_waiting_process_may_be_stopped_and_killed() {
    let mut receiver = Other::beside("waiting::receiver");
    let address = SocketAddr::new(V4, receiver.hear("listening").parse().unwrap());
    let channel = channel();
    let client = resolved(&channel, PortSpace::Tcp, address);
    let end = equip(&client);
    client.connect(&ConnectParameters::default()).unwrap();
    expect!(channel, client, EventKind::Established(_));
    for length in 1..=3 {
        receiver.hear("waiting");
        // Stopped in the middle of its wait, or just before. The message arrives while it is.
        receiver.stop();
        end.send(&vec![7; length]);
        assert!(end.completions.poll_one().is_none());
        receiver.resume();
        assert_eq!(receiver.hear("received"), length.to_string());
        end.done();
    }
    receiver.hear("waiting");
    receiver.kill();
    // The kernel closed its sockets: the connection ends, and so does what was posted.
    end.send(b"nobody is there");
    expect!(channel, client, EventKind::Disconnected(_));
    let status = end.completions.wait().unwrap().status;
    assert!(matches!(status, Status::Flushed | Status::RetryExceeded), "{status:?}");
}

/// While one thread of a process waits and receives for all, others wait for it. When it leaves, another takes over.
#[test]
fn followers_go_on_when_the_leader_leaves() {
    const ROUNDS: usize = 200;
    let mut receiver = Other::beside("waiting::echo");
    let address = SocketAddr::new(V4, receiver.hear("listening").parse().unwrap());
    let channel = channel();
    let ends: Vec<_> = (0..3)
        .map(|_| {
            let client = resolved(&channel, PortSpace::Tcp, address);
            let end = equip(&client);
            client.connect(&ConnectParameters::default()).unwrap();
            expect!(channel, client, EventKind::Established(_));
            (client, end)
        })
        .collect();
    std::thread::scope(|scope| {
        for (number, (_, end)) in ends.iter().enumerate() {
            scope.spawn(move || {
                // Each ends at another time, whether it leads or not.
                for _ in 0..ROUNDS * (number + 1) {
                    end.receive(1024, 1024);
                    end.send(b"echo");
                    // The send and the reply.
                    end.done();
                    end.done();
                }
            });
        }
    });
    drop(ends);
    receiver.say("bye");
}

/// Sends every message back, on three connections.
#[test]
#[ignore = "the other process of the tests"]
fn echo() {
    if !Other::is_me("waiting::echo") {
        return;
    }
    let channel = channel();
    let (listener, address) = listener(&channel, PortSpace::Tcp, V4, 0);
    println!("\nlistening {}", address.port());
    let accepted: Vec<_> = (0..3)
        .map(|_| {
            let asked = expect!(channel, listener, EventKind::ConnectRequest(asked) => asked);
            let end = equip(&asked.id);
            end.receive(1024, 1024);
            asked.id.accept(&ConnectParameters::default()).unwrap();
            expect!(channel, asked.id, EventKind::Established(_));
            (asked, end)
        })
        .collect();
    std::thread::scope(|scope| {
        for (_, end) in &accepted {
            scope.spawn(|| {
                loop {
                    let done = end.completions.wait().unwrap();
                    match (done.status, done.id.0) {
                        (Status::Success, 7) => {
                            end.receive(1024, 1024);
                            end.send(b"echo");
                        }
                        (Status::Success, _) => {}
                        _ => return,
                    }
                }
            });
        }
    });
}
