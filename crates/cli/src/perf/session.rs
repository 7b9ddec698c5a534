//! One side of a test: its workers, and the messages between them and those of the peer.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use ferroce::{Context, Gid, Options};

use super::args::Transport;
use super::control::{Control, Event, Mail, Message, gone};
use super::end::{EndAddress, Resources};
use super::tally::Tally;
use super::test::Test;
use super::worker::{Line, Shared, Side, Worker};
use crate::session::failure::Failure;

/// How long a failed request waits for the reason, such as the end of the peer.
const REASON: Duration = Duration::from_millis(500);

/// The time between updates of the progress line.
const TICK: Duration = Duration::from_millis(100);

/// The device of a test and the way to the peer.
#[derive(Debug)]
pub(super) struct Route {
    pub(super) context: Context,
    index: u8,
    peer: Gid,
}

impl Route {
    /// Opens the device that the control connection uses. Each thread has a shard of its own, unless the environment
    /// says otherwise.
    pub(super) fn open(
        control: &Control,
        mut options: Options,
        threads: u32,
    ) -> Result<Self, Failure> {
        if threads > 1 && options.shards.is_none() {
            options.shards = u8::try_from(threads).ok().filter(|n| *n <= ferroce::MAX_SHARDS);
        }
        let (device, index, peer) = control.device()?;
        Ok(Self { context: Context::open(&device, &options)?, index, peer })
    }

    /// The longest UD message.
    pub(super) fn mtu(&self) -> u64 {
        self.context.mtu().bytes().unwrap_or(256) as u64
    }
}

/// One side of a test.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) control: Control,
    side: Side,
    route: Route,
    resources: Resources,
    workers: Vec<Worker>,
    shared: Arc<Shared>,
}

/// What both sides measured.
#[derive(Clone, Debug, Default)]
pub(super) struct Measured {
    pub(super) own: Tally,
    pub(super) peer: Tally,
}

impl Session {
    /// Creates the QPs.
    pub(super) fn new(
        control: Control,
        route: Route,
        test: &Arc<Test>,
        side: Side,
    ) -> Result<Self, Failure> {
        let context = route.context.clone();
        let resources = Resources {
            pd: context.protection_domain(),
            xrc: (test.transport == Transport::Xrc).then(|| context.xrc_domain()),
            context,
        };
        let (qps, threads) = (u64::from(test.qps), u64::from(test.threads));
        let part = |thread: u64| thread * qps / threads..(thread + 1) * qps / threads;
        let workers = (0..threads).map(|n| Worker::new(&resources, test, side, part(n)));
        let workers = workers.collect::<Result<_, _>>()?;
        Ok(Self { control, side, route, resources, workers, shared: Arc::default() })
    }

    /// What the peer needs to know of the QPs.
    pub(super) fn ends(&self) -> Vec<EndAddress> {
        self.workers.iter().flat_map(|worker| &worker.ends).map(|end| end.address()).collect()
    }

    /// Connects the QPs to the peer's.
    pub(super) fn connect(&mut self, peers: &[EndAddress]) -> Result<(), Failure> {
        if peers.len() != self.workers.iter().map(|worker| worker.ends.len()).sum::<usize>() {
            return Err(Failure::IncompatiblePeer);
        }
        let route = (self.route.index, self.route.peer);
        let mut rest = peers;
        for worker in &mut self.workers {
            let (own, others) = rest.split_at(worker.ends.len());
            worker.connect(&self.resources, route, own)?;
            rest = others;
        }
        Ok(())
    }

    /// Whether all packets go through shared memory.
    pub(super) fn shares_memory(&self) -> bool {
        self.workers.iter().flat_map(|worker| &worker.ends).all(|end| end.shares_memory())
    }

    /// Whether the user asked to end.
    pub(super) fn is_interrupted(&self) -> bool {
        self.shared.interrupted.load(Ordering::Relaxed)
    }

    pub(super) fn prepare(&self, size: u64) -> Result<(), Failure> {
        self.shared.messages.store(0, Ordering::Relaxed);
        self.workers.iter().try_for_each(|worker| worker.prepare(size))
    }

    /// Runs the workers for one size. `tick` gets the number of messages sent so far.
    pub(super) fn run(&self, size: u64, tick: impl FnMut(u64)) -> Result<Measured, Failure> {
        let mut mailboxes = Vec::new();
        thread::scope(|scope| {
            for (number, worker) in self.workers.iter().enumerate() {
                let (sender, mail) = mpsc::channel();
                mailboxes.push(sender);
                let (events, shared) = (self.control.sender.clone(), Arc::clone(&self.shared));
                let line = Line { worker: number, mail, events, shared };
                let work = move || {
                    let result = worker.run(size, &line);
                    // Without a receiver the session is over already.
                    let _ = line.events.send(Event::Ended(result));
                };
                if let Err(error) = thread::Builder::new().spawn_scoped(scope, work) {
                    self.shared.abort.store(true, Ordering::Relaxed);
                    return Err(Failure::Other(format!("cannot start a thread: {error}")));
                }
            }
            let measured = self.route_messages(&mailboxes, tick);
            if measured.is_err() {
                self.shared.abort.store(true, Ordering::Relaxed);
            }
            measured
        })
        .inspect_err(|failure| {
            // The peer may be gone.
            let _ = self.control.send(&Message::Failed { why: failure.to_string() });
        })
    }

    /// Passes messages between the workers and the peer until all workers are done; the client also waits for the
    /// server's result.
    fn route_messages(
        &self,
        mailboxes: &[Sender<Mail>],
        mut tick: impl FnMut(u64),
    ) -> Result<Measured, Failure> {
        let mut measured = Measured::default();
        let (mut running, mut peer) = (self.workers.len(), self.side == Side::Client);
        let mut failed: Option<(Failure, Instant)> = None;
        while running > 0 || peer {
            tick(self.shared.messages.load(Ordering::Relaxed));
            if let Some((failure, _)) = failed.take_if(|(_, until)| *until <= Instant::now()) {
                return Err(failure);
            }
            let event = match self.control.events.recv_timeout(TICK) {
                Ok(event) => event,
                Err(RecvTimeoutError::Timeout) => continue,
                Err(RecvTimeoutError::Disconnected) => return Err(Failure::Disconnected),
            };
            match event {
                Event::Peer(Message::Mail { worker, mail }) => {
                    let mailbox = mailboxes.get(worker).ok_or(Failure::IncompatiblePeer)?;
                    // A worker that has ended needs no messages.
                    let _ = mailbox.send(mail);
                }
                Event::Peer(Message::Done { tally }) if peer => {
                    measured.peer = tally;
                    peer = false;
                }
                Event::Peer(Message::Failed { why }) => {
                    return Err(Failure::Other(format!("the peer failed: {why}")));
                }
                Event::Peer(Message::Interrupt) => {
                    self.shared.interrupted.store(true, Ordering::Relaxed);
                }
                Event::Peer(_) => return Err(Failure::IncompatiblePeer),
                Event::Gone(why) => return Err(gone(&why)),
                Event::Mail(worker, mail) => {
                    self.control.send(&Message::Mail { worker, mail })?;
                }
                Event::Ended(Ok(tally)) => {
                    measured.own.add(&tally);
                    running -= 1;
                }
                Event::Ended(Err(failure @ Failure::Work(..))) => {
                    // The peer's reason is better than its effect on a request.
                    running -= 1;
                    peer = true;
                    failed.get_or_insert((failure, Instant::now() + REASON));
                }
                Event::Ended(Err(failure)) => return Err(failure),
                Event::Interrupted => {
                    if self.shared.interrupted.swap(true, Ordering::Relaxed) {
                        return Err(Failure::Other("interrupted".into()));
                    }
                    self.control.send(&Message::Interrupt)?;
                }
            }
        }
        Ok(measured)
    }
}
