//! One client of the server, from its first request to the end of its control connection.

use std::net::TcpStream;
use std::sync::Arc;
use std::sync::mpsc::Receiver as Queue;

use ferroce::{Buffer, cm};
use ferroce_sys::usage::cpu_time;

use super::control::{Carrier, Control, Cpu, Receiver, Request, Response, lost};
use super::plan::Plan;
use super::rdma::RdmaReceiver;
use super::tcp;
use crate::session::bytes::Pattern;
use crate::session::end::COMPLETION_TIMEOUT;
use crate::session::failure::Failure;

/// The maximum number of connections for data of one client.
const MAX_CONNECTIONS: usize = 16;

/// A connection for data.
#[derive(Debug)]
pub(super) enum Arrival {
    Rdma(Box<cm::Request>),
    Tcp(Control),
}

/// The session of a client.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) plan: Plan,
    pub(super) buffer: Arc<Buffer>,
    pub(super) arrivals: Queue<Arrival>,
    /// Bytes received.
    pub(super) bytes: u64,
    rdma: Vec<RdmaReceiver>,
    tcp: Option<TcpStream>,
}

impl Session {
    pub(super) fn new(plan: Plan, buffer: Arc<Buffer>, arrivals: Queue<Arrival>) -> Self {
        Self { plan, buffer, arrivals, bytes: 0, rdma: Vec::new(), tcp: None }
    }

    /// Answers requests until the client closes the connection.
    pub(super) fn converse(&mut self, control: &mut Control) -> Result<(), Failure> {
        while let Some(request) = control.receive("the client's request", self.plan.patience())? {
            match request {
                Request::Expect { carrier } => self.expect(carrier)?,
                Request::Begin { receiver } => self.transfer(receiver, control)?,
                _ => return Err(Failure::IncompatiblePeer),
            }
        }
        Ok(())
    }

    /// Accepts the connection that the client makes now.
    fn expect(&mut self, carrier: Carrier) -> Result<(), Failure> {
        if self.rdma.len() >= MAX_CONNECTIONS {
            return Err(Failure::IncompatiblePeer);
        }
        let late = |_| Failure::Timeout("the client's connection", COMPLETION_TIMEOUT.as_secs());
        match (carrier, self.arrivals.recv_timeout(COMPLETION_TIMEOUT).map_err(late)?) {
            (Carrier::Rdma, Arrival::Rdma(request)) => {
                self.rdma.push(RdmaReceiver::accept(request, &self.buffer)?);
            }
            (Carrier::Tcp, Arrival::Tcp(mut control)) => {
                control.send(&Response::Go)?;
                let stream = control.into_stream();
                stream.set_read_timeout(Some(COMPLETION_TIMEOUT)).map_err(lost)?;
                stream.set_write_timeout(Some(COMPLETION_TIMEOUT)).map_err(lost)?;
                self.tcp = Some(stream);
            }
            _ => return Err(Failure::IncompatiblePeer),
        }
        Ok(())
    }

    /// Takes part in one transfer, and reports the CPU time from its beginning to its end.
    fn transfer(&mut self, receiver: Receiver, control: &mut Control) -> Result<(), Failure> {
        let before = cpu_time();
        control.send(&Response::Go)?;
        let buffer = match receiver {
            Receiver::Rdma => None,
            Receiver::Tcp => Some(Some(&*self.buffer)),
            Receiver::TcpDiscard => Some(None),
        };
        if let Some(buffer) = buffer {
            let stream = self.tcp.as_ref().ok_or(Failure::IncompatiblePeer)?;
            tcp::receive(stream, &self.plan, buffer)?;
        }
        let end = control.receive("the end of the transfer", self.plan.patience())?;
        let cpu = Cpu::between(before, cpu_time());
        let Some(Request::End { seed }) = end else { return Err(Failure::Disconnected) };
        self.bytes += self.plan.size;
        let correct = seed.map(|seed| self.correct(seed)).transpose()?;
        control.send(&Response::Done { cpu, correct })
    }

    /// The number of correct bytes from the start.
    fn correct(&self, seed: u64) -> Result<u64, Failure> {
        let size = usize::try_from(self.plan.size).map_err(|_| Failure::IncompatiblePeer)?;
        Ok(Pattern::new(seed).check_buffer(&self.buffer, size)? as u64)
    }
}
