//! Which change may follow which, and what each takes: the tables of Modify Queue Pair (IBA 11.2.5.2; A14 for XRC).

use Attribute::{
    Access, AlternatePath, CurrentState, Destination, DrainNotice, MaxPeerReads, MaxReads,
    Migration, MinRnrTimer, Partition, Path, PathMtu, Port, QueueKey, ReceivePsn, RetryCount,
    RnrRetry, SendPsn, Timeout,
};
use ServiceType::{
    ReliableConnection as Rc, UnreliableConnection as Uc, UnreliableDatagram as Ud,
    XrcInitiator as Ini, XrcTarget as Tgt,
};
use State::{
    Error, Init, ReadyToReceive as Rtr, ReadyToSend as Rts, Reset, SendQueueDrain as Sqd,
    SendQueueError as Sqe,
};

use super::attribute::{Attribute, AttributeMask, QueuePairAttributes};
use super::error::ModifyError;
use super::service::ServiceType;
use super::state::State;

/// What a transition takes besides the state itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    /// All of these must be given.
    pub required: AttributeMask,
    /// Any of these may be given; nothing else.
    pub optional: AttributeMask,
}

/// A row of the table: the states it leads from, the one it leads to, and for whom.
struct Row {
    from: &'static [State],
    to: State,
    services: &'static [ServiceType],
    rule: Rule,
}

const fn row(
    from: &'static [State],
    to: State,
    services: &'static [ServiceType],
    required: &[Attribute],
    optional: &[Attribute],
) -> Row {
    let rule =
        Rule { required: AttributeMask::of(required), optional: AttributeMask::of(optional) };
    Row { from, to, services, rule }
}

/// What connected services may change whenever they are, or become, ready to send.
const LIVE: &[Attribute] = &[CurrentState, Access, AlternatePath, Migration];
/// The same where the service answers "receiver not ready".
const LIVE_RESPONDER: &[Attribute] = &[CurrentState, Access, AlternatePath, Migration, MinRnrTimer];

/// The table. A state stands on both sides where attributes can change without leaving it; for RTR and SQE none can.
#[rustfmt::skip]
static TABLE: &[Row] = &[
    // The way out of everything (IBA 10.3.1, figure of the states, its notes). Linux refuses RESET to ERR.
    row(&State::ALL, Reset, &ServiceType::ALL, &[], &[]),
    row(&State::ALL, Error, &ServiceType::ALL, &[], &[]),

    row(&[Reset], Init, &[Rc, Uc, Ini, Tgt], &[Partition, Port, Access], &[]),
    row(&[Reset], Init, &[Ud], &[Partition, Port, QueueKey], &[]),
    row(&[Init], Init, &[Rc, Uc, Ini, Tgt], &[], &[Partition, Port, Access]),
    row(&[Init], Init, &[Ud], &[], &[Partition, Port, QueueKey]),

    // What a responder must know: who sends, from where its PSNs count, what it may have under way.
    row(&[Init], Rtr, &[Rc, Tgt],
        &[Path, PathMtu, Destination, ReceivePsn, MaxPeerReads, MinRnrTimer],
        &[AlternatePath, Access, Partition]),
    // An XRC initiator responds to nothing, but takes a receive PSN as Linux and devices want it.
    row(&[Init], Rtr, &[Uc, Ini],
        &[Path, PathMtu, Destination, ReceivePsn],
        &[AlternatePath, Access, Partition]),
    row(&[Init], Rtr, &[Ud], &[], &[Partition, QueueKey]),

    // What a requester must know: from where its own PSNs count, how patient to be.
    row(&[Rtr], Rts, &[Rc], &[Timeout, RetryCount, RnrRetry, SendPsn, MaxReads], LIVE_RESPONDER),
    row(&[Rtr], Rts, &[Ini], &[Timeout, RetryCount, RnrRetry, SendPsn, MaxReads], LIVE),
    row(&[Rtr], Rts, &[Tgt], &[Timeout, SendPsn], LIVE_RESPONDER),
    row(&[Rtr], Rts, &[Uc], &[SendPsn], LIVE),
    row(&[Rtr], Rts, &[Ud], &[SendPsn], &[CurrentState, QueueKey]),

    row(&[Rts, Sqd], Rts, &[Rc, Tgt], &[], LIVE_RESPONDER),
    row(&[Rts, Sqd], Rts, &[Uc, Ini], &[], LIVE),
    row(&[Rts, Sqd], Rts, &[Ud], &[], &[CurrentState, QueueKey]),

    // Draining: nothing is under way, so the path itself can change (IBA 10.3.1.5).
    row(&[Rts], Sqd, &ServiceType::ALL, &[], &[DrainNotice]),
    row(&[Sqd], Sqd, &[Rc], &[],
        &[Port, Path, Timeout, RetryCount, RnrRetry, MaxReads, MaxPeerReads, AlternatePath, Access,
          Partition, MinRnrTimer, Migration]),
    row(&[Sqd], Sqd, &[Ini], &[],
        &[Port, Path, Timeout, RetryCount, RnrRetry, MaxReads, AlternatePath, Access, Partition,
          Migration]),
    row(&[Sqd], Sqd, &[Tgt], &[],
        &[Port, Path, Timeout, MaxPeerReads, AlternatePath, Access, Partition, MinRnrTimer,
          Migration]),
    row(&[Sqd], Sqd, &[Uc], &[], &[Path, AlternatePath, Access, Partition, Migration]),
    row(&[Sqd], Sqd, &[Ud], &[], &[Partition, QueueKey]),

    // Only the unacknowledged services are ever in SQE (IBA 10.3.1.6).
    row(&[Sqe], Rts, &[Uc], &[], &[CurrentState, Access]),
    row(&[Sqe], Rts, &[Ud], &[], &[CurrentState, QueueKey]),
];

/// What the transition takes, `None` when there is no such transition.
pub fn rule(service: ServiceType, from: State, to: State) -> Option<Rule> {
    TABLE
        .iter()
        .find(|row| row.to == to && row.from.contains(&from) && row.services.contains(&service))
        .map(|row| row.rule)
}

/// Whether a queue pair in state `current` accepts the change, and the state it is in then.
///
/// # Errors
///
/// The first kind of reason that applies, in the order of [`ModifyError`]'s variants; it names all attributes that are
/// at fault for that reason.
#[doc(alias = "ibv_modify_qp")]
pub fn modify(
    service: ServiceType,
    current: State,
    change: &QueuePairAttributes,
) -> Result<State, ModifyError> {
    if let Some(assumed) = change.current_state.filter(|&assumed| assumed != current) {
        return Err(ModifyError::WrongCurrentState { assumed, actual: current });
    }
    let (from, to) = (current, change.state.unwrap_or(current));
    let rule =
        rule(service, from, to).ok_or(ModifyError::NoSuchTransition { service, from, to })?;
    let given = change.attributes() - AttributeMask::STATE;
    let attributes = rule.required - given;
    if !attributes.is_empty() {
        return Err(ModifyError::Missing { service, from, to, attributes });
    }
    let attributes = given - rule.required - rule.optional;
    if !attributes.is_empty() {
        return Err(ModifyError::NotAllowed { service, from, to, attributes });
    }
    let attributes = change.out_of_range();
    if !attributes.is_empty() {
        return Err(ModifyError::OutOfRange { attributes });
    }
    Ok(to)
}
