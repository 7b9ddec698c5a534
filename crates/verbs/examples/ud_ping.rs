//! Unreliable datagrams (UD): no connection, no acknowledgement, and a header of 40 bytes before every message. The client
//! repeats a ping that is not answered.
//!
//!     ud_ping [COUNT]

mod common;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use common::{End, Outcome};
use ferroce::cm::{CmId, ConnectParameters, EventChannel, PortSpace};
use ferroce::*;

/// The GRH, or its replacement over IPv4 (IBA 11.4.1.2).
const HEADER: usize = 40;
const TIMEOUT: Duration = Duration::from_millis(200);

fn main() -> Outcome<()> {
    let count: u64 = std::env::args().nth(1).as_deref().unwrap_or("5").parse()?;
    let channel = EventChannel::from_env()?;
    let (_listener, address) = common::listen(&channel, PortSpace::Udp)?;
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let echo = scope.spawn(|| echo(&channel, &over));
        let pinged = ping(address, count);
        over.store(true, Ordering::Relaxed);
        echo.join().map_err(|_| "the echo panicked")??;
        pinged
    })
}

/// Waits for a completion until the timeout.
fn wait(end: &End) -> Outcome<Option<WorkCompletion>> {
    Ok(end.completions.wait_until(Instant::now() + TIMEOUT)?)
}

/// Sends `text` from the front of the region.
fn send(end: &End, handle: &AddressHandle, to: Qpn, key: QKey, text: &[u8]) -> Outcome<()> {
    end.region.write(0, text)?;
    let data = Data::SgList(end.region.sge(0, text.len() as u32).into());
    let mut request = handle.request(WorkId(1), to, key, data);
    request.signaled = false;
    Ok(end.queue_pair.post_datagram(request)?)
}

fn ping(server: std::net::SocketAddr, count: u64) -> Outcome<()> {
    let channel = EventChannel::from_env()?;
    let id = CmId::resolve(&channel, PortSpace::Udp, server, Duration::from_secs(1))?;
    let end = End::new(&id, ServiceType::UnreliableDatagram, 4096)?;
    // There is no connection: the peer only returns the number and the key of its queue pair.
    let established = id.connect_blocking(&ConnectParameters::default(), None)?;
    let peer = established.datagram.ok_or("no UD queue pair")?;
    let handle = end.pd.address_handle(&peer.address)?;
    for number in 0..count {
        let text = format!("ping {number} of this");
        end.post_receive(2, 1024, 1024)?;
        let start = Instant::now();
        for tries in 1.. {
            send(&end, &handle, peer.queue_pair, peer.queue_key, text.as_bytes())?;
            match wait(&end)? {
                Some(done) => {
                    let answer = end.bytes(1024 + HEADER, done.length as usize - HEADER)?;
                    if answer == text.as_bytes() {
                        println!("ping {number}: {:?}, tries {tries}", start.elapsed());
                        break;
                    }
                    // A late response to an earlier ping.
                    end.post_receive(2, 1024, 1024)?;
                }
                None if tries < 50 => {}
                None => return Err("no response to 50 pings".into()),
            }
        }
    }
    println!("{count} pings answered");
    Ok(())
}

/// Sends the pings back until `over` is set.
fn echo(events: &EventChannel, over: &AtomicBool) -> Outcome<()> {
    let request = events.wait_request(None)?;
    let end = End::new(&request.id, ServiceType::UnreliableDatagram, 4096)?;
    end.post_receive(2, 1024, 1024)?;
    request.id.accept(&ConnectParameters::default())?;
    let peer = request.id.peer_address().ok_or("no peer")?;
    let vector = AddressVector {
        port: 1,
        source_index: request.id.source_index().ok_or("no device")?,
        destination: Gid::from_ip(peer.ip()),
        ..AddressVector::default()
    };
    let handle = end.pd.address_handle(&vector)?;
    while !over.load(Ordering::Relaxed) {
        let Some(done) = wait(&end)? else { continue };
        let text = end.bytes(1024 + HEADER, done.length as usize - HEADER)?;
        end.post_receive(2, 1024, 1024)?;
        let from = done.source.ok_or("no source QPN")?;
        send(&end, &handle, from, cm::DATAGRAM_QUEUE_KEY, &text)?;
    }
    Ok(())
}
