//! The server of the smallest RDMA program: registers memory, and shares the capability to write it.
//!
//!     minimal_server 192.0.2.1:7471     serves one client, such as the example minimal_client
//!     minimal_server                    plays the client as well, on the loopback

mod common;

use std::net::SocketAddr;
use std::thread;

use common::{End, Outcome};
use ferroce::cm::{CmId, ConnectParameters, EventChannel, EventKind, PortSpace};
use ferroce::{Operation, ServiceType};

fn main() -> Outcome<()> {
    let address = std::env::args().nth(1);
    let listen: SocketAddr = address.as_deref().unwrap_or("127.0.0.1:0").parse()?;

    let channel = EventChannel::from_env()?;
    let listener = CmId::new(&channel, PortSpace::Tcp)?;
    listener.bind(listen)?;
    listener.listen(0)?;
    let listen = listener.local_address().ok_or("not bound")?;
    println!("listening at {listen}");
    let client = address.is_none().then(|| thread::spawn(move || client(listen)));

    // Somebody wants to connect. Memory has to be registered before anyone can reach it, and only who has its address
    // and key can: they travel with our consent.
    let EventKind::ConnectRequest(request) = common::next(&channel)? else {
        return Err("something else than a request".into());
    };
    let end = End::new(&request.id, ServiceType::ReliableConnection, 4096)?;
    let private_data = end.capability();
    request.id.accept(&ConnectParameters { private_data, ..ConnectParameters::default() })?;
    println!(
        "a client may write at {:#x} with rkey {:#x}",
        end.region.address().0,
        end.region.rkey().0
    );

    // This side has no part in what the client does with the memory: it only hears that the client has left.
    common::ended(&channel)?;
    let bytes = end.bytes(0, 4096)?;
    let text = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
    println!("the client wrote '{}'", String::from_utf8_lossy(text));
    if let Some(client) = client {
        client.join().map_err(|_| "the client panicked")??;
    }
    Ok(())
}

/// What minimal_client does, in short.
fn client(server: SocketAddr) -> Outcome<()> {
    let channel = EventChannel::from_env()?;
    let (id, end, remote) = common::connect(&channel, server, 4096)?;
    end.region.write(0, b"client-wrote-this\0")?;
    end.post(1, Operation::Write { remote, immediate: None }, 0, 18)?;
    end.done()?;
    Ok(id.disconnect()?)
}
