//! The server of a minimal RDMA program: registers memory, and sends its address and rkey to a client.
//!
//!     minimal_server 192.0.2.1:7471     serves one client: the example minimal_client

use std::net::SocketAddr;

use ferroce::cm::{CmId, ConnectParameters, EventChannel, PortSpace};
use ferroce::{AccessFlags, QueuePairOptions, RemoteAddress, ServiceType};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let address = std::env::args().nth(1).ok_or("usage: minimal_server ADDRESS:PORT")?;
    let address: SocketAddr = address.parse()?;

    let channel = EventChannel::from_env()?;
    let listener = CmId::new(&channel, PortSpace::Tcp)?;
    listener.bind(address)?;
    listener.listen(0)?;
    println!("listening at {}", listener.local_address().ok_or("not bound")?);

    // Memory that the client may READ and WRITE, and a queue pair for the connection.
    let request = channel.wait_request(None)?;
    let context = request.id.context().ok_or("no device")?;
    let pd = context.protection_domain();
    let remote = AccessFlags::REMOTE_READ | AccessFlags::REMOTE_WRITE;
    let mr = pd.allocate(4096, AccessFlags::LOCAL_WRITE | remote)?;
    let cq = context.completion_queue(16, None)?;
    let options = QueuePairOptions::new(ServiceType::ReliableConnection, &cq);
    request.id.create_queue_pair(&pd, &options)?;

    // Accepting sends address and rkey as private data: the client needs both to access the memory.
    let RemoteAddress { address, key } = mr.remote(0);
    let private_data = [&address.0.to_be_bytes()[..], &key.0.to_be_bytes()].concat();
    request.id.accept(&ConnectParameters { private_data, ..ConnectParameters::default() })?;
    println!("the client may write at {:#x} with rkey {:#x}", address.0, key.0);

    // The device executes the client's READs and WRITEs. This thread waits for the client to disconnect.
    request.id.wait_disconnected(None)?;
    let mut bytes = vec![0; 4096];
    mr.read(0, &mut bytes)?;
    let text = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
    println!("the client wrote '{}'", String::from_utf8_lossy(text));
    Ok(())
}
