//! Error texts are distinct and name the phase.

use std::collections::BTreeSet;
use std::string::{String, ToString};

use ferroce_wire::setup::{Phase, Status};

use super::*;

#[test]
fn every_failure_has_a_distinct_text() {
    let violations = [
        Violation::QpType,
        Violation::PathMtu,
        Violation::QueuePairs,
        Violation::Keys,
        Violation::MaxMessageSize,
        Violation::Retries,
    ];
    let phase = Phase::Memory;
    let refused = Refused { phase, status: Status::REJECTED };
    let errors = [
        SetupError::Refused(refused),
        SetupError::NoAnswer { phase, attempts: 5 },
        SetupError::Aborted(refused),
    ];
    let failures = [
        Failure::Refused(refused),
        Failure::Silent { phase },
        Failure::Unconfirmed { attempts: 8 },
        Failure::Abandoned { status: Status::TIMEOUT },
    ];
    let of_client = violations
        .map(|violation| SetupError::Violation { phase, violation })
        .into_iter()
        .chain(errors)
        .map(|error| error.to_string());
    let client: BTreeSet<String> = of_client.collect();
    assert_eq!(client.len(), violations.len() + errors.len(), "{client:?}");
    assert!(client.iter().all(|text| text.contains(&phase.to_string())), "{client:?}");
    let server: BTreeSet<String> = failures.iter().map(Failure::to_string).collect();
    assert_eq!(server.len(), failures.len(), "{server:?}");
    assert!(server.iter().any(|text| text.contains("in 8 attempts")), "{server:?}");
    assert_ne!(WrongStep.to_string(), UnknownRequest.to_string());
}
