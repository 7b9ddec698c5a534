//! The client of a minimal RDMA program: WRITEs and READs the memory of another process.
//!
//!     minimal_client 192.0.2.1:7471     connects to the example minimal_server

use std::net::SocketAddr;
use std::time::Duration;

use ferroce::cm::{CmId, ConnectParameters, EventChannel, PortSpace};
use ferroce::*;

const TEXT: &[u8] = b"client-wrote-this\0";

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let server = std::env::args().nth(1).ok_or("usage: minimal_client ADDRESS:PORT")?;
    let server: SocketAddr = server.parse()?;

    // Resolving finds the device; memory and queue pair belong to it.
    let channel = EventChannel::from_env()?;
    let id = CmId::resolve(&channel, PortSpace::Tcp, server, Duration::from_secs(1))?;
    let context = id.context().ok_or("no device")?;
    let pd = context.protection_domain();
    let mr = pd.allocate(8192, AccessFlags::LOCAL_WRITE)?;
    let cq = context.completion_queue(16, Some(&CompletionChannel::new()?))?;
    let options = QueuePairOptions::new(ServiceType::ReliableConnection, &cq);
    let qp = id.create_queue_pair(&pd, &options)?;

    // The server accepts with the address and rkey of its memory.
    let accepted = id.connect_blocking(&ConnectParameters::default(), None)?;
    let (address, rest) = accepted.private_data.split_first_chunk().ok_or("no address")?;
    let (key, _) = rest.split_first_chunk().ok_or("no rkey")?;
    let remote = RemoteAddress {
        address: VirtualAddress(u64::from_be_bytes(*address)),
        key: RKey(u32::from_be_bytes(*key)),
    };
    println!("remote addr={:#x} rkey={:#x}", remote.address.0, remote.key.0);

    // Each work request completes in the completion queue.
    let execute = |operation, sge: Sge| -> Result<u32, Box<dyn std::error::Error>> {
        qp.post_send(SendRequest::new(WorkId(1), operation, Data::SgList(sge.into())))?;
        match cq.wait()? {
            done if done.status == Status::Success => Ok(done.length),
            done => Err(format!("the request failed: {:?}", done.status).into()),
        }
    };
    mr.write(0, TEXT)?;
    execute(Operation::Write { remote, immediate: None }, mr.sge(0, TEXT.len() as u32))?;
    println!("WRITE complete");
    let length = execute(Operation::Read { remote }, mr.sge(4096, 4096))?;
    let mut bytes = [0; TEXT.len()];
    mr.read(4096, &mut bytes)?;
    println!("READ complete: {length} bytes, '{}'", String::from_utf8_lossy(&bytes[..17]));

    id.disconnect()?;
    println!("done");
    Ok(())
}
