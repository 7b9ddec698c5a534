use super::*;

/// Simulates a program that receives messages, and returns how many ACKs waited for the device thread.
fn late(messages: u32, is_late: impl Fn(u32) -> bool) -> u32 {
    let (mut deferral, mut late) = (Deferral::default(), 0);
    for message in 0..messages {
        match (deferral.allows(), is_late(message)) {
            (false, _) => deferral.sent_at_once(),
            (true, false) => deferral.in_time(),
            (true, true) => {
                deferral.late();
                late += 1;
            }
        }
    }
    late
}

#[test]
fn acks_of_a_program_that_replies_wait() {
    assert_eq!(late(1000, |_| false), 0);
}

#[test]
fn acks_of_a_program_that_works_between_its_calls_do_not() {
    // 9 while the pause grows to 256, then one in 257.
    assert_eq!(late(10_000, |_| true), 46);
}

#[test]
fn a_program_that_was_late_once_is_forgiven() {
    let mut deferral = Deferral::default();
    (0..9).for_each(|_| deferral.late());
    assert_eq!(deferral.pause, MAX_PAUSE);
    (0..MAX_PAUSE).for_each(|_| deferral.sent_at_once());
    (0..MAX_PAUSE).for_each(|_| deferral.in_time());
    deferral.late();
    assert_eq!(deferral.pause, 1);
}
