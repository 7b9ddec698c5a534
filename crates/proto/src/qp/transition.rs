//! Transitions and the attributes that they accept: the tables of Modify QP (IBA 11.2.5.2; A14 for XRC).

use Attribute::{
    Access, AlternatePath, CurrentState, Destination, DrainNotice, MaxDestRdAtomic, MaxRdAtomic,
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

/// The attributes of a transition besides the state itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Required attributes.
    pub required: AttributeMask,
    /// Optional attributes; all others are refused.
    pub optional: AttributeMask,
}

/// A table row: source states, target state, services and attributes.
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

/// What connected services may change when they are, or become, ready to send.
const LIVE: &[Attribute] = &[CurrentState, Access, AlternatePath, Migration];
/// The same for services that send RNR NAKs.
const LIVE_RESPONDER: &[Attribute] = &[CurrentState, Access, AlternatePath, Migration, MinRnrTimer];

/// The table. A transition from a state to itself changes attributes only; RTR and SQE have none.
#[rustfmt::skip]
static TABLE: &[Row] = &[
    // Allowed from every state (IBA 10.3.1). Linux refuses RESET to ERR.
    row(&State::ALL, Reset, &ServiceType::ALL, &[], &[]),
    row(&State::ALL, Error, &ServiceType::ALL, &[], &[]),

    row(&[Reset], Init, &[Rc, Uc, Ini, Tgt], &[Partition, Port, Access], &[]),
    row(&[Reset], Init, &[Ud], &[Partition, Port, QueueKey], &[]),
    row(&[Init], Init, &[Rc, Uc, Ini, Tgt], &[], &[Partition, Port, Access]),
    row(&[Init], Init, &[Ud], &[], &[Partition, Port, QueueKey]),

    // Needed by a responder: the peer, its first PSN and its maximum of outstanding READs and atomics.
    row(&[Init], Rtr, &[Rc, Tgt],
        &[Path, PathMtu, Destination, ReceivePsn, MaxDestRdAtomic, MinRnrTimer],
        &[AlternatePath, Access, Partition]),
    // An XRC initiator has no responder, but takes a receive PSN, as Linux and devices require.
    row(&[Init], Rtr, &[Uc, Ini],
        &[Path, PathMtu, Destination, ReceivePsn],
        &[AlternatePath, Access, Partition]),
    row(&[Init], Rtr, &[Ud], &[], &[Partition, QueueKey]),

    // Needed by a requester: its first PSN, timeouts and retry counts.
    row(&[Rtr], Rts, &[Rc], &[Timeout, RetryCount, RnrRetry, SendPsn, MaxRdAtomic], LIVE_RESPONDER),
    row(&[Rtr], Rts, &[Ini], &[Timeout, RetryCount, RnrRetry, SendPsn, MaxRdAtomic], LIVE),
    row(&[Rtr], Rts, &[Tgt], &[Timeout, SendPsn], LIVE_RESPONDER),
    row(&[Rtr], Rts, &[Uc], &[SendPsn], LIVE),
    row(&[Rtr], Rts, &[Ud], &[SendPsn], &[CurrentState, QueueKey]),

    row(&[Rts, Sqd], Rts, &[Rc, Tgt], &[], LIVE_RESPONDER),
    row(&[Rts, Sqd], Rts, &[Uc, Ini], &[], LIVE),
    row(&[Rts, Sqd], Rts, &[Ud], &[], &[CurrentState, QueueKey]),

    // Drained: nothing is in flight, so the path can change (IBA 10.3.1.5).
    row(&[Rts], Sqd, &ServiceType::ALL, &[], &[DrainNotice]),
    row(&[Sqd], Sqd, &[Rc], &[],
        &[Port, Path, Timeout, RetryCount, RnrRetry, MaxRdAtomic, MaxDestRdAtomic, AlternatePath, Access,
          Partition, MinRnrTimer, Migration]),
    row(&[Sqd], Sqd, &[Ini], &[],
        &[Port, Path, Timeout, RetryCount, RnrRetry, MaxRdAtomic, AlternatePath, Access, Partition,
          Migration]),
    row(&[Sqd], Sqd, &[Tgt], &[],
        &[Port, Path, Timeout, MaxDestRdAtomic, AlternatePath, Access, Partition, MinRnrTimer,
          Migration]),
    row(&[Sqd], Sqd, &[Uc], &[], &[Path, AlternatePath, Access, Partition, Migration]),
    row(&[Sqd], Sqd, &[Ud], &[], &[Partition, QueueKey]),

    // Only UC and UD can be in SQE (IBA 10.3.1.6).
    row(&[Sqe], Rts, &[Uc], &[], &[CurrentState, Access]),
    row(&[Sqe], Rts, &[Ud], &[], &[CurrentState, QueueKey]),
];

/// The attributes of the transition; `None` when it does not exist.
pub fn rule(service: ServiceType, from: State, to: State) -> Option<Rule> {
    TABLE
        .iter()
        .find(|row| row.to == to && row.from.contains(&from) && row.services.contains(&service))
        .map(|row| row.rule)
}

/// Checks whether a QP in state `current` accepts the change, and returns the resulting state.
///
/// # Errors
///
/// The first error that applies, in the order of [`ModifyError`]'s variants, with all attributes that it concerns.
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
