//! What a QP has to report, on its way to the program: completions, async events, counts and reasons.

use alloc::vec::Vec;

use ferroce_proto::qp;
use ferroce_proto::reason::Reason;
use ferroce_proto::time::Instant;

use crate::host::{Host, Loss, Published};
use crate::queue_pair::{Object, ReceiveSource};

/// Moves the completions of a QP to its CQs, raises its events and adds up its counters.
pub fn publish<H: Host>(
    host: &H,
    handle: &H::Handle,
    state: &mut H::State,
    now: Instant,
) -> Published {
    let mut published = Published::default();
    if state.destroyed {
        return published;
    }
    if state.endpoint.has_counters() {
        publish_troubles(host, handle, state, now, &mut published);
    } else if let Some(overrun) = move_completions(host, handle, state, now, &mut published) {
        let reason = end_by_overrun(host, handle, state, overrun, now, &mut published);
        host.report(handle, state, &[reason]);
    }
    host.published(handle, state, now);
    let receives = handle.receives();
    if receives.number().is_some() && receives.queue().lock().poll_limit() {
        host.limit_reached(receives);
    }
    published
}

/// Publishes counts and reasons with the completions, whose flushes name the last reason. Apart from what every message
/// passes through.
#[cold]
fn publish_troubles<H: Host>(
    host: &H,
    handle: &H::Handle,
    state: &mut H::State,
    now: Instant,
    published: &mut Published,
) {
    let endpoint = &mut state.endpoint;
    let counted = endpoint.take_counters();
    published.lost = Loss {
        requests: counted.packet_seq_err + counted.local_ack_timeout_err > 0,
        responses: counted.implied_nak_seq_err > 0,
    };
    let mut reasons = Vec::new();
    endpoint.move_reasons_to(&mut reasons);
    for reason in &mut reasons {
        if let Reason::NoReceive { queue, .. } = reason {
            *queue = handle.receives().number();
        }
    }
    let has_failed = endpoint.has_failed();
    host.count(state, &counted);
    if let Some(reason) = reasons.last().filter(|_| has_failed) {
        host.set_ended_by(state, reason);
    }
    if let Some(overrun) = move_last_completions(host, handle, state, now, published) {
        reasons.push(end_by_overrun(host, handle, state, overrun, now, published));
    }
    if !reasons.is_empty() {
        host.report(handle, state, &reasons);
    }
}

/// IBA 11.6.3.3: a lost completion cannot be reported, so the QP goes to the error state.
#[cold]
fn end_by_overrun<H: Host>(
    host: &H,
    handle: &H::Handle,
    state: &mut H::State,
    overrun: H::Overrun,
    now: Instant,
    published: &mut Published,
) -> Reason {
    state.endpoint.handle_fatal();
    let reason = host.overrun(state, overrun);
    // What is flushed now may belong to the other CQ.
    move_last_completions(host, handle, state, now, published);
    reason
}

/// [`move_completions`] of a QP that is in trouble: one copy for all such callers.
#[cold]
fn move_last_completions<H: Host>(
    host: &H,
    handle: &H::Handle,
    state: &mut H::State,
    now: Instant,
    published: &mut Published,
) -> Option<H::Overrun> {
    move_completions(host, handle, state, now, published)
}

/// Moves the endpoint's completions to the CQs and raises its events. Returns the first overrun of a CQ. Inlined into the one
/// caller of every message.
#[inline(always)]
fn move_completions<H: Host>(
    host: &H,
    handle: &H::Handle,
    state: &mut H::State,
    now: Instant,
    published: &mut Published,
) -> Option<H::Overrun> {
    let mut lost = None;
    while let Some(one) = state.endpoint.poll_send_completion() {
        published.some = true;
        lost = lost.or(host.complete_send(handle, state, one, now).err());
    }
    while let Some(one) = state.endpoint.poll_receive_completion() {
        published.some = true;
        let shared = one.receive_queue.and_then(|number| host.tables().receive_queue(number));
        lost = lost.or(host.complete_receive(handle, state, shared.as_ref(), one, now).err());
    }
    while let Some(event) = state.endpoint.poll_event() {
        host.raise(handle, event);
    }
    if state.endpoint.state() == qp::State::Error {
        lost = lost.or(flush_receives(host, handle, state, now));
    }
    lost
}

/// IBA 10.3.1.7: requests in its own RQ are flushed.
#[cold]
fn flush_receives<H: Host>(
    host: &H,
    handle: &H::Handle,
    state: &mut H::State,
    now: Instant,
) -> Option<H::Overrun> {
    let mut lost = None;
    loop {
        let mut queue = handle.receives().queue().lock();
        let flushed = state.endpoint.flush_receive(&mut queue);
        drop(queue);
        let Some(one) = flushed else { return lost };
        lost = lost.or(host.complete_receive(handle, state, None, one, now).err());
    }
}
