//! The client: connects, and measures round by round.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use ferroce::{Buffer, Local, Options};
use ferroce_sys::random;
use ferroce_sys::usage::cpu_time;

use super::CompareArgs;
use super::control::{Carrier, Control, Cpu, Request, Response, VERSION, lost};
use super::memory;
use super::method::Method;
use super::plan::Plan;
use super::rdma::RdmaSender;
use super::tcp::{self, TcpSender};
use super::transfer::Transfer;
use crate::progress::{Progress, Unit};
use crate::session::bytes::Pattern;
use crate::session::end::COMPLETION_TIMEOUT;
use crate::session::failure::Failure;
use crate::style::Screen;

/// How long the server may be silent while it serves another client; it reports every second.
const WAITING_TIMEOUT: Duration = Duration::from_secs(10);

/// One transfer with the CPU time of both sides.
#[derive(Clone, Debug)]
pub(super) struct Measurement {
    pub(super) transfer: Transfer,
    pub(super) client: Cpu,
    pub(super) server: Cpu,
    /// Bytes that the server found correct.
    pub(super) verified: Option<u64>,
}

/// A session with a server.
#[derive(Debug)]
pub(super) struct Client {
    control: Control,
    pub(super) server: SocketAddr,
    token: u64,
    pub(super) plan: Plan,
    buffer: Arc<Buffer>,
    verify: bool,
    /// Our addresses of all TCP connections so far, that of the control connection first.
    pub(super) tcp_addresses: Vec<SocketAddr>,
}

/// The connections for data.
#[derive(Debug)]
pub(super) struct Senders {
    shared_memory: Option<RdmaSender>,
    wire: RdmaSender,
    tcp: TcpSender,
}

impl Client {
    /// Connects to a server, and waits until it serves us. `sides` is 2 if its memory is that of this host, too.
    pub(super) fn connect(
        server: SocketAddr,
        plan: Plan,
        verify: bool,
        sides: u64,
        screen: &Screen,
    ) -> Result<Self, Failure> {
        let mut control = Control::new(tcp::connect(server)?).map_err(lost)?;
        let whose = if sides > 1 { "the comparison" } else { "the client" };
        let buffer = memory::allocate(plan.size, sides, whose).map_err(Failure::Other)?;
        control.send(&Request::Hello { version: VERSION, plan })?;
        let mut told = false;
        let mut timeout = plan.patience();
        let token = loop {
            match control.response("the server's answer", timeout)? {
                Response::Ready { token } => break token,
                Response::Waiting => {
                    if !std::mem::replace(&mut told, true) {
                        screen.complain(format_args!("{server} serves another client: waiting"));
                    }
                    timeout = WAITING_TIMEOUT.max(plan.patience());
                }
                _ => return Err(Failure::IncompatiblePeer),
            }
        };
        Pattern::new(token).fill_buffer(&buffer)?;
        let tcp_addresses = vec![control.local_address()?];
        Ok(Self { control, server, token, plan, buffer, verify, tcp_addresses })
    }

    /// Makes a connection by RDMA-CM.
    pub(super) fn open_rdma(&mut self, options: Options) -> Result<RdmaSender, Failure> {
        self.control.send(&Request::Expect { carrier: Carrier::Rdma })?;
        RdmaSender::open(self.server, self.token, &self.buffer, options)
    }

    /// Makes a connection by TCP.
    pub(super) fn open_tcp(&mut self) -> Result<TcpSender, Failure> {
        self.control.send(&Request::Expect { carrier: Carrier::Tcp })?;
        let sender = TcpSender::open(self.server, self.token)?;
        self.tcp_addresses.push(sender.local_address()?);
        Ok(sender)
    }

    /// Makes all connections. RDMA uses shared memory if the server runs on this host and neither side refuses it.
    pub(super) fn open(&mut self, wire_only: bool) -> Result<Senders, Failure> {
        let options = Options::from_env()?;
        let shared_memory = match wire_only || options.local == Local::Sockets {
            true => None,
            false => Some(self.open_rdma(options.clone())?).filter(RdmaSender::shares_memory),
        };
        let wire = self.open_rdma(Options { local: Local::Sockets, ..options })?;
        Ok(Senders { shared_memory, wire, tcp: self.open_tcp()? })
    }

    /// Transfers the buffer once.
    pub(super) fn measure(
        &mut self,
        method: Method,
        transfer: impl FnOnce(&Plan, &Buffer) -> Result<Transfer, Failure>,
    ) -> Result<Measurement, Failure> {
        // A new pattern, so that bytes of an earlier transfer count as wrong.
        let seed = (self.verify && method.is_stored()).then(random::number);
        if let Some(seed) = seed {
            Pattern::new(seed).fill_buffer(&self.buffer)?;
        }
        self.control.send(&Request::Begin { receiver: method.receiver() })?;
        match self.control.response("the server's answer", COMPLETION_TIMEOUT)? {
            Response::Go => {}
            _ => return Err(Failure::IncompatiblePeer),
        }
        let before = cpu_time();
        let transfer = transfer(&self.plan, &self.buffer)?;
        let client = Cpu::between(before, cpu_time());
        self.control.send(&Request::End { seed })?;
        match self.control.response("the server's figures", self.plan.patience())? {
            Response::Done { cpu: server, correct } => {
                let size = self.plan.size;
                match (seed, correct) {
                    (Some(_), Some(correct)) if correct != size => {
                        Err(Failure::DataMismatch(format!("byte {correct} of {size} is wrong")))
                    }
                    (Some(_), None) => Err(Failure::IncompatiblePeer),
                    _ => {
                        Ok(Measurement { transfer, client, server, verified: seed.and(Some(size)) })
                    }
                }
            }
            _ => Err(Failure::IncompatiblePeer),
        }
    }
}

impl Senders {
    pub(super) fn methods(&self) -> Vec<Method> {
        let shared = self.shared_memory.as_ref().map(|_| Method::RdmaSharedMemory);
        shared.into_iter().chain([Method::RdmaWire, Method::Tcp, Method::TcpDiscard]).collect()
    }

    fn rdma(&self, method: Method) -> Option<&RdmaSender> {
        match method {
            Method::RdmaSharedMemory => self.shared_memory.as_ref(),
            Method::RdmaWire => Some(&self.wire),
            Method::Tcp | Method::TcpDiscard => None,
        }
    }

    /// The transport counters of a method, since its connection exists.
    pub(super) fn counters(&self, method: Method) -> BTreeMap<&'static str, u64> {
        self.rdma(method).map(RdmaSender::counters).unwrap_or_default()
    }

    /// Disconnects.
    pub(super) fn close(self) -> Result<(), Failure> {
        for sender in self.shared_memory.into_iter().chain([self.wire]) {
            sender.close()?;
        }
        Ok(())
    }
}

/// Every measurement of a method.
#[derive(Debug)]
pub(super) struct Measured {
    pub(super) method: Method,
    pub(super) rounds: Vec<Measurement>,
    pub(super) counters: BTreeMap<&'static str, u64>,
}

/// Measures all rounds, after one that does not count: it makes the pages, windows and caches of all methods warm.
pub(super) fn measure(
    client: &mut Client,
    senders: &Senders,
    args: &CompareArgs,
) -> Result<Vec<Measured>, Failure> {
    let methods = senders.methods();
    let rounds = args.rounds as usize;
    let size = client.plan.size;
    let total = size.saturating_mul((methods.len() * (rounds + 1)) as u64);
    let mut progress = Progress::new("", Some(total), Unit::Bytes, args.quiet);
    let counters = BTreeMap::new();
    let empty =
        |method| Measured { method, rounds: Vec::new(), counters: BTreeMap::clone(&counters) };
    let mut measured: Vec<_> = methods.iter().copied().map(empty).collect();
    let mut done = 0;
    for round in 0..=rounds {
        // Each method is the first of a round as often as the others.
        for index in 0..methods.len() {
            let at = (round + index) % methods.len();
            let method = methods[at];
            let name = match round {
                0 => format!("warm-up: {}", method.title()),
                _ => format!("round {round} of {rounds}: {}", method.title()),
            };
            progress.rename(&name);
            let before = senders.counters(method);
            let result = client.measure(method, |plan, buffer| {
                let mut show = |sent| progress.show(done + sent);
                match senders.rdma(method) {
                    Some(rdma) => rdma.transfer(plan, &mut show),
                    None => senders.tcp.transfer(plan, buffer, &mut show),
                }
            });
            let result = result.map_err(|failure| {
                progress.erase();
                Failure::Other(format!("{name}: {failure}"))
            })?;
            done += size;
            if round > 0 {
                for (counter, value) in senders.counters(method) {
                    let more = value - before.get(counter).copied().unwrap_or(0);
                    *measured[at].counters.entry(counter).or_default() += more;
                }
                measured[at].rounds.push(result);
            }
        }
    }
    progress.erase();
    Ok(measured)
}
