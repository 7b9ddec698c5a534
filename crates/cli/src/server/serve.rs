//! One client, from its request to its end.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ferroce::cm::Request;
use ferroce::{MemoryRegion, clock};

use super::{Report, Reporter};
use crate::session::bytes::{Pattern, Size, bytes};
use crate::session::dump;
use crate::session::end::{End, Parts, Received, SHARED};
use crate::session::events::{Haste, parameters};
use crate::session::failure::Failure;
use crate::session::log::Log;
use crate::session::protocol::{MemoryGrant, MemoryRequest, SessionMessage};

/// How long a client may be idle before the server probes the connection.
const IDLE_TIMEOUT: Duration = Duration::from_secs(10);

/// The memory available to clients.
#[derive(Debug)]
pub(super) struct Budget {
    limit: u64,
    left: AtomicU64,
}

/// The memory of one client.
#[derive(Debug)]
struct Share<'a>(&'a Budget, u64);

impl Budget {
    pub(super) fn new(limit: Size) -> Self {
        Self { limit: limit.0, left: AtomicU64::new(limit.0) }
    }

    /// Whether this much is available.
    fn has(&self, bytes: u64) -> bool {
        bytes <= self.left.load(Ordering::Relaxed)
    }

    fn exceeded(&self, wish: MemoryRequest) -> String {
        format!(
            "{} are more than it has left of {}: see its --memory",
            Size(wish.size),
            Size(self.limit)
        )
    }

    fn take(&self, bytes: u64) -> Option<Share<'_>> {
        let take = |left: u64| left.checked_sub(bytes);
        self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).ok()?;
        Some(Share(self, bytes))
    }
}

impl Drop for Share<'_> {
    fn drop(&mut self) {
        self.0.left.fetch_add(self.1, Ordering::Relaxed);
    }
}

/// A client that was sent a REP: its QP and its region, which takes no memory before it is used.
pub(super) struct Offer {
    request: Box<Request>,
    client: SocketAddr,
    pub(super) start: u64,
    wish: MemoryRequest,
    end: End,
    region: MemoryRegion,
}

/// The client's address.
fn client_of(request: &Request) -> SocketAddr {
    let unknown = SocketAddr::from(([0, 0, 0, 0], 0));
    request.id.peer_address().unwrap_or(unknown)
}

/// Rejects a request and reports it.
pub(super) fn refuse(request: &Request, reason: String, reporter: &Reporter) -> Failure {
    // The peer may have given up.
    let _ = request.id.reject(reason.as_bytes());
    let client = client_of(request);
    reporter.report(&Report::Refused { client, reason: reason.clone() });
    Failure::Other(reason)
}

/// Accepts a request. The budget is charged only after the client has confirmed, because anyone can send a request.
pub(super) fn accept(
    request: Box<Request>,
    budget: &Budget,
    reporter: &Reporter,
) -> Result<Offer, Failure> {
    let (start, client) = (clock::now(), client_of(&request));
    let mut session = Session::new(reporter);
    let Some(wish) = MemoryRequest::parse(&request.private_data) else {
        let reason = "the client is no `ferroce client` of this version".to_owned();
        return Err(refuse(&request, reason, reporter));
    };
    let Some(length) = wish.region().filter(|&bytes| budget.has(bytes as u64)) else {
        return Err(refuse(&request, budget.exceeded(wish), reporter));
    };
    session.say("cm", format!("CONNECT_REQUEST from {client}: {} requested", Size(wish.size)));
    match session.accept(&request, length) {
        Ok((end, region)) => Ok(Offer { request, client, start, wish, end, region }),
        Err(failure) => Err(refuse(&request, failure.to_string(), reporter)),
    }
}

impl Offer {
    /// Drops a client that has not confirmed.
    pub(super) fn withdraw(self, reporter: &Reporter) {
        let reason = "it has not completed the connection".to_owned();
        reporter.report(&Report::Refused { client: self.client, reason });
    }

    /// Serves a client that has confirmed, and reports the result.
    pub(super) fn serve(self, budget: &Budget, reporter: &Reporter) -> Result<(), Failure> {
        let Self { request, client, start, wish, end, region } = self;
        let Some(_share) = wish.region().and_then(|bytes| budget.take(bytes as u64)) else {
            // Other clients were faster. Dropping the cm_id ends the connection.
            let reason = budget.exceeded(wish);
            reporter.report(&Report::Refused { client, reason: reason.clone() });
            return Err(Failure::Other(reason));
        };
        reporter.report(&Report::Connected { client, bytes: wish.size });
        if let Some(buffer) = region.buffer() {
            // So that the client does not measure our page faults. The kernel may not support it, and the client may be writing
            // already: contents do not change.
            let _ = ferroce_sys::memory::populate(buffer.address(), buffer.len(), true);
        }
        let mut session = Session::new(reporter);
        let served = session.converse(&end, &region);
        let failure = served.as_ref().err().map(Failure::to_string);
        reporter.report(&Report::Left {
            client,
            duration_ns: clock::now() - start,
            verified_bytes: session.verified,
            failure,
        });
        drop(request);
        served
    }
}

/// The report about a client, and the bytes verified so far.
pub(super) struct Session<'a> {
    reporter: &'a Reporter,
    log: Log,
    pub(super) verified: u64,
}

impl<'a> Session<'a> {
    pub(super) fn new(reporter: &'a Reporter) -> Self {
        Self { reporter, log: Log::new("server"), verified: 0 }
    }

    /// Logs steps, and reports them if requested.
    pub(super) fn steps(&mut self, make: impl FnOnce(&mut Log)) {
        make(&mut self.log);
        for step in self.log.steps.drain(..) {
            if self.reporter.wants_steps() {
                self.reporter.report(&Report::Step(step));
            }
        }
    }

    pub(super) fn say(&mut self, part: &str, text: String) {
        self.steps(|log| {
            log.say(part, text);
        });
    }

    /// Registers memory and sends its address and rkey to the client.
    fn accept(&mut self, request: &Request, length: usize) -> Result<(End, MemoryRegion), Failure> {
        let closed = Failure::Other("the device is closed".into());
        let context = request.id.context().ok_or(closed)?;
        let since = clock::now();
        let parts = Parts::new(&context)?;
        let queue_pair = request.id.create_queue_pair(&parts.pd, &parts.options())?;
        let end = parts.with(queue_pair);
        end.post_receives()?;
        self.steps(|log| {
            log.done("main", since, "Build PD/CQ/QP, post receives");
            dump::queue_pair(log, &end.queue_pair);
        });
        let since = clock::now();
        let region = end.parts.pd.allocate(length, SHARED)?;
        self.steps(|log| dump::region(log, since, "remote", &region));
        let grant = MemoryGrant { remote: region.remote(0) };
        let text = format!(
            "accept() with private data: remote addr={:#x} rkey={:#x}",
            grant.remote.address.0, grant.remote.key.0
        );
        self.say("cm", text);
        request.id.accept(&parameters(grant.emit(), Haste::Hasty))?;
        Ok((end, region))
    }

    /// Answers messages until the client disconnects.
    pub(super) fn converse(&mut self, end: &End, region: &MemoryRegion) -> Result<(), Failure> {
        loop {
            let (arrival, done) = match end.receive(IDLE_TIMEOUT) {
                Ok(Some(arrival)) => arrival,
                Ok(None) if end.is_peer_there() => continue,
                Ok(None) => return Err(Failure::Other("it does not answer any more".into())),
                Err(Failure::Disconnected) => {
                    self.say("cm", "DISCONNECTED".into());
                    return Ok(());
                }
                Err(failure) => return Err(failure),
            };
            self.steps(|log| dump::completion(log, None, None, &done));
            let answer = match arrival {
                Received::Message(SessionMessage::Text(text)) => {
                    self.say("main", format!("RECV complete: '{text}'"));
                    SessionMessage::Text(text)
                }
                Received::Message(SessionMessage::Check { seed, length }) => {
                    self.check(region, seed, length)?
                }
                Received::Immediate(immediate, length) => {
                    self.check(region, u64::from(immediate), u64::from(length))?
                }
                Received::Message(SessionMessage::Goodbye) => {
                    self.say("main", "the client has left".into());
                    return Ok(());
                }
                Received::Message(SessionMessage::Verdict { .. }) => {
                    return Err(Failure::IncompatiblePeer);
                }
            };
            match end.send(&answer) {
                Ok(_) => {}
                Err(Failure::Disconnected) => return Ok(()),
                Err(failure) => return Err(failure),
            }
        }
    }

    /// Verifies bytes written by the client.
    fn check(
        &mut self,
        region: &MemoryRegion,
        seed: u64,
        length: u64,
    ) -> Result<SessionMessage, Failure> {
        let since = clock::now();
        // A length beyond the region counts as wrong.
        let checked =
            usize::try_from(length.min(region.len())).map_err(|_| Failure::IncompatiblePeer)?;
        let right = Pattern::new(seed).check(region, 0, checked)? as u64;
        self.verified += right;
        self.steps(|log| {
            log.done(
                "main",
                since,
                format!("{right} of {} match the client's pattern", bytes(length)),
            );
        });
        Ok(SessionMessage::Verdict { right })
    }
}
