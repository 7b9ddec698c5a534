//! Permissions, incidents and the state machine.

use std::vec::Vec;

use super::super::*;
use super::{cases, change, words};
use ferroce_wire::opcode::Transport;

/// Independent of the code's table, from IBA 10.3.1.1 to 10.3.1.7.
const PERMITTED: [(Action, &str); 7] = [
    (Action::PostReceive, "refused queued yes yes yes yes flushed"),
    (Action::PostSend, "refused refused refused yes queued flushed flushed"),
    (Action::StartSend, "discarded refused refused yes queued flushed flushed"),
    (Action::FinishSend, "discarded refused refused yes yes flushed flushed"),
    (Action::ConsumeReceive, "discarded queued yes yes yes yes flushed"),
    (Action::AcceptRequest, "discarded discarded yes yes yes yes discarded"),
    (Action::Respond, "refused refused yes yes yes yes refused"),
];

#[test]
fn states_permit_what_the_specification_requires() {
    assert_eq!(PERMITTED.map(|(action, _)| action), Action::ALL);
    for (action, line) in PERMITTED {
        let permissions = State::ALL.map(|state| state.permits(action).name());
        assert_eq!(permissions.to_vec(), words(line), "{action}");
        for state in State::ALL {
            let permission = ServiceType::ReliableConnection.permits(state, action);
            assert_eq!(permission, state.permits(action));
            assert_eq!(permission.is_allowed(), permission.name() == "yes");
        }
    }
}

#[test]
fn services_have_their_transports() {
    let names = ServiceType::ALL.map(|service| (service.verbs_name(), service.transport()));
    let expected = [
        ("IBV_QPT_RC", Transport::ReliableConnection),
        ("IBV_QPT_UC", Transport::UnreliableConnection),
        ("IBV_QPT_UD", Transport::UnreliableDatagram),
        ("IBV_QPT_XRC_SEND", Transport::ExtendedReliableConnection),
        ("IBV_QPT_XRC_RECV", Transport::ExtendedReliableConnection),
    ];
    assert_eq!(names, expected);
}

#[test]
fn services_have_the_expected_queues() {
    use Action::{AcceptRequest, ConsumeReceive, FinishSend, PostReceive, PostSend, Respond};
    let lacks = |service: ServiceType| {
        let state = State::ReadyToSend;
        let none = |action: &Action| service.permits(state, *action) == Permission::Inapplicable;
        Action::ALL.into_iter().filter(none).collect::<Vec<_>>()
    };
    assert_eq!(lacks(ServiceType::ReliableConnection), []);
    assert_eq!(lacks(ServiceType::UnreliableConnection), [Respond]);
    assert_eq!(lacks(ServiceType::UnreliableDatagram), [Respond]);
    assert_eq!(
        lacks(ServiceType::XrcInitiator),
        [PostReceive, ConsumeReceive, AcceptRequest, Respond]
    );
    assert_eq!(
        lacks(ServiceType::XrcTarget),
        [PostReceive, PostSend, Action::StartSend, FinishSend, ConsumeReceive]
    );
    let capable = |has: fn(ServiceType) -> bool| {
        ServiceType::ALL
            .into_iter()
            .filter(|&it| has(it))
            .map(ServiceType::name)
            .collect::<Vec<_>>()
    };
    assert_eq!(capable(ServiceType::has_rdma_write), ["RC", "UC", "XRC INI", "XRC TGT"]);
    assert_eq!(capable(ServiceType::has_rdma_read), ["RC", "XRC INI", "XRC TGT"]);
    assert_eq!(capable(ServiceType::has_atomics), ["RC", "XRC INI", "XRC TGT"]);
    assert_eq!(capable(ServiceType::responds), ["RC", "XRC TGT"]);
}

/// Service, incident, and the next state for each of the seven; `.` where nothing changes.
const REACTIONS: &[(&str, Incident, &str)] = &[
    ("RC", Incident::SendFailed, ". . . ERR ERR . ."),
    ("UC", Incident::SendFailed, ". . . SQE SQE . ."),
    ("UD", Incident::SendFailed, ". . . SQE SQE . ."),
    ("XRC INI", Incident::SendFailed, ". . . ERR ERR . ."),
    ("XRC TGT", Incident::SendFailed, ". . . . . . ."),
    ("RC", Incident::ReceiveFailed, ". . ERR ERR ERR ERR ."),
    ("UC", Incident::ReceiveFailed, ". . ERR ERR ERR ERR ."),
    ("UD", Incident::ReceiveFailed, ". . ERR ERR ERR ERR ."),
    ("XRC INI", Incident::ReceiveFailed, ". . . . . . ."),
    ("XRC TGT", Incident::ReceiveFailed, ". . ERR ERR ERR ERR ."),
];

#[test]
fn incidents_lead_to_the_specified_states() {
    for service in ServiceType::ALL {
        for incident in Incident::ALL {
            let listed = REACTIONS.iter().find(|it| (it.0, it.1) == (service.name(), incident));
            let line = match incident {
                Incident::Fatal => ". ERR ERR ERR ERR ERR .",
                Incident::SendQueueDrained => ". . . . . . .",
                _ => listed.expect("listed").2,
            };
            for (state, expected) in State::ALL.into_iter().zip(words(line)) {
                let next = react(service, state, incident).name();
                let expected = if expected == "." { state.name() } else { expected };
                assert_eq!(next, expected, "{service} {state} {incident}");
            }
        }
    }
}

#[test]
fn a_service_reaches_exactly_its_states() {
    for service in ServiceType::ALL {
        let mut reached = [State::Reset].to_vec();
        let mut at = 0;
        while let Some(&from) = reached.get(at) {
            let modified = State::ALL.into_iter().filter(|&to| rule(service, from, to).is_some());
            let moved = Incident::ALL.into_iter().map(|incident| react(service, from, incident));
            for state in modified.chain(moved) {
                if !reached.contains(&state) {
                    reached.push(state);
                }
            }
            at += 1;
        }
        for state in State::ALL {
            assert_eq!(reached.contains(&state), service.has_state(state), "{service} {state}");
        }
    }
}

/// The transition with all required attributes.
fn to(machine: &Machine, state: State) -> QueuePairAttributes {
    let rule = rule(machine.service(), machine.state(), state).expect("a transition");
    change(machine.state(), state, rule.required)
}

/// A QP in RTS.
fn ready(service: ServiceType) -> Machine {
    let mut machine = Machine::new(service);
    assert_eq!((machine.state(), machine.service()), (State::Reset, service));
    for state in [State::Init, State::ReadyToReceive, State::ReadyToSend] {
        assert_eq!(machine.modify(&to(&machine, state)), Ok(state));
        assert_eq!(machine.state(), state);
    }
    machine
}

#[test]
fn draining_has_two_phases() {
    for service in ServiceType::ALL {
        for notice in [None, Some(false), Some(true)] {
            let mut machine = ready(service);
            let drain = QueuePairAttributes {
                state: Some(State::SendQueueDrain),
                drain_notice: notice,
                ..QueuePairAttributes::default()
            };
            assert_eq!(machine.modify(&drain), Ok(State::SendQueueDrain));
            assert!(machine.is_draining());
            if service.has_send_queue() {
                assert_eq!(machine.permits(Action::PostSend), Permission::Queued);
                assert_eq!(machine.permits(Action::FinishSend), Permission::Allowed);
            }
            let before = machine;
            for state in [State::ReadyToSend, State::SendQueueDrain] {
                let change = to(&machine, state);
                assert_eq!(machine.modify(&change), Err(ModifyError::StillDraining));
                assert_eq!(machine, before);
            }
            for state in [State::Reset, State::Error] {
                let mut ended = machine;
                assert_eq!(ended.modify(&to(&machine, state)), Ok(state));
                assert!(!ended.is_draining());
                assert_eq!(ended.handle_incident(Incident::SendQueueDrained), None);
            }
            let event = machine.handle_incident(Incident::SendQueueDrained);
            assert_eq!(event, (notice == Some(true)).then_some(Event::SendQueueDrained));
            assert_eq!((machine.state(), machine.is_draining()), (State::SendQueueDrain, false));
            assert_eq!(machine.handle_incident(Incident::SendQueueDrained), None, "told once");
            assert_eq!(
                machine.modify(&to(&machine, State::SendQueueDrain)),
                Ok(State::SendQueueDrain)
            );
            assert!(!machine.is_draining(), "a change in SQD does not drain again");
            assert_eq!(machine.modify(&to(&machine, State::ReadyToSend)), Ok(State::ReadyToSend));
            assert_eq!(machine.handle_incident(Incident::SendQueueDrained), None);
        }
    }
}

#[test]
fn a_datagram_qp_resumes_after_sqe() {
    let mut machine = ready(ServiceType::UnreliableDatagram);
    assert_eq!(machine.handle_incident(Incident::SendFailed), None);
    assert_eq!(machine.state(), State::SendQueueError);
    assert_eq!(machine.permits(Action::PostSend), Permission::Flushed);
    assert_eq!(machine.permits(Action::AcceptRequest), Permission::Allowed);
    let believed = QueuePairAttributes {
        state: Some(State::ReadyToSend),
        current_state: Some(State::ReadyToSend),
        ..QueuePairAttributes::default()
    };
    let actual = State::SendQueueError;
    let error = ModifyError::WrongCurrentState { assumed: State::ReadyToSend, actual };
    assert_eq!(machine.modify(&believed), Err(error));
    let known = QueuePairAttributes { current_state: Some(actual), ..believed };
    assert_eq!(machine.modify(&known), Ok(State::ReadyToSend));
    assert_eq!(machine.permits(Action::PostSend), Permission::Allowed);
}

#[test]
fn a_failed_request_ends_draining() {
    for (service, state) in [
        (ServiceType::ReliableConnection, State::Error),
        (ServiceType::UnreliableConnection, State::SendQueueError),
    ] {
        let mut machine = ready(service);
        let drain = change(State::ReadyToSend, State::SendQueueDrain, AttributeMask::DRAIN_NOTICE);
        assert_eq!(machine.modify(&drain), Ok(State::SendQueueDrain));
        assert_eq!(machine.handle_incident(Incident::SendFailed), None);
        assert_eq!((machine.state(), machine.is_draining()), (state, false));
        assert_eq!(machine.handle_incident(Incident::SendQueueDrained), None);
    }
}

#[test]
fn late_incidents_do_not_affect_a_reset_qp() {
    for (service, from, _) in cases() {
        let mut machine = ready(service);
        machine.handle_incident(Incident::Fatal);
        assert_eq!(machine.state(), State::Error);
        let error = modify(
            service,
            from,
            &QueuePairAttributes { state: Some(State::Error), ..QueuePairAttributes::default() },
        );
        assert_eq!(error, Ok(State::Error), "from {from}");
        assert_eq!(machine.modify(&to(&machine, State::Reset)), Ok(State::Reset));
        for incident in Incident::ALL {
            assert_eq!(machine.handle_incident(incident), None);
        }
        assert_eq!(machine, Machine::new(service));
    }
}

#[test]
fn a_machine_is_small() {
    assert!(size_of::<Machine>() <= 4);
}
