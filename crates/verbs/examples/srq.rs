//! A shared receive queue (SRQ): one pool of receive requests for many connections, sized by the traffic and not by the
//! number of peers.

mod common;

use std::thread;

use common::Outcome;
use ferroce::cm::{ConnectParameters, EventChannel, PortSpace};
use ferroce::*;

const CLIENTS: usize = 3;
const MESSAGES: usize = 4;
const SLOT: usize = 64;

fn main() -> Outcome<()> {
    let channel = EventChannel::from_env()?;
    let (_listener, address) = common::listen(&channel, PortSpace::Tcp)?;
    let clients: Vec<_> =
        (0..CLIENTS).map(|client| thread::spawn(move || talk(address, client))).collect();

    let (device, _) = Device::with_address(address)?;
    let context = Context::open(&device, &Options::from_env()?)?;
    let pd = context.protection_domain();
    let events = CompletionChannel::new()?;
    let completions = context.completion_queue(64, Some(&events))?;
    // Fewer requests than messages: each is posted again after its completion.
    let shared = pd.shared_receive_queue(8)?;
    let region = pd.allocate(8 * SLOT, common::SHARED)?;
    let post = |slot: u64| {
        let sg_list = region.sge(slot * SLOT as u64, SLOT as u32).into();
        shared.post(ReceiveRequest { id: WorkId(slot), sg_list })
    };
    (0..8).try_for_each(post)?;

    let mut ids = Vec::new();
    while ids.len() < CLIENTS {
        let request = channel.wait_request(None)?;
        let options = QueuePairOptions::new(ServiceType::ReliableConnection, &completions);
        let options = QueuePairOptions { srq: Some(&shared), ..options };
        request.id.create_queue_pair(&pd, &options)?;
        request.id.accept(&ConnectParameters::default())?;
        ids.push(request.id);
    }
    let mut got = 0;
    while got < CLIENTS * MESSAGES {
        // The completion has the queue pair of the message, and the ID of the receive request.
        let done = completions.wait()?;
        if done.status != Status::Success {
            return Err(format!("a receive ended with {:?}", done.status).into());
        }
        let mut text = vec![0; done.length as usize];
        region.read(done.id.0 as usize * SLOT, &mut text)?;
        println!("QP {:#08x}: {}", done.queue_pair.0, String::from_utf8_lossy(&text));
        post(done.id.0)?;
        got += 1;
    }
    for client in clients {
        client.join().map_err(|_| "a client panicked")??;
    }
    println!("{got} messages from {CLIENTS} connections through 8 receives");
    Ok(())
}

fn talk(server: std::net::SocketAddr, client: usize) -> Outcome<()> {
    let (id, end, _) = common::connect(server, 4096)?;
    for number in 0..MESSAGES {
        let text = format!("message {number} of client {client}");
        end.region.write(0, text.as_bytes())?;
        end.post(1, Operation::SEND, 0, text.len() as u32)?;
        end.done()?;
    }
    Ok(id.disconnect()?)
}
