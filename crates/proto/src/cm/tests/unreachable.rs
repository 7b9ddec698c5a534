//! ICMP "port unreachable".

use std::vec;

use ferroce_wire::cm::SidrStatus;

use super::super::{Disconnection, DreqData, Event, Failure, ResolveParameters, State};
use super::handshake::{Pair, accepted, established};
use super::link::Prng;
use super::{SERVICE, at, connect_parameters, events, gid, manager, transmits};

#[test]
fn a_closed_port_fails_a_connection_attempt() {
    let mut a = manager(12);
    let id = a.connect(at(0), &connect_parameters()).unwrap();
    let req = transmits(&mut a)[0].to_mad();
    a.handle_unreachable(at(1), gid(11), &req[..24]).unwrap();
    assert_eq!(events(&mut a), [Event::Failed(id, Failure::PortClosed)]);
    assert_eq!((a.connections(), a.poll_timeout()), (0, None));
    assert_eq!(transmits(&mut a), [], "there is nobody to tell");
}

#[test]
fn ignores_icmp_without_the_transaction_id() {
    let mut a = manager(12);
    let id = a.connect(at(0), &connect_parameters()).unwrap();
    let req = transmits(&mut a)[0].to_mad();
    for length in 0..16 {
        a.handle_unreachable(at(1), gid(11), &req[..length]).unwrap_err();
    }
    for bit in 64..128 {
        let mut forged = req;
        forged[bit / 8] ^= 1 << (bit % 8);
        a.handle_unreachable(at(1), gid(11), &forged).unwrap_err();
    }
    a.handle_unreachable(at(1), gid(99), &req).unwrap_err();
    assert_eq!(events(&mut a), []);
    assert_eq!(a.state(id), State::ReqSent);
}

/// A forger who knows the communication ID, which is the lower half of the transaction ID, guesses the other half.
#[test]
fn guesses_of_the_transaction_id_change_nothing_in_any_state() {
    let connecting = accepted(&connect_parameters());
    let mut probing = established();
    probing.a.probe(at(50), probing.at_a).unwrap();
    assert_eq!(transmits(&mut probing.a).len(), 1, "a LAP");
    let mut disconnecting = established();
    disconnecting.a.disconnect(at(50), disconnecting.at_a, DreqData::default()).unwrap();
    let mut prng = Prng(1);
    for Pair { mut a, mut b, at_a, at_b } in [connecting, established(), probing, disconnecting] {
        for (manager, id, peer) in [(&mut a, at_a, gid(11)), (&mut b, at_b, gid(12))] {
            transmits(manager);
            events(manager);
            let (state, timeout) = (manager.state(id), manager.poll_timeout());
            for _ in 0..2000 {
                let mut quoted = [0; 24];
                quoted[8..12].copy_from_slice(&(prng.next() as u32).to_be_bytes());
                quoted[12..16].copy_from_slice(&id.0.0.to_be_bytes());
                manager.handle_unreachable(at(60), peer, &quoted).unwrap_err();
            }
            assert_eq!((manager.state(id), manager.poll_timeout()), (state, timeout));
            assert_eq!((events(manager), transmits(manager)), (vec![], vec![]), "{state:?}");
        }
    }
}

#[test]
fn ignores_icmp_after_a_response() {
    let Pair { mut a, mut b, at_a, at_b } = established();
    let transaction = a.comm_ids.transaction(at_a.0);
    let mut quoted = [0; 24];
    quoted[8..16].copy_from_slice(&transaction.0.to_be_bytes());
    a.handle_unreachable(at(100), gid(11), &quoted).unwrap_err();
    b.handle_unreachable(at(100), gid(12), &quoted).unwrap_err();
    assert_eq!((a.state(at_a), b.state(at_b)), (State::Established, State::Established));
    assert_eq!((events(&mut a), events(&mut b)), (vec![], vec![]));
}

#[test]
fn a_closed_port_completes_a_disconnect() {
    let Pair { mut a, at_a, .. } = established();
    events(&mut a);
    transmits(&mut a);
    a.disconnect(at(50), at_a, DreqData::default()).unwrap();
    let dreq = transmits(&mut a)[0].to_mad();
    a.handle_unreachable(at(51), gid(11), &dreq[..40]).unwrap();
    assert_eq!(events(&mut a), [Event::Disconnected(at_a, Disconnection::Unconfirmed)]);
    assert_eq!(a.state(at_a), State::TimeWait);
}

#[test]
fn a_closed_port_fails_a_resolution() {
    let mut a = manager(12);
    let parameters = ResolveParameters::new(gid(11), SERVICE);
    let sidr_req = a.resolve(at(0), &parameters).unwrap();
    let asked = transmits(&mut a)[0].to_mad();
    a.handle_unreachable(at(1), gid(12), &asked).unwrap_err();
    a.handle_unreachable(at(1), gid(11), &asked[..24]).unwrap();
    let [Event::Resolved(id, answer)] = &events(&mut a)[..] else { panic!("no answer") };
    assert_eq!((*id, answer.status), (sidr_req, SidrStatus::UNSUPPORTED_SERVICE));
    assert_eq!((a.resolutions(), a.poll_timeout()), (0, None));
}
