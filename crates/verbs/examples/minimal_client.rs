//! The client of the smallest RDMA program: uses a capability to WRITE and READ memory of another process.
//!
//!     minimal_client 192.0.2.1:7471     of a server, such as the example minimal_server
//!     minimal_client                    plays the server as well, on the loopback

mod common;

use std::net::SocketAddr;
use std::thread;

use common::{End, Outcome, SECOND, next};
use ferroce::cm::{CmId, ConnectParameters, EventChannel, EventKind, PortSpace};
use ferroce::{Operation, ServiceType};

const TEXT: &[u8] = b"client-wrote-this\0";

fn main() -> Outcome<()> {
    let (server, playing) = match std::env::args().nth(1) {
        Some(address) => (address.parse()?, None),
        None => play_server()?,
    };

    // The way there: which device, which path.
    let channel = EventChannel::from_env()?;
    let id = CmId::new(&channel, PortSpace::Tcp)?;
    id.resolve_address(None, server, SECOND)?;
    let EventKind::AddressResolved = next(&channel)? else { return Err("no way there".into()) };
    id.resolve_route(SECOND)?;
    let EventKind::RouteResolved = next(&channel)? else { return Err("no route there".into()) };

    // A queue pair and memory of our own, then the connection: with it comes the capability.
    let end = End::new(&id, ServiceType::ReliableConnection, 8192)?;
    id.connect(&ConnectParameters::default())?;
    let up = match next(&channel)? {
        EventKind::Established(up) => up,
        other => return Err(format!("not connected: {other:?}").into()),
    };
    let remote = common::remote(&up.private_data)?;
    println!("remote addr={:#x} rkey={:#x}", remote.address.0, remote.key.0);

    // WRITE from the first half of our memory, READ into the second.
    end.region.write(0, TEXT)?;
    end.post(1, Operation::Write { remote, immediate: None }, 0, TEXT.len() as u32)?;
    end.done()?;
    println!("WRITE complete");
    end.post(2, Operation::Read { remote }, 4096, 4096)?;
    let done = end.done()?;
    let bytes = end.bytes(4096, TEXT.len())?;
    println!("READ complete: {} bytes, '{}'", done.length, String::from_utf8_lossy(&bytes[..17]));
    if bytes != TEXT {
        return Err("that is not what was written".into());
    }

    id.disconnect()?;
    common::ended(&channel)?;
    if let Some(server) = playing {
        server.join().map_err(|_| "the server panicked")??;
    }
    println!("done");
    Ok(())
}

/// What minimal_server does, in a thread.
fn play_server() -> Outcome<(SocketAddr, Option<thread::JoinHandle<Outcome<()>>>)> {
    let channel = EventChannel::from_env()?;
    let (listener, address) = common::listen(&channel, "127.0.0.1:0".parse()?)?;
    let serve = move || {
        let _accepted = common::accept(&channel, 4096, |_| Ok(()))?;
        common::ended(&channel)?;
        drop(listener);
        Ok(())
    };
    Ok((address, Some(thread::spawn(serve))))
}
