//! One client, from its request to its end.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ferroce::cm::Request;
use ferroce::{MemoryRegion, clock};

use super::{Report, Reporter};
use crate::session::bytes::{Pattern, Size};
use crate::session::dump;
use crate::session::end::{Arrival, End, Parts, SHARED};
use crate::session::events::{Haste, parameters};
use crate::session::failure::Failure;
use crate::session::log::Log;
use crate::session::protocol::{Grant, Message, Wish};

/// How long a client may be silent before it is asked whether it is there.
const SILENCE: Duration = Duration::from_secs(10);

/// Memory that clients may have.
#[derive(Debug)]
pub(super) struct Budget {
    limit: u64,
    left: AtomicU64,
}

/// Memory of one client.
#[derive(Debug)]
struct Share<'a>(&'a Budget, u64);

impl Budget {
    pub(super) fn new(limit: Size) -> Self {
        Self { limit: limit.0, left: AtomicU64::new(limit.0) }
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

/// Serves one client, and reports.
pub(super) fn serve(
    request: &Request,
    budget: &Budget,
    reporter: &Reporter,
) -> Result<(), Failure> {
    let start = clock::now();
    let unknown = SocketAddr::from(([0, 0, 0, 0], 0));
    let client = request.id.peer_address().unwrap_or(unknown);
    let mut session = Session::new(reporter);
    let (wish, _share) = match wish(request, budget) {
        Ok(granted) => granted,
        Err(reason) => {
            // The peer may have given up meanwhile.
            let _ = request.id.reject(reason.as_bytes());
            reporter.report(&Report::Refused { client, reason: reason.clone() });
            return Err(Failure::Other(reason));
        }
    };
    session.say("cm", format!("CONNECT_REQUEST from {client}: it wants {}", Size(wish.size)));
    let served = session.accept(request, wish).and_then(|(end, region)| {
        reporter.report(&Report::Connected { client, bytes: wish.size });
        session.converse(&end, &region)
    });
    let failure = served.as_ref().err().map(Failure::to_string);
    reporter.report(&Report::Left {
        client,
        duration_ns: clock::now() - start,
        verified_bytes: session.verified,
        failure,
    });
    served
}

fn wish<'a>(request: &Request, budget: &'a Budget) -> Result<(Wish, Share<'a>), String> {
    let stranger = || "the client is no `ferroce client` of this version".to_owned();
    let wish = Wish::parse(&request.private_data).ok_or_else(stranger)?;
    let share = wish.region().and_then(|bytes| budget.take(bytes as u64));
    let share = share.ok_or_else(|| {
        format!(
            "{} are more than it has left of {}: see its --memory",
            Size(wish.size),
            Size(budget.limit)
        )
    })?;
    Ok((wish, share))
}

/// What is said about a client, and what was found right.
pub(super) struct Session<'a> {
    reporter: &'a Reporter,
    log: Log,
    pub(super) verified: u64,
}

impl<'a> Session<'a> {
    pub(super) fn new(reporter: &'a Reporter) -> Self {
        Self { reporter, log: Log::new("server"), verified: 0 }
    }

    /// Makes steps, and reports them if they are asked for.
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

    /// Registers memory and tells the client where it is.
    fn accept(&mut self, request: &Request, wish: Wish) -> Result<(End, MemoryRegion), Failure> {
        let closed = Failure::Other("the device is closed".into());
        let context = request.id.context().ok_or(closed)?;
        let since = clock::now();
        let parts = Parts::new(&context)?;
        let queue_pair = request.id.create_queue_pair(&parts.domain, &parts.options())?;
        let end = parts.with(queue_pair);
        end.post_receives()?;
        self.steps(|log| {
            log.done("main", since, "Build PD/CQ/QP, post receives");
            dump::queue_pair(log, &end.queue_pair);
        });
        let since = clock::now();
        let length = wish.region().ok_or(Failure::Stranger)?;
        let region = end.parts.domain.allocate(length, SHARED)?;
        self.steps(|log| dump::region(log, since, "remote", &region));
        let grant = Grant { remote: region.remote(0) };
        let text = format!(
            "accept() with private data: remote addr={:#x} rkey={:#x}",
            grant.remote.address.0, grant.remote.key.0
        );
        self.say("cm", text);
        request.id.accept(&parameters(grant.emit(), Haste::Hasty))?;
        Ok((end, region))
    }

    /// Answers messages until the client has left.
    pub(super) fn converse(&mut self, end: &End, region: &MemoryRegion) -> Result<(), Failure> {
        loop {
            let (arrival, done) = match end.arrival(SILENCE) {
                Ok(Some(arrival)) => arrival,
                Ok(None) if end.is_peer_there() => continue,
                Ok(None) => return Err(Failure::Other("it does not answer any more".into())),
                Err(Failure::Gone) => {
                    self.say("cm", "DISCONNECTED".into());
                    return Ok(());
                }
                Err(failure) => return Err(failure),
            };
            self.steps(|log| dump::completion(log, None, None, &done));
            let answer = match arrival {
                Arrival::Message(Message::Text(text)) => {
                    self.say("main", format!("RECV complete: '{text}'"));
                    Message::Text(text)
                }
                Arrival::Message(Message::Check { seed, length }) => {
                    self.check(region, seed, length)?
                }
                Arrival::Immediate(immediate, length) => {
                    self.check(region, u64::from(immediate), u64::from(length))?
                }
                Arrival::Message(Message::Goodbye) => {
                    self.say("main", "the client has left".into());
                    return Ok(());
                }
                Arrival::Message(Message::Verdict { .. }) => return Err(Failure::Stranger),
            };
            match end.send(&answer) {
                Ok(_) => {}
                Err(Failure::Gone) => return Ok(()),
                Err(failure) => return Err(failure),
            }
        }
    }

    /// Looks at bytes that the client has written.
    fn check(&mut self, region: &MemoryRegion, seed: u64, length: u64) -> Result<Message, Failure> {
        let since = clock::now();
        // More than there is, is as good as wrong.
        let bytes = usize::try_from(length.min(region.len())).map_err(|_| Failure::Stranger)?;
        let right = Pattern::new(seed).check(region, 0, bytes)? as u64;
        self.verified += right;
        self.steps(|log| {
            log.done("main", since, format!("{right} of {length} bytes are as the client says"));
        });
        Ok(Message::Verdict { right })
    }
}
