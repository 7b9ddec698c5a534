//! Processes on one address are independent: one that is stopped, or that died and left a child, does not keep others from
//! connecting.

use std::io::Read;
use std::net::SocketAddr;

use crate::ends::*;
use crate::other::Other;
use ferroce::cm::{ConnectParameters, EventKind, PortSpace};

/// A process that only opens a device.
#[test]
#[ignore = "a child process of another test"]
fn bystander() {
    if !Other::is_me("independence::bystander") {
        return;
    }
    let channel = channel();
    let _open = resolved(&channel, PortSpace::Tcp, SocketAddr::new(V4, 9));
    println!("\nopen");
    let _ = std::io::stdin().read_line(&mut String::new());
}

/// Accepts connections until it is told to end.
#[test]
#[ignore = "a child process of another test"]
fn server() {
    if !Other::is_me("independence::server") {
        return;
    }
    let channel = channel();
    let (listener, address) = listener(&channel, PortSpace::Tcp, V4, 0);
    println!("\nlistening {}", address.port());
    for _ in 0..CONNECTIONS {
        let asked = request(&channel, &listener);
        let end = equip(&asked.id);
        end.receive(1024, 1024);
        asked.id.accept(&ConnectParameters::default()).unwrap();
        expect!(channel, asked.id, EventKind::Established(_));
        end.done();
        end.holds(1024, b"there");
        expect!(channel, asked.id, EventKind::Disconnected(_));
    }
    let _ = std::io::stdin().read_line(&mut String::new());
}

const CONNECTIONS: usize = 5;

fn connect_to_a_new_server() {
    let mut server = Other::beside("independence::server");
    let address = SocketAddr::new(V4, server.hear("listening").parse().unwrap());
    let channel = channel();
    for _ in 0..CONNECTIONS {
        let client = resolved(&channel, PortSpace::Tcp, address);
        let end = equip(&client);
        client.connect(&ConnectParameters::default()).unwrap();
        expect!(channel, client, EventKind::Established(_));
        end.send(b"there");
        end.done();
        client.disconnect().unwrap();
        expect!(channel, client, EventKind::Disconnected(_));
    }
    server.say("bye");
}

#[test]
fn a_stopped_process_does_not_block_others() {
    // It started first, so it has the first slot.
    let mut stopped = Other::beside("independence::bystander");
    stopped.hear("open");
    stopped.stop();
    connect_to_a_new_server();
    stopped.resume();
    stopped.say("bye");
}

/// Forks a child that never calls exec, and waits with it.
#[test]
#[ignore = "a child process of another test"]
fn forker() {
    if !Other::is_me("independence::forker") {
        return;
    }
    let channel = channel();
    let (_listener, _) = listener(&channel, PortSpace::Tcp, V4, 0);
    // SAFETY: the child waits for the end of its input and ends with `_exit`.
    let child = unsafe { libc::fork() };
    if child != 0 {
        println!("\nforked");
    }
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
    // SAFETY: ends the process.
    unsafe { libc::_exit(0) };
}

#[test]
fn the_child_of_a_dead_process_does_not_block_others() {
    let mut parent = Other::beside("independence::forker");
    parent.hear("forked");
    // Its child shares its input, which ends with this test.
    parent.kill();
    connect_to_a_new_server();
}
