//! What a QP publishes: its state, its traffic by operation, its errors and the latency of its requests.
//!
//! Packets are counted in private memory, and published when the QP's turn ends: a reader then sees a turn as a whole, and
//! a packet costs a few additions. Nothing is published later by a timer, so that what others read is always current,
//! also of a process that is stopped or killed.

use std::sync::atomic::Ordering::Relaxed;

use ferroce_links::embedder::Traffic;
use ferroce_links::route::Route;
use ferroce_proto::counters::Counters;
use ferroce_proto::endpoint::{Endpoint, Settings};
use ferroce_proto::qp::{ServiceType, State};
use ferroce_proto::time::Instant;
use ferroce_proto::work::{Completion, CompletionKind, Status};
use ferroce_stat::layout::{CLASSES, Kind, NAKS, QueuePair as Field, TRAFFIC_WORDS};
use ferroce_stat::{Slot, histogram};
use ferroce_wire::address::Gid;
use ferroce_wire::number::Qpn;
use ferroce_wire::opcode::{Opcode, Operation};
use ferroce_wire::packet::Packet;
use ferroce_wire::syndrome::{NakCode, Syndrome, SyndromeKind};
use ferroce_wire::transport::{Aeth, Bth};

use super::counters;
use crate::time::now;

/// The first index of received traffic: that of sent comes before.
const RX: usize = CLASSES.len();

#[derive(Debug)]
pub(crate) struct QpStats {
    slot: Slot,
    /// Packets, bytes and messages by class: sent, then received.
    traffic: [Traffic; 2 * CLASSES.len()],
    /// The classes that have changed since they were published.
    changed: u16,
    send_posted: u64,
    send_completed: u64,
    recv_posted: u64,
    recv_completed: u64,
    errors: u64,
    last_error: Option<Status>,
    /// The request whose latency is being measured.
    sample: Option<Sample>,
    /// Whether completions mean that the peer has responded.
    reliable: bool,
}

/// A send request whose latency is measured. There is one at a time, so that requests need no timestamp.
#[derive(Clone, Copy, Debug)]
struct Sample {
    /// Its number among the requests posted.
    request: u64,
    /// When its QP first had a turn after the post: usually in the same call.
    began: Option<Instant>,
}

impl QpStats {
    /// Publishes a new QP, with the IDs of its CQs for sends and receives.
    pub(crate) fn new(
        device: &counters::Counters,
        settings: &Settings,
        queues: [u64; 2],
        srq: Option<Qpn>,
        shard: u8,
    ) -> Self {
        let slot = device.publish(Kind::QueuePair, |slot| {
            let set = |field: Field, value| slot.set(field as usize, value);
            set(Field::Number, settings.number.0.into());
            set(Field::Service, settings.service as u64);
            set(Field::MaxSendWr, settings.capabilities.max_send_wr.into());
            set(Field::MaxRecvWr, settings.capabilities.max_recv_wr.into());
            set(Field::SharedReceiveQueue, srq.map_or(0, |number| number.0.into()));
            set(Field::SendCq, queues[0]);
            set(Field::RecvCq, queues[1]);
            set(Field::Shard, shard.into());
            set(Field::Created, now().as_nanos());
        });
        let unreliable = [ServiceType::UnreliableConnection, ServiceType::UnreliableDatagram];
        Self {
            slot,
            traffic: Default::default(),
            changed: 0,
            send_posted: 0,
            send_completed: 0,
            recv_posted: 0,
            recv_completed: 0,
            errors: 0,
            last_error: None,
            sample: None,
            reliable: !unreliable.contains(&settings.service),
        }
    }

    /// The QP was destroyed.
    pub(crate) fn end(&mut self) {
        self.slot = Slot::unpublished(Kind::QueuePair);
    }

    /// The QP was connected, or reset.
    pub(crate) fn set_peer(&self, peer: Option<(Route, Qpn)>, shares_memory: bool, mtu: usize) {
        let gid = peer.map_or([0; 16], |(route, _)| Gid::from_ip(route.destination.ip()).0);
        let link = peer.map_or(0, |_| 1 + u64::from(shares_memory));
        self.slot.update(|slot| {
            slot.set_gid(Field::RemoteGid as usize, gid);
            slot.set(Field::RemoteNumber as usize, peer.map_or(0, |(_, number)| number.0.into()));
            slot.set(Field::Link as usize, link);
            slot.set(Field::PathMtu as usize, mtu as u64);
        });
    }

    /// Send requests were posted.
    #[inline]
    pub(crate) fn posted(&mut self, count: usize) {
        self.send_posted += count as u64;
        if self.sample.is_none() && count > 0 && self.reliable {
            self.sample = Some(Sample { request: self.send_posted, began: None });
        }
    }

    /// A receive request was posted to the QP's own RQ.
    #[inline]
    pub(crate) fn posted_receive(&mut self) {
        self.recv_posted += 1;
        self.slot.update(|slot| slot.set(Field::RecvPosted as usize, self.recv_posted));
    }

    /// RESET has discarded the receive requests.
    pub(crate) fn reset(&mut self) {
        self.recv_completed = self.recv_posted;
        self.sample = None;
    }

    /// The QP has its turn to send.
    #[inline]
    pub(super) fn begin_turn(&mut self, now: Instant) {
        if let Some(Sample { began: began @ None, .. }) = &mut self.sample {
            *began = Some(now);
        }
    }

    /// Packets were sent, with this many bytes of payload.
    #[inline]
    pub(super) fn sent(&mut self, bth: &Bth, aeth: Option<Aeth>, payload: usize, packets: u32) {
        self.count_packets(0, bth.opcode, payload, packets);
        self.count_nak(Field::NaksSent, aeth);
    }

    /// A packet, or a run of packets, was received.
    #[inline]
    pub(super) fn received(&mut self, packet: &Packet<'_>, packets: u32) {
        self.count_packets(RX, packet.bth.opcode, packet.payload_len, packets);
        self.count_nak(Field::NaksReceived, packet.extensions.aeth);
    }

    /// A message of one packet without immediate data, or a positive ACK, was received.
    #[inline]
    pub(super) fn received_whole(&mut self, operation: Operation, payload: usize) {
        self.add_traffic(RX + class(operation), 1, payload as u64, 1);
    }

    /// Messages were sent by SEND, and by RDMA WRITE.
    pub(super) fn sent_messages(&mut self, messages: &[Traffic; 2]) {
        for (operation, more) in [Operation::Send, Operation::Write].into_iter().zip(messages) {
            if more.packets > 0 {
                self.add_traffic(class(operation), more.packets, more.bytes, more.messages);
            }
        }
    }

    #[inline]
    fn count_packets(&mut self, direction: usize, opcode: Opcode, payload: usize, count: u32) {
        let Some(info) = opcode.info() else { return };
        let (class, ends) = (direction + class(info.operation), info.position.ends());
        self.add_traffic(class, count.into(), payload as u64, ends.into());
    }

    #[inline]
    fn add_traffic(&mut self, class: usize, count: u64, payload: u64, ended: u64) {
        self.traffic[class].add(count, payload, ended);
        self.changed |= 1 << class;
    }

    #[inline]
    fn count_nak(&self, field: Field, aeth: Option<Aeth>) {
        let nak = aeth.filter(|aeth| !aeth.syndrome.is_ack()).and_then(|aeth| nak(aeth.syndrome));
        if let Some(index) = nak {
            self.add(field as usize + index, 1);
        }
    }

    /// Adds to a field that no other thread changes meanwhile: the QP is locked.
    #[inline]
    fn add(&self, field: usize, more: u64) {
        let word = self.slot.word(field);
        word.store(word.load(Relaxed).wrapping_add(more), Relaxed);
    }

    /// Events of the transport were counted.
    pub(super) fn count(&self, counted: &Counters) {
        for (index, more) in counted.values().into_iter().enumerate() {
            if more > 0 {
                self.add(Field::Counters as usize + index, more);
            }
        }
    }

    /// A request completed. One that was flushed gets the reason of the error that ended the QP.
    #[inline]
    pub(super) fn completed(&mut self, completion: &mut Completion, ended_by: &mut u16) {
        let receive = matches!(
            completion.kind,
            CompletionKind::Receive | CompletionKind::ReceiveWriteImmediate
        );
        *(if receive { &mut self.recv_completed } else { &mut self.send_completed }) += 1;
        if completion.status != Status::Success {
            self.failed(completion, ended_by);
        }
    }

    /// A request failed. A flushed one may be found before the error, which may be in another CQ or at the peer.
    #[cold]
    #[inline(never)] // Inlined, it would split each completion into its fields.
    fn failed(&mut self, completion: &mut Completion, ended_by: &mut u16) {
        self.errors += 1;
        let is_flushed = completion.status == Status::Flushed;
        if is_flushed {
            completion.vendor_error = *ended_by;
        } else {
            *ended_by = completion.vendor_error;
        }
        // The error that made the others be flushed says more.
        if !is_flushed || self.last_error.is_none() {
            self.last_error = Some(completion.status);
        }
    }

    /// Publishes why something was refused or dropped, or why the QP is in error.
    #[cold]
    pub(super) fn set_reason(&self, number: u16, text: &str) {
        self.slot.update(|slot| slot.set_reason(Field::LastReason as usize, number, text));
    }

    /// Publishes what has happened since the last time.
    pub(super) fn publish(&mut self, endpoint: &Endpoint<Route>, now: Instant) {
        let (progress, state) = (endpoint.progress(), endpoint.state());
        let completed = self.send_posted.saturating_sub(progress.send_queue as u64);
        let done = self.sample.take_if(|sample| sample.request <= completed);
        let latency = done
            .and_then(|sample| sample.began)
            .filter(|_| matches!(state, State::ReadyToSend | State::SendQueueDrain))
            .map(|began| now.nanos_since(began));
        self.slot.update(|slot| {
            let Some(words) = slot.first_words::<{ Field::Histogram as usize }>() else { return };
            let set = |field: Field, value| words[field as usize].store(value, Relaxed);
            let mut changed = self.changed;
            if changed != 0 {
                set(Field::Active, now.as_nanos());
            }
            while changed != 0 {
                let class = changed.trailing_zeros() as usize;
                changed &= changed - 1;
                let start = Field::Traffic as usize + class * TRAFFIC_WORDS;
                if let Some(published) = words.get(start..start + TRAFFIC_WORDS) {
                    let Traffic { packets, bytes, messages } = self.traffic[class];
                    let values: [_; TRAFFIC_WORDS] = [packets, bytes, messages];
                    let values = published.iter().zip(values);
                    values.for_each(|(word, value)| word.store(value, Relaxed));
                }
            }
            set(Field::State, state as u64);
            set(Field::SqPsn, progress.send_psn.0.into());
            set(Field::RqPsn, progress.receive_psn.0.into());
            set(Field::SendOutstanding, progress.send_queue as u64);
            set(Field::InFlightPackets, progress.packets_in_flight.into());
            set(Field::InFlightBytes, progress.bytes_in_flight as u64);
            set(Field::SendPosted, self.send_posted);
            set(Field::SendCompleted, self.send_completed);
            set(Field::RecvCompleted, self.recv_completed);
            if self.errors > 0 {
                set(Field::CompletionErrors, self.errors);
                set(Field::LastError, self.last_error.map_or(0, |status| 1 + status as u64));
            }
            if let Some(latency) = latency {
                self.add(Field::LatencySum as usize, latency);
                self.add(Field::Histogram as usize + histogram::bucket(latency), 1);
            }
        });
        self.changed = 0;
    }
}

/// The class of a packet: the index in [`CLASSES`].
#[inline]
fn class(operation: Operation) -> usize {
    match operation {
        Operation::Send => 0,
        Operation::Write => 1,
        Operation::ReadRequest | Operation::ReadResponse => 2,
        Operation::CompareSwap
        | Operation::FetchAdd
        | Operation::AtomicWrite
        | Operation::AtomicAcknowledge => 3,
        Operation::Acknowledge => 4,
        Operation::Resync | Operation::Flush | Operation::CongestionNotification => 5,
    }
}

/// The reason of a NAK: the index in [`NAKS`].
fn nak(syndrome: Syndrome) -> Option<usize> {
    let index = match syndrome.kind() {
        SyndromeKind::RnrNak(_) => 0,
        SyndromeKind::Nak(NakCode::PsnSequenceError) => 1,
        SyndromeKind::Nak(NakCode::InvalidRequest | NakCode::InvalidRdRequest) => 2,
        SyndromeKind::Nak(NakCode::RemoteAccessError) => 3,
        SyndromeKind::Nak(NakCode::RemoteOperationalError) => 4,
        SyndromeKind::Ack(_) | SyndromeKind::Reserved => return None,
    };
    debug_assert!(index < NAKS.len());
    Some(index)
}

#[cfg(test)]
mod tests {
    use ferroce_stat::layout::{SERVICES, STATES, STATUSES};

    use super::*;

    #[test]
    fn the_names_are_in_the_order_of_the_enumerations() {
        assert_eq!(SERVICES.len(), ServiceType::ALL.len());
        assert_eq!(SERVICES[ServiceType::XrcTarget as usize], "XRC_TGT");
        assert_eq!(SERVICES[ServiceType::UnreliableDatagram as usize], "UD");
        assert_eq!(STATES.len(), State::ALL.len());
        assert_eq!(STATES[State::ReadyToSend as usize], "RTS");
        assert_eq!(STATES[State::Error as usize], "ERR");
        assert_eq!(STATUSES[Status::Flushed as usize], "WR_FLUSH_ERR");
        assert_eq!(STATUSES[Status::RetryExceeded as usize], "RETRY_EXC_ERR");
        assert_eq!(STATUSES[Status::RnrRetryExceeded as usize], "RNR_RETRY_EXC_ERR");
        assert_eq!(STATUSES.len(), Status::RnrRetryExceeded as usize + 1);
        assert_eq!(CLASSES[class(Operation::ReadResponse)], "read");
        assert_eq!(CLASSES[class(Operation::Acknowledge)], "ack");
        let access = SyndromeKind::Nak(NakCode::RemoteAccessError);
        assert_eq!(nak(access.into()).map(|index| NAKS[index]), Some("remote_access"));
        assert_eq!(nak(Syndrome::ACK), None);
    }
}
