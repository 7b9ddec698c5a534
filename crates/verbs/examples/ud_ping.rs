//! Datagrams: no connection, no acknowledgement, and a header of 40 bytes before every message. Who needs an answer asks
//! again.
//!
//!     ud_ping [COUNT]

mod common;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use common::{Outcome, SECOND, next};
use ferroce::cm::{CmId, ConnectParameters, EventChannel, EventKind, PortSpace};
use ferroce::*;

/// The GRH, or what stands in for it over IPv4 (IBA 11.4.1.2).
const HEADER: usize = 40;
const TIMEOUT: Duration = Duration::from_millis(200);

fn main() -> Outcome<()> {
    let count: u64 = std::env::args().nth(1).as_deref().unwrap_or("5").parse()?;
    let channel = EventChannel::from_env()?;
    let listener = CmId::new(&channel, PortSpace::Udp)?;
    listener.bind("127.0.0.1:0".parse()?)?;
    listener.listen(0)?;
    let address = listener.local_address().ok_or("not bound")?;
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let echo = scope.spawn(|| echo(&channel, &over));
        let pinged = ping(address, count);
        over.store(true, Ordering::Relaxed);
        echo.join().map_err(|_| "the echo panicked")??;
        pinged
    })
}

/// A datagram queue pair of an id, with a channel that can be waited on.
fn datagrams(id: &CmId) -> Outcome<(CompletionChannel, common::End)> {
    let context = id.context().ok_or("no device")?;
    let pd = context.protection_domain();
    let channel = CompletionChannel::new()?;
    let completions = context.completion_queue(64, Some(&channel))?;
    let options = QueuePairOptions::new(ServiceType::UnreliableDatagram, &completions);
    let queue_pair = id.create_queue_pair(&pd, &options)?;
    let region = pd.allocate(4096, common::SHARED)?;
    Ok((channel, common::End { pd, completions, queue_pair, region }))
}

/// Waits for a completion for a while.
fn wait(end: &common::End) -> Outcome<Option<WorkCompletion>> {
    Ok(end.completions.wait_until(Instant::now() + TIMEOUT)?)
}

/// Sends `text` from the front of the region.
fn send(end: &common::End, way: &AddressHandle, to: Qpn, key: QKey, text: &[u8]) -> Outcome<()> {
    end.region.write(0, text)?;
    Ok(end.queue_pair.post_datagram(UdSendRequest {
        id: WorkId(1),
        address: way,
        destination: to,
        queue_key: key,
        immediate: None,
        data: end.data(0, text.len() as u32),
        signaled: false,
        solicited: false,
    })?)
}

fn ping(server: std::net::SocketAddr, count: u64) -> Outcome<()> {
    let channel = EventChannel::from_env()?;
    let id = CmId::new(&channel, PortSpace::Udp)?;
    id.resolve_address(None, server, SECOND)?;
    let EventKind::AddressResolved = next(&channel)? else { return Err("no way there".into()) };
    id.resolve_route(SECOND)?;
    let EventKind::RouteResolved = next(&channel)? else { return Err("no route there".into()) };
    let (completed, end) = datagrams(&id)?;
    // No connection: the peer only tells the number and the key of its queue pair.
    id.connect(&ConnectParameters::default())?;
    let EventKind::Established(up) = next(&channel)? else { return Err("no answer".into()) };
    let peer = up.datagram.ok_or("no datagrams")?;
    let way = end.pd.address_handle(&peer.address)?;
    for number in 0..count {
        let text = format!("ping {number} of this");
        end.post_receive(2, 1024, 1024)?;
        let start = Instant::now();
        for tries in 1.. {
            send(&end, &way, peer.queue_pair, peer.queue_key, text.as_bytes())?;
            match wait(&end)? {
                Some(done) => {
                    let answer = end.bytes(1024 + HEADER, done.length as usize - HEADER)?;
                    if answer == text.as_bytes() {
                        println!("ping {number}: {:?}, tries {tries}", start.elapsed());
                        break;
                    }
                    // The answer to an earlier ping, late.
                    end.post_receive(2, 1024, 1024)?;
                }
                None if tries < 50 => {}
                None => return Err("no answer to any of 50 pings".into()),
            }
        }
    }
    println!("{count} pings answered");
    Ok(())
}

/// Answers until it is over.
fn echo(events: &EventChannel, over: &AtomicBool) -> Outcome<()> {
    let EventKind::ConnectRequest(request) = next(events)? else { return Err("no request".into()) };
    let (completed, end) = datagrams(&request.id)?;
    end.post_receive(2, 1024, 1024)?;
    request.id.accept(&ConnectParameters::default())?;
    let peer = request.id.peer_address().ok_or("no peer")?;
    let vector = AddressVector {
        port: 1,
        source_index: request.id.source_index().ok_or("no device")?,
        destination: Gid::from_ip(peer.ip()),
        ..AddressVector::default()
    };
    let way = end.pd.address_handle(&vector)?;
    while !over.load(Ordering::Relaxed) {
        let Some(done) = wait(&end)? else { continue };
        let text = end.bytes(1024 + HEADER, done.length as usize - HEADER)?;
        end.post_receive(2, 1024, 1024)?;
        let from = done.source.ok_or("a datagram from nobody")?;
        send(&end, &way, from, cm::DATAGRAM_QUEUE_KEY, &text)?;
    }
    Ok(())
}
