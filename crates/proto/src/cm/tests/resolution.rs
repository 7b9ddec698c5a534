//! Service ID resolution.

use super::super::{
    CallError, Event, Ignored, Resolution, ResolveParameters, ServiceInUse, SidrRepData,
    private_data,
};
use super::{at, carry, config, events, gid, manager, only, transmits};
use crate::cm::ConnectionManager;
use ferroce_wire::cm::{CmMessage, ResponseTimeout, ServiceId, SidrStatus};
use ferroce_wire::number::{QKey, Qpn};

const SERVICE: ServiceId = ServiceId(0x0111_1c06);

fn resolve_parameters() -> ResolveParameters {
    ResolveParameters {
        private_data: private_data(b"who?").unwrap(),
        ..ResolveParameters::new(gid(11), SERVICE)
    }
}

#[test]
fn every_sidr_status_is_delivered_with_its_data() {
    for &status in SidrStatus::ALL {
        let (mut a, mut b) = (manager(12), manager(11));
        b.listen_datagrams(SERVICE).unwrap();
        let id = a.resolve(at(0), &resolve_parameters()).unwrap();
        carry(at(1), (12, &mut a), &mut b);
        let Some(Event::Query(query, asked)) = b.poll_event() else { panic!("no query") };
        assert_eq!((asked.from, asked.service_id), (gid(12), SERVICE));
        assert_eq!(asked.private_data, resolve_parameters().private_data);
        let data: SidrRepData = private_data(b"me").unwrap();
        let answer = Resolution {
            status,
            information_length: 2,
            ..Resolution::valid(Qpn(0x1c), QKey(0x0123_4567), data)
        };
        b.answer(query, &answer).unwrap();
        carry(at(2), (11, &mut b), &mut a);
        assert_eq!(events(&mut a), [Event::Resolved(id, answer.into())]);
        assert_eq!((a.resolutions(), a.poll_timeout()), (0, None));
    }
}

#[test]
fn refuses_a_service_without_a_listener() {
    let (mut a, mut b) = (manager(12), manager(11));
    let id = a.resolve(at(0), &resolve_parameters()).unwrap();
    carry(at(1), (12, &mut a), &mut b);
    carry(at(2), (11, &mut b), &mut a);
    let refused = Resolution::refused(SidrStatus::UNSUPPORTED_SERVICE);
    assert_eq!(events(&mut a), [Event::Resolved(id, refused.into())]);
    assert_eq!(b.resolutions(), 0);
}

#[test]
fn refuses_a_sidr_req_of_another_class_version() {
    let (mut a, mut b) = (manager(12), manager(11));
    let id = a.resolve(at(0), &resolve_parameters()).unwrap();
    let mut mad = only(&mut a).to_mad();
    mad[2] = 9;
    assert!(matches!(b.handle_mad(at(1), gid(12), &mad), Err(Ignored::NotMessage(_))));
    carry(at(2), (11, &mut b), &mut a);
    let refused = Resolution::refused(SidrStatus::UNSUPPORTED_VERSION);
    assert_eq!(events(&mut a), [Event::Resolved(id, refused.into())]);
}

#[test]
fn retransmits_a_sidr_req_and_gives_up() {
    for retries in [0, 3, 15] {
        let mut a = manager(12);
        let response_timeout = ResponseTimeout(18);
        let parameters =
            ResolveParameters { max_retries: retries, response_timeout, ..resolve_parameters() };
        let id = a.resolve(at(0), &parameters).unwrap();
        let first = only(&mut a);
        for count in 1..=u64::from(retries) {
            let now = a.poll_timeout().unwrap();
            assert_eq!(now.as_nanos(), (4096 << 18) * count);
            a.handle_timeout(now);
            assert_eq!(only(&mut a), first);
        }
        let end = a.poll_timeout().unwrap();
        a.handle_timeout(end);
        assert_eq!(transmits(&mut a), []);
        assert_eq!(events(&mut a), [Event::Unresolved(id)]);
        assert_eq!((a.resolutions(), a.poll_timeout()), (0, None));
    }
}

#[test]
fn a_repeated_sidr_req_gets_the_same_response() {
    let (mut a, mut b) = (manager(12), manager(11));
    b.listen_datagrams(SERVICE).unwrap();
    a.resolve(at(0), &resolve_parameters()).unwrap();
    let request = only(&mut a).to_mad();
    b.handle_mad(at(1), gid(12), &request).unwrap();
    assert_eq!(b.handle_mad(at(2), gid(12), &request), Err(Ignored::Duplicate));
    assert_eq!(b.poll_transmit(), None);
    let [Event::Query(query, _)] = events(&mut b)[..] else { panic!("no query") };
    let answer = Resolution::valid(Qpn(5), QKey(6), SidrRepData::default());
    b.answer(query, &answer).unwrap();
    let reply = only(&mut b);
    assert_eq!(b.handle_mad(at(3), gid(12), &request), Err(Ignored::Duplicate));
    assert_eq!(only(&mut b), reply);
    assert_eq!(events(&mut b), []);
    // It expires after a while.
    b.handle_timeout(at(60_000));
    assert_eq!((b.resolutions(), b.poll_timeout()), (0, None));
    assert_eq!(b.answer(query, &answer), Err(CallError::Gone));
}

#[test]
fn ignores_sidr_reps_from_other_addresses_or_services() {
    let (mut a, mut b) = (manager(12), manager(11));
    let id = a.resolve(at(0), &resolve_parameters()).unwrap();
    carry(at(1), (12, &mut a), &mut b);
    let reply = only(&mut b);
    assert!(a.handle_mad(at(2), gid(99), &reply.to_mad()).is_err());
    let CmMessage::SidrRep(mut other) = reply.message else { panic!("no SIDR_REP") };
    other.service_id = ServiceId(1);
    assert!(a.handle_message(at(2), gid(11), reply.transaction, &other.into()).is_err());
    assert_eq!(events(&mut a), []);
    a.cancel_resolution(id);
    assert!(a.handle_mad(at(2), gid(11), &reply.to_mad()).is_err());
    assert_eq!((events(&mut a), a.poll_timeout()), ([].into(), None));
}

#[test]
fn limits_resolutions() {
    let mut small = config(11);
    small.max_resolutions = 3;
    let mut b = ConnectionManager::new(small);
    b.listen_datagrams(SERVICE).unwrap();
    assert_eq!(b.listen_datagrams(SERVICE), Err(ServiceInUse(SERVICE)));
    let mut a = manager(12);
    for count in 0..10 {
        a.resolve(at(0), &resolve_parameters()).unwrap();
        let result = b.handle_mad(at(1), gid(12), &only(&mut a).to_mad());
        assert_eq!(result, if count < 3 { Ok(()) } else { Err(Ignored::LimitReached) });
    }
    for count in 0..10 {
        assert_eq!(b.resolve(at(2), &resolve_parameters()).is_ok(), count < 3);
    }
    assert_eq!(b.resolutions(), 6);
}

#[test]
fn pending_queries_survive_unlisten() {
    let (mut a, mut b) = (manager(12), manager(11));
    b.listen_datagrams(SERVICE).unwrap();
    let early = a.resolve(at(0), &resolve_parameters()).unwrap();
    carry(at(1), (12, &mut a), &mut b);
    let Some(Event::Query(query, _)) = b.poll_event() else { panic!("no query") };
    b.unlisten_datagrams(SERVICE);
    let late = a.resolve(at(2), &resolve_parameters()).unwrap();
    carry(at(3), (12, &mut a), &mut b);
    assert_eq!(events(&mut b), []);
    // Requests received before can still be answered.
    let data: SidrRepData = private_data(b"me").unwrap();
    let answer = Resolution::valid(Qpn(0x1c), QKey(0x0123_4567), data);
    b.answer(query, &answer).unwrap();
    carry(at(4), (11, &mut b), &mut a);
    let refused = Resolution::refused(SidrStatus::UNSUPPORTED_SERVICE);
    let expected = [Event::Resolved(late, refused.into()), Event::Resolved(early, answer.into())];
    assert_eq!(events(&mut a), expected);
    assert!(b.listen_datagrams(SERVICE).is_ok(), "the name is free again");
}
