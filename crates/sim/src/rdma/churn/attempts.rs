//! Connections of programs by the connection manager.

use super::connection::Connection;
use super::processes::Processes;
use crate::event_log::EventLog;
use crate::fabric::Fabric;
use crate::random::Random;
use crate::rdma::host::{RdmaHost, service};
use crate::rdma::management::{Attempt, ConnectionState};
use crate::rdma::workload::Service;

/// The last attempt of a connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct LastAttempt {
    service: u64,
    /// The end that sends the request.
    active: usize,
    /// Both sides were connected, and it is counted.
    is_counted: bool,
    /// The program has disconnected it, or a process has ended.
    is_ended: bool,
}

impl Connection {
    /// Connects both ends by messages: one listens, and the other one requests.
    pub(super) fn connect_by_messages<T: EventLog>(
        &mut self,
        fabric: &mut Fabric<RdmaHost, T>,
        processes: &Processes,
        random: &mut Random,
    ) {
        if random.below(2) == 0 {
            // New QPs, of which no manager knows an earlier connection.
            (0..2).for_each(|end| self.destroy(end, fabric));
        }
        let Some(configs) = self.renew(fabric, processes, random) else { return };
        let active = if self.service() == Service::Extended { 0 } else { random.below(2) as usize };
        self.attempts += 1;
        let slot = processes.slot(self.host(1 - active));
        let number = service(slot, (self.number as u64) << 24 | self.attempts);
        for end in [1 - active, active] {
            let (index, config) = configs[end].clone();
            let attempt = |host: &RdmaHost| Attempt {
                service: number,
                endpoint: index,
                number: host.qpn(index),
                peer: processes.address(self.host(1 - end)),
                config,
                kind: self.service(),
            };
            fabric.with_host(self.id(end), |host, now| {
                let attempt = attempt(host);
                host.with_management(|management, host| {
                    management.attempt(now, attempt, end == active, host);
                })
            });
        }
        self.attempt =
            Some(LastAttempt { service: number, active, is_counted: false, is_ended: false });
    }

    /// Disconnects an end, if it was connected by messages, in whatever state that is.
    pub(super) fn disconnect<T: EventLog>(&mut self, end: usize, fabric: &mut Fabric<RdmaHost, T>) {
        let Some(attempt) = &mut self.attempt else { return };
        attempt.is_ended = true;
        let service = attempt.service;
        self.separate();
        fabric.with_host(self.id(end), |host, now| {
            host.with_management(|management, host| {
                management.end_attempt(now, service, false, host)
            })
        });
    }

    /// Gives the attempt up before the queue pairs are used otherwise.
    pub(super) fn abandon<T: EventLog>(&mut self, fabric: &mut Fabric<RdmaHost, T>) {
        let Some(LastAttempt { service, .. }) = self.attempt.take() else { return };
        for end in 0..2 {
            fabric.with_host(self.id(end), |host, now| {
                host.with_management(|management, host| {
                    management.end_attempt(now, service, true, host)
                })
            });
        }
    }

    /// Notes whether both ends have been connected by messages by now, and counts it.
    pub(super) fn note_attempt<T: EventLog>(
        &mut self,
        fabric: &Fabric<RdmaHost, T>,
        is_over: bool,
        established: &mut u64,
    ) -> Result<(), String> {
        if self.verify_attempt(fabric, is_over)? {
            self.intact = true;
            if let Some(attempt) = self.attempt.as_mut().filter(|attempt| !attempt.is_counted) {
                attempt.is_counted = true;
                *established += 1;
            }
        }
        Ok(())
    }

    /// A process has ended, with all that it knows of the attempt.
    pub(super) fn lose_attempt(&mut self) {
        self.attempt.iter_mut().for_each(|attempt| attempt.is_ended = true);
    }

    /// Verifies that both sides agree: if the side that sent the request is connected, so is the other one. Returns whether
    /// both are. `is_over`: no message is on the way.
    fn verify_attempt<T: EventLog>(
        &self,
        fabric: &Fabric<RdmaHost, T>,
        is_over: bool,
    ) -> Result<bool, String> {
        let Some(LastAttempt { service, active, is_ended, .. }) = self.attempt else {
            return Ok(false);
        };
        let states = [active, 1 - active].map(|end| {
            let management = fabric.host(self.id(end))?.management.as_ref()?;
            management.attempt_state(service)
        });
        let [Some(ours), Some(theirs)] = states else { return Ok(false) };
        use ConnectionState::{Established, Pending};
        let is_wrong = is_over && !is_ended && ours == Established && theirs != Established;
        if is_wrong || is_over && ours == Pending {
            return Err(format!("the active side is {ours:?}, the passive side {theirs:?}"));
        }
        Ok(ours == Established && theirs == Established && !is_ended)
    }
}
