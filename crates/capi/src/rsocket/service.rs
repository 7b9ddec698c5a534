//! The thread that sees to sockets: it takes the events of all streams, so that connections come up, are accepted and end
//! whether or not the program calls just then; it asks now and then whether peers are still there; and it takes what comes
//! by the sockets of the system's that datagrams have.

use std::collections::HashMap;
use std::ffi::c_int;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use ferroce::RnrRetry;
use ferroce::cm::{ConnectParameters, Event, EventKind, Request};

use super::link::Link;
use super::socket::{Phase, Socket, State};
use super::wait::Progress;
use super::wire::ConnectData;
use crate::context::lock;
use crate::entry::{self, Errno, Result};

/// How long a connection may be silent before its peer is asked whether it is there. A peer that was killed cannot say
/// so, and who only reads would wait for it for ever; the answer, or that there is none, is the device's business.
pub(super) const SILENCE: Duration = Duration::from_secs(3);

/// What it sees to.
pub(super) trait Served: Send + Sync {
    /// What is readable when there is something to see to.
    fn descriptor(&self) -> RawFd;

    /// There is.
    fn ready(self: Arc<Self>);

    /// Called now and then.
    fn tick(&self) {}
}

impl Served for Socket {
    fn descriptor(&self) -> RawFd {
        self.events
    }

    fn ready(self: Arc<Self>) {
        take_events(&self);
    }

    fn tick(&self) {
        probe(self);
    }
}

struct Service {
    process: u32,
    epoll: OwnedFd,
    sockets: Mutex<HashMap<RawFd, Arc<dyn Served>>>,
    /// Held by the thread while it sees to any.
    busy: Mutex<()>,
}

static SERVICE: Mutex<Option<Arc<Service>>> = Mutex::new(None);

/// That of this process, with its thread.
fn service() -> Result<Arc<Service>> {
    let mut place = lock(&SERVICE);
    let process = std::process::id();
    if let Some(known) = place.as_ref().filter(|known| known.process == process) {
        return Ok(Arc::clone(known));
    }
    // SAFETY: the call takes no pointers.
    let fd = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
    if fd < 0 {
        return Err(Errno::last());
    }
    // SAFETY: just made, and nobody else's.
    let epoll = unsafe { OwnedFd::from_raw_fd(fd) };
    let made =
        Arc::new(Service { process, epoll, sockets: Mutex::default(), busy: Mutex::default() });
    let its = Arc::clone(&made);
    let thread = std::thread::Builder::new().name("rsocket".into());
    // Signals are for the program's own threads.
    let started = without_signals(|| thread.spawn(move || its.run()));
    started.map_err(|error| Errno(error.raw_os_error().unwrap_or(libc::EAGAIN)))?;
    *place = Some(Arc::clone(&made));
    Ok(made)
}

/// Does something with all signals blocked but those of faults, which must reach a handler: a thread that is started then
/// has none.
fn without_signals<T>(body: impl FnOnce() -> T) -> T {
    // SAFETY: sets of ours, which the calls fill.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        let mut before: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        for fault in [libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGFPE, libc::SIGTRAP] {
            libc::sigdelset(&raw mut all, fault);
        }
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const all, &raw mut before);
        let result = body();
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut());
        result
    }
}

/// Sees to a socket from now on.
pub(super) fn add<S: Served + 'static>(socket: &Arc<S>) -> Result<()> {
    let service = service()?;
    let number = socket.descriptor();
    lock(&service.sockets).insert(number, Arc::clone(socket) as Arc<dyn Served>);
    let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: number as u64 };
    let epoll = service.epoll.as_raw_fd();
    // SAFETY: a structure of ours.
    let added = unsafe { libc::epoll_ctl(epoll, libc::EPOLL_CTL_ADD, number, &raw mut event) };
    let error = Errno::last();
    // One that it sees to already, it goes on seeing to.
    if added < 0 && error.0 != libc::EEXIST {
        lock(&service.sockets).remove(&number);
        return Err(error);
    }
    Ok(())
}

/// Waits until the thread is through with what it sees to just now: from then on, it has nothing of a socket that was removed.
/// Not for the thread itself.
pub(super) fn settle() {
    let known = lock(&SERVICE).as_ref().map(Arc::clone);
    if let Some(service) = known.filter(|known| known.process == std::process::id()) {
        drop(lock(&service.busy));
    }
}

/// Sees to it no longer.
pub(super) fn remove(socket: &impl Served) {
    let known = lock(&SERVICE).as_ref().map(Arc::clone);
    if let Some(service) = known.filter(|known| known.process == std::process::id()) {
        let (epoll, number) = (service.epoll.as_raw_fd(), socket.descriptor());
        // SAFETY: no structure is needed. It may not have been there.
        unsafe { libc::epoll_ctl(epoll, libc::EPOLL_CTL_DEL, number, std::ptr::null_mut()) };
        let gone = lock(&service.sockets).remove(&number);
        drop(gone);
    }
}

impl Service {
    fn run(&self) {
        loop {
            let mut events = [libc::epoll_event { events: 0, u64: 0 }; 16];
            let some = !lock(&self.sockets).is_empty();
            let timeout = if some { SILENCE.as_millis() as c_int } else { -1 };
            let (epoll, most) = (self.epoll.as_raw_fd(), events.len() as c_int);
            // SAFETY: a list of ours.
            let found = unsafe { libc::epoll_wait(epoll, events.as_mut_ptr(), most, timeout) };
            let _busy = lock(&self.busy);
            for event in events.iter().take(usize::try_from(found).unwrap_or(0)) {
                let number = event.u64 as RawFd;
                let socket = lock(&self.sockets).get(&number).cloned();
                if let Some(socket) = socket {
                    // A fault of ours in one connection is not one of all.
                    entry::nothing(|| {
                        socket.ready();
                        Ok(())
                    });
                }
            }
            let all: Vec<_> = lock(&self.sockets).values().cloned().collect();
            for socket in all {
                entry::nothing(|| {
                    socket.tick();
                    Ok(())
                });
            }
        }
    }
}

/// Asks a silent peer whether it is there.
fn probe(socket: &Socket) {
    let mut state = socket.state();
    if !state.phase.is_connected() || state.heard.elapsed() < state.options.silence(SILENCE) {
        return;
    }
    state.progress();
    state.heard = Instant::now();
    if let Some(link) = &mut state.link {
        let _ = link.probe();
        // Its end is an event that wakes who waits for the connection; if nobody does, the next look finds it.
    }
}

fn take_events(socket: &Arc<Socket>) {
    while let Ok(Some(event)) = socket.channel.try_event() {
        if event.id != socket.id.name() {
            continue; // Of an id that has moved to its own channel.
        }
        happened(socket, event);
    }
}

fn happened(socket: &Arc<Socket>, event: Event) {
    match event.kind {
        EventKind::AddressResolved => check(socket, socket.id.resolve_route(Duration::ZERO)),
        EventKind::RouteResolved => {
            let asked = connect(socket);
            refuse_on_error(socket, asked);
        }
        EventKind::ConnectRequest(request) => {
            // Who cannot be accepted is told no, by the end of its id.
            let _ = accept(socket, *request);
        }
        EventKind::Established(established) => {
            established_with(socket, &established.private_data);
        }
        EventKind::AddressError(error)
        | EventKind::RouteError(error)
        | EventKind::ConnectError(error) => {
            over(socket, error.errno());
        }
        EventKind::Unreachable(_) => over(socket, libc::ETIMEDOUT),
        EventKind::Rejected { .. } => over(socket, libc::ECONNREFUSED),
        EventKind::Disconnected => over(socket, libc::ECONNRESET),
        _ => {}
    }
}

fn check(socket: &Arc<Socket>, done: std::result::Result<(), ferroce::cm::Error>) {
    refuse_on_error(socket, done.map_err(Errno::from));
}

fn refuse_on_error(socket: &Arc<Socket>, done: Result<()>) {
    if let Err(error) = done {
        over(socket, error.0);
    }
}

/// What rdma-core asks for.
fn parameters(data: &ConnectData) -> ConnectParameters {
    ConnectParameters {
        private_data: data.write().to_vec(),
        responder_resources: 0,
        initiator_depth: 0,
        flow_control: true,
        retry_count: 7,
        rnr_retry: RnrRetry::FOR_EVER,
        ..ConnectParameters::default()
    }
}

fn link_for(socket: &Socket, state: &State) -> Result<Link> {
    let context = socket.id.context().ok_or(Errno(libc::ENODEV))?;
    Link::new(&socket.id, &context, state.settings)
}

/// The way is known: asks the peer.
fn connect(socket: &Socket) -> Result<()> {
    let wish = {
        let mut state = socket.state();
        let link = link_for(socket, &state)?;
        let wish = parameters(&link.connect_data());
        state.link = Some(link);
        wish
    };
    Ok(socket.id.connect(&wish)?)
}

/// A peer asks: it is accepted before the program does, as TCP's are.
fn accept(listener: &Arc<Socket>, request: Request) -> Result<()> {
    let peer = ConnectData::read(&request.private_data).ok_or(Errno(libc::EPROTO))?;
    let (settings, options, nonblocking) = {
        let state = listener.state();
        if state.phase != Phase::Listening || state.queue.len() >= state.backlog {
            return Err(Errno(libc::ECONNREFUSED));
        }
        (state.settings, state.options, state.nonblocking)
    };
    let channel = ferroce::cm::EventChannel::from_env()?;
    request.id.migrate(&channel);
    let socket = Socket::with_id(channel, request.id, listener.family, nonblocking, settings)?;
    let answer = {
        let mut state = socket.state();
        let mut link = link_for(&socket, &state)?;
        link.meet(&peer)?;
        let answer = parameters(&link.connect_data());
        state.link = Some(link);
        state.options = options;
        state.phase = Phase::Opening;
        state.listener = Arc::downgrade(listener);
        answer
    };
    add(&socket)?;
    if let Err(error) = socket.id.accept(&answer) {
        remove(&*socket);
        return Err(error.into());
    }
    Ok(())
}

/// The connection is up. Who asked for it hears of the peer only now.
fn established_with(socket: &Arc<Socket>, private_data: &[u8]) {
    let listener = socket.change(|state| {
        if state.phase != Phase::Opening {
            return None;
        }
        let met = match &mut state.link {
            Some(link) if link.peer.is_none() => {
                let peer = ConnectData::read(private_data);
                peer.ok_or(Errno(libc::EPROTO)).and_then(|peer| link.meet(&peer))
            }
            Some(_) => Ok(()),
            None => Err(Errno(libc::EPROTO)),
        };
        match met {
            Ok(()) => {
                state.phase = Phase::Connected { readable: true, writable: true };
                state.heard = Instant::now();
                // The peer is told of the second half of the buffer at once.
                state.progress();
            }
            Err(error) => (state.phase, state.error) = (Phase::Refused, error.0),
        }
        state.listener.upgrade()
    });
    if let Some(listener) = listener {
        listener.change(|state| state.queue.push_back(Arc::clone(socket)));
    }
}

/// It did not come to be, or is over.
fn over(socket: &Arc<Socket>, error: c_int) {
    let nobodys = socket.change(|state| match state.phase {
        Phase::Opening => {
            (state.phase, state.error) = (Phase::Refused, error);
            state.listener.upgrade().is_some()
        }
        Phase::Connected { .. } => {
            // What came before the end is still there to be read.
            state.progress();
            if state.phase.is_connected() {
                state.phase = Phase::Disconnected;
            }
            false
        }
        _ => false,
    });
    // The program does not know of a connection that never came up.
    if nobodys {
        remove(&**socket);
    }
}
