use super::{Doorbell, Ring};

#[test]
fn a_request_on_its_own_is_sent_at_once() {
    let mut doorbell = Doorbell::default();
    assert_eq!(doorbell.post(1, 8, false), Ring::Now);
    doorbell.release();
    assert_eq!(doorbell.post(1, 8, true), Ring::Later);
}

#[test]
fn what_was_held_back_leaves_when_nothing_is_in_flight() {
    let mut doorbell = Doorbell::default();
    assert_eq!(doorbell.post(3, 24, true), Ring::Later);
    assert_eq!(doorbell.post(0, 0, false), Ring::Now);
}

#[test]
fn the_number_of_requests_is_limited() {
    let mut doorbell = Doorbell::default();
    for _ in 0..Doorbell::MAX_REQUESTS {
        assert_eq!(doorbell.post(1, 0, true), Ring::Later);
    }
    assert_eq!(doorbell.post(1, 0, true), Ring::Now);
    assert_eq!(doorbell.post(1, 0, true), Ring::Now, "until they are sent");
    doorbell.release();
    assert_eq!(doorbell.requests(), 0);
    assert_eq!(doorbell.post(Doorbell::MAX_REQUESTS, 0, true), Ring::Later);
    doorbell.release();
    assert_eq!(doorbell.post(Doorbell::MAX_REQUESTS + 1, 0, true), Ring::Now);
}

#[test]
fn the_number_of_bytes_is_limited() {
    let mut doorbell = Doorbell::default();
    assert_eq!(doorbell.post(1, Doorbell::MAX_BYTES, true), Ring::Later);
    assert_eq!(doorbell.post(1, 1, true), Ring::Now);
    doorbell.release();
    assert_eq!(doorbell.post(1, Doorbell::MAX_BYTES + 1, true), Ring::Now);
}
