//! The tables, compared with an independent table in libibverbs terms, and every violation of each rule.

mod behaviour;

use std::string::{String, ToString};
use std::vec::Vec;
use std::{env, format, fs};

use ferroce_wire::address::Gid;
use ferroce_wire::number::{Psn, QKey, Qpn};

use super::*;

/// Services, transition, required and optional attributes, named as in `ibv_modify_qp(3)` without the prefix. That
/// page has the required ones of RC, UC and UD. Transitions to RESET and ERR are not listed.
#[rustfmt::skip]
const EXPECTED: &[(&str, &str, &str, &str)] = &[
    ("RC, UC, XRC INI, XRC TGT", "RESET INIT", "PKEY_INDEX PORT ACCESS_FLAGS", ""),
    ("UD", "RESET INIT", "PKEY_INDEX PORT QKEY", ""),
    ("RC, UC, XRC INI, XRC TGT", "INIT INIT", "", "PKEY_INDEX PORT ACCESS_FLAGS"),
    ("UD", "INIT INIT", "", "PKEY_INDEX PORT QKEY"),
    ("RC, XRC TGT", "INIT RTR", "AV PATH_MTU DEST_QPN RQ_PSN MAX_DEST_RD_ATOMIC MIN_RNR_TIMER",
        "ALT_PATH ACCESS_FLAGS PKEY_INDEX"),
    ("UC, XRC INI", "INIT RTR", "AV PATH_MTU DEST_QPN RQ_PSN", "ALT_PATH ACCESS_FLAGS PKEY_INDEX"),
    ("UD", "INIT RTR", "", "PKEY_INDEX QKEY"),
    ("RC", "RTR RTS", "SQ_PSN MAX_QP_RD_ATOMIC RETRY_CNT RNR_RETRY TIMEOUT",
        "CUR_STATE ALT_PATH ACCESS_FLAGS MIN_RNR_TIMER PATH_MIG_STATE"),
    ("XRC INI", "RTR RTS", "SQ_PSN MAX_QP_RD_ATOMIC RETRY_CNT RNR_RETRY TIMEOUT",
        "CUR_STATE ALT_PATH ACCESS_FLAGS PATH_MIG_STATE"),
    ("XRC TGT", "RTR RTS", "SQ_PSN TIMEOUT",
        "CUR_STATE ALT_PATH ACCESS_FLAGS MIN_RNR_TIMER PATH_MIG_STATE"),
    ("UC", "RTR RTS", "SQ_PSN", "CUR_STATE ALT_PATH ACCESS_FLAGS PATH_MIG_STATE"),
    ("UD", "RTR RTS", "SQ_PSN", "CUR_STATE QKEY"),
    ("RC, XRC TGT", "RTS RTS", "", "CUR_STATE ALT_PATH ACCESS_FLAGS MIN_RNR_TIMER PATH_MIG_STATE"),
    ("UC, XRC INI", "RTS RTS", "", "CUR_STATE ALT_PATH ACCESS_FLAGS PATH_MIG_STATE"),
    ("UD", "RTS RTS", "", "CUR_STATE QKEY"),
    ("RC, UC, UD, XRC INI, XRC TGT", "RTS SQD", "", "EN_SQD_ASYNC_NOTIFY"),
    ("RC, XRC TGT", "SQD RTS", "", "CUR_STATE ALT_PATH ACCESS_FLAGS MIN_RNR_TIMER PATH_MIG_STATE"),
    ("UC, XRC INI", "SQD RTS", "", "CUR_STATE ALT_PATH ACCESS_FLAGS PATH_MIG_STATE"),
    ("UD", "SQD RTS", "", "CUR_STATE QKEY"),
    ("RC", "SQD SQD", "", "PORT AV TIMEOUT RETRY_CNT RNR_RETRY MAX_QP_RD_ATOMIC MAX_DEST_RD_ATOMIC ALT_PATH \
        ACCESS_FLAGS PKEY_INDEX MIN_RNR_TIMER PATH_MIG_STATE"),
    ("XRC INI", "SQD SQD", "", "PORT AV TIMEOUT RETRY_CNT RNR_RETRY MAX_QP_RD_ATOMIC ALT_PATH ACCESS_FLAGS \
        PKEY_INDEX PATH_MIG_STATE"),
    ("XRC TGT", "SQD SQD", "", "PORT AV TIMEOUT MAX_DEST_RD_ATOMIC ALT_PATH ACCESS_FLAGS PKEY_INDEX \
        MIN_RNR_TIMER PATH_MIG_STATE"),
    ("UC", "SQD SQD", "", "AV ALT_PATH ACCESS_FLAGS PKEY_INDEX PATH_MIG_STATE"),
    ("UD", "SQD SQD", "", "PKEY_INDEX QKEY"),
    ("UC", "SQE RTS", "", "CUR_STATE ACCESS_FLAGS"),
    ("UD", "SQE RTS", "", "CUR_STATE QKEY"),
];

fn named(names: &str) -> AttributeMask {
    names
        .split_whitespace()
        .map(|name| {
            let found =
                Attribute::ALL.iter().find(|it| it.verbs_name() == format!("IBV_QP_{name}"));
            AttributeMask::from(*found.expect(name))
        })
        .fold(AttributeMask::NONE, |all, flag| all | flag)
}

/// The rule of the independent table.
fn expected_rule(service: ServiceType, from: State, to: State) -> Option<Rule> {
    if matches!(to, State::Reset | State::Error) {
        return Some(Rule { required: AttributeMask::NONE, optional: AttributeMask::NONE });
    }
    let change = format!("{from} {to}");
    let mut found = EXPECTED.iter().filter(|(services, it, ..)| {
        *it == change && services.split(", ").any(|name| name == service.name())
    });
    let &(_, _, required, optional) = found.next()?;
    assert!(found.next().is_none(), "{service} {change} twice");
    Some(Rule { required: named(required), optional: named(optional) })
}

/// Valid values for these attributes.
fn change(from: State, to: State, attributes: AttributeMask) -> QueuePairAttributes {
    let path = AddressVector {
        port: 1,
        destination: Gid([1; 16]),
        flow_label: (1 << 20) - 1,
        service_level: 15,
        ..AddressVector::default()
    };
    let mut change = QueuePairAttributes {
        state: Some(to),
        current_state: Some(from),
        drain_notice: Some(true),
        access: Some(AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_WRITE),
        partition: Some(u16::MAX),
        port: Some(u8::MAX),
        queue_key: Some(QKey(u32::MAX)),
        path: Some(path),
        path_mtu: Some(PathMtu::MTU_4096),
        timeout: Some(AckTimeout(31)),
        retry_count: Some(7),
        rnr_retry: Some(RnrRetry::FOR_EVER),
        receive_psn: Some(Psn(0xff_ffff)),
        max_rd_atomic: Some(u8::MAX),
        alternate_path: Some(AlternatePath { path, partition: 0, timeout: AckTimeout(31) }),
        min_rnr_timer: RnrTimer::from_code(31),
        send_psn: Some(Psn(0xff_ffff)),
        max_dest_rd_atomic: Some(u8::MAX),
        migration: Some(Migration::Armed),
        capabilities: Some(Capabilities::default()),
        destination: Some(Qpn(0xff_ffff)),
        rate_limit: Some(1),
    };
    assert_eq!(change.attributes(), AttributeMask::ALL);
    change.clear(AttributeMask::ALL - attributes - AttributeMask::STATE);
    change
}

/// Every service with every pair of states.
fn cases() -> impl Iterator<Item = (ServiceType, State, State)> {
    ServiceType::ALL.into_iter().flat_map(|service| {
        State::ALL.into_iter().flat_map(move |from| State::ALL.map(|to| (service, from, to)))
    })
}

#[test]
fn all_transitions_match_the_expected_table() {
    let mut allowed = 0;
    for (service, from, to) in cases() {
        let expected = expected_rule(service, from, to);
        assert_eq!(rule(service, from, to), expected, "{service} {from} {to}");
        let Some(Rule { required, optional }) = expected else {
            let error = ModifyError::NoSuchTransition { service, from, to };
            assert_eq!(modify(service, from, &change(from, to, AttributeMask::NONE)), Err(error));
            assert_eq!(modify(service, from, &change(from, to, AttributeMask::ALL)), Err(error));
            continue;
        };
        allowed += 1;
        assert_eq!(modify(service, from, &change(from, to, required)), Ok(to));
        assert_eq!(modify(service, from, &change(from, to, required | optional)), Ok(to));
    }
    // For each service 14 to RESET or ERR and 8 more, and 2 from SQE.
    assert_eq!(allowed, 5 * (14 + 8) + 2);
}

#[test]
fn every_attribute_of_every_transition_is_checked() {
    for (service, from, to) in cases() {
        let Some(Rule { required, optional }) = expected_rule(service, from, to) else { continue };
        for &attribute in Attribute::ALL.iter().filter(|&&it| it != Attribute::State) {
            let attributes = AttributeMask::from(attribute);
            let with = modify(service, from, &change(from, to, required | attributes));
            let without = modify(service, from, &change(from, to, required - attributes));
            let context = format!("{service} {from} {to} {attribute}");
            if required.contains(attribute) {
                let missing = ModifyError::Missing { service, from, to, attributes };
                assert_eq!((with, without), (Ok(to), Err(missing)), "{context}");
            } else if optional.contains(attribute) {
                assert_eq!((with, without), (Ok(to), Ok(to)), "{context}");
            } else {
                let refused = ModifyError::NotAllowed { service, from, to, attributes };
                assert_eq!((with, without), (Err(refused), Ok(to)), "{context}");
            }
        }
        if !required.is_empty() {
            let missing = ModifyError::Missing { service, from, to, attributes: required };
            assert_eq!(modify(service, from, &change(from, to, optional)), Err(missing));
        }
        let attributes = AttributeMask::ALL - required - optional - AttributeMask::STATE;
        let refused = ModifyError::NotAllowed { service, from, to, attributes };
        assert_eq!(modify(service, from, &change(from, to, AttributeMask::ALL)), Err(refused));
    }
}

#[test]
fn without_a_state_the_state_does_not_change() {
    for (service, from, to) in cases().filter(|(_, from, to)| from == to) {
        let mut change = change(from, to, AttributeMask::NONE);
        let stated = modify(service, from, &change);
        change.state = None;
        assert_eq!(modify(service, from, &change), stated);
    }
}

#[test]
fn refuses_a_wrong_current_state() {
    for (assumed, actual) in State::ALL.into_iter().flat_map(|it| State::ALL.map(|at| (it, at))) {
        let change =
            QueuePairAttributes { current_state: Some(assumed), ..QueuePairAttributes::default() };
        let result = modify(ServiceType::UnreliableDatagram, actual, &change);
        let error = ModifyError::WrongCurrentState { assumed, actual };
        assert_eq!(result == Err(error), assumed != actual, "{assumed} {actual}");
    }
}

/// Attribute, a value just out of range, and the last valid one.
type Limit = (Attribute, fn(&mut QueuePairAttributes), fn(&mut QueuePairAttributes));

const LIMITS: &[Limit] = &[
    (Attribute::Port, |it| it.port = Some(0), |it| it.port = Some(1)),
    (
        Attribute::Access,
        |it| it.access = Some(AccessFlags::from_bits_retain(1 << 10)),
        |it| it.access = Some(AccessFlags::all()),
    ),
    (Attribute::PathMtu, |it| it.path_mtu = Some(PathMtu(0)), |it| it.path_mtu = Some(PathMtu(1))),
    (Attribute::PathMtu, |it| it.path_mtu = Some(PathMtu(6)), |it| it.path_mtu = Some(PathMtu(5))),
    (
        Attribute::Timeout,
        |it| it.timeout = Some(AckTimeout(32)),
        |it| it.timeout = Some(AckTimeout(31)),
    ),
    (Attribute::RetryCount, |it| it.retry_count = Some(8), |it| it.retry_count = Some(7)),
    (
        Attribute::RnrRetry,
        |it| it.rnr_retry = Some(RnrRetry(8)),
        |it| it.rnr_retry = Some(RnrRetry(7)),
    ),
    (
        Attribute::ReceivePsn,
        |it| it.receive_psn = Some(Psn(1 << 24)),
        |it| it.receive_psn = Some(Psn((1 << 24) - 1)),
    ),
    (
        Attribute::SendPsn,
        |it| it.send_psn = Some(Psn(1 << 24)),
        |it| it.send_psn = Some(Psn((1 << 24) - 1)),
    ),
    (
        Attribute::Destination,
        |it| it.destination = Some(Qpn(1 << 24)),
        |it| it.destination = Some(Qpn((1 << 24) - 1)),
    ),
    (Attribute::Path, |it| path(it).port = 0, |it| path(it).port = 1),
    (Attribute::Path, |it| path(it).flow_label = 1 << 20, |it| path(it).flow_label = 0xf_ffff),
    (Attribute::Path, |it| path(it).service_level = 16, |it| path(it).service_level = 15),
    (Attribute::AlternatePath, |it| alternate(it).path.port = 0, |it| alternate(it).path.port = 1),
    (
        Attribute::AlternatePath,
        |it| alternate(it).timeout = AckTimeout(32),
        |it| alternate(it).timeout = AckTimeout(31),
    ),
];

fn path(change: &mut QueuePairAttributes) -> &mut AddressVector {
    change.path.as_mut().expect("given")
}

fn alternate(change: &mut QueuePairAttributes) -> &mut AlternatePath {
    change.alternate_path.as_mut().expect("given")
}

#[test]
fn refuses_values_out_of_range() {
    for &(attribute, wrong, right) in LIMITS {
        let attributes = AttributeMask::from(attribute);
        let mut taken = 0;
        for (service, from, to) in cases() {
            let Some(Rule { required, optional }) = expected_rule(service, from, to) else {
                continue;
            };
            if !(required | optional).contains(attribute) {
                continue;
            }
            taken += 1;
            let mut change = change(from, to, required | attributes);
            wrong(&mut change);
            let error = ModifyError::OutOfRange { attributes };
            assert_eq!(modify(service, from, &change), Err(error), "{service} {from} {to}");
            right(&mut change);
            assert_eq!(modify(service, from, &change), Ok(to), "{service} {from} {to}");
        }
        assert!(taken > 0, "{attribute}");
    }
}

#[test]
fn errors_name_what_to_correct() {
    let rc = ServiceType::ReliableConnection;
    let text = |service, from, change: &QueuePairAttributes| {
        modify(service, from, change).expect_err("refused").to_string()
    };
    let to = |state| QueuePairAttributes { state: Some(state), ..QueuePairAttributes::default() };
    let bad = QueuePairAttributes {
        port: Some(0),
        ..change(State::Reset, State::Init, named("PKEY_INDEX"))
    };
    assert_eq!(text(rc, State::Reset, &bad), "RC from RESET to INIT also requires: access");
    let bad = QueuePairAttributes { access: Some(AccessFlags::empty()), ..bad };
    assert_eq!(text(rc, State::Reset, &bad), "out of range: port (valid: 1 or higher)");
    let bad = QueuePairAttributes {
        port: Some(1),
        queue_key: Some(QKey(1)),
        retry_count: Some(9),
        ..bad
    };
    assert_eq!(
        text(rc, State::Reset, &bad),
        "RC from RESET to INIT does not accept: queue key, retry count"
    );
    assert_eq!(text(rc, State::Init, &to(State::ReadyToSend)), "RC cannot go from INIT to RTS");
    assert_eq!(
        text(rc, State::ReadyToReceive, &QueuePairAttributes::default()),
        "RC in RTR accepts no change without leaving that state"
    );
    let late =
        QueuePairAttributes { current_state: Some(State::ReadyToSend), ..to(State::ReadyToSend) };
    assert_eq!(
        text(ServiceType::UnreliableDatagram, State::SendQueueError, &late),
        "the queue pair is in SQE, not in RTS as the change assumes"
    );
    assert!(ModifyError::StillDraining.to_string().contains("wait for the drain event"));
}

#[test]
fn numbers_are_those_of_libibverbs() {
    let names = "RESET INIT RTR RTS SQD SQE ERR";
    assert_eq!(State::ALL.map(State::name).join(" "), names);
    for (code, state) in (0..).zip(State::ALL) {
        assert_eq!((State::from_code(code), state.code()), (Some(state), code));
    }
    assert_eq!(State::from_code(7), None);
    assert_eq!(named("STATE PORT QKEY AV").bits(), 0xe1);
    assert_eq!(named("DEST_QPN RATE_LIMIT").bits(), 1 << 20 | 1 << 25);
    assert_eq!(AttributeMask::from_bits(0xe1), Some(named("STATE PORT QKEY AV")));
    assert_eq!(AttributeMask::from_bits(1 << 21), None);
    assert_eq!(AttributeMask::ALL.bits(), 0x21f_ffff);
}

#[test]
fn later_values_replace_earlier_ones() {
    let mut all =
        QueuePairAttributes { port: Some(1), partition: Some(2), ..QueuePairAttributes::default() };
    all.absorb(&QueuePairAttributes {
        port: Some(3),
        timeout: Some(AckTimeout(14)),
        ..QueuePairAttributes::default()
    });
    let expected = QueuePairAttributes {
        port: Some(3),
        partition: Some(2),
        timeout: Some(AckTimeout(14)),
        ..QueuePairAttributes::default()
    };
    assert_eq!(all, expected);
}

#[test]
fn the_document_matches_the_tables() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/queue-pair-states.md");
    if env::var_os("FERROCE_UPDATE_DOCS").is_some() {
        return fs::write(path, markdown()).expect("written");
    }
    let text = fs::read_to_string(path).unwrap_or_else(|_| String::new());
    assert!(
        text == markdown(),
        "docs/queue-pair-states.md is not what the tables say now; \
         FERROCE_UPDATE_DOCS=1 cargo test -p ferroce-proto qp writes it anew"
    );
}

/// The words of a line, for tables in tests.
fn words(line: &str) -> Vec<&str> {
    line.split_whitespace().collect()
}
