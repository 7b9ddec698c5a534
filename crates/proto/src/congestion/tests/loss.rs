//! The reaction of a window to loss.

use super::at;
use crate::congestion::loss::LossLimit;
use crate::congestion::{Loss, RateControl, Window};

const FULL: usize = 4 << 20;

/// Acknowledges this many bytes, a packet at a time.
fn acknowledge(window: &mut Window, bytes: usize) {
    for _ in 0..bytes.div_ceil(4864) {
        window.on_sent(at(0), 4864);
        window.on_ack(at(0), 4864);
    }
}

fn grown() -> Window {
    let mut window = Window::new(FULL);
    assert_eq!(window.window(), LossLimit::INITIAL);
    acknowledge(&mut window, 160 << 20);
    assert_eq!(window.window(), FULL, "without loss, it grows to its full size");
    window
}

#[test]
fn a_gap_cuts_once_per_round_trip() {
    let mut window = grown();
    window.on_sent(at(1), FULL);
    window.on_loss(at(1), Loss::Gap);
    assert_eq!((window.window(), window.in_flight()), (FULL / LossLimit::DIVISOR, 0));
    window.on_sent(at(1), FULL / LossLimit::DIVISOR);
    window.on_loss(at(2), Loss::Gap);
    assert_eq!(window.window(), FULL / LossLimit::DIVISOR, "the same round trip");
    acknowledge(&mut window, FULL / LossLimit::DIVISOR);
    window.on_loss(at(3), Loss::Gap);
    assert_eq!(window.window(), LossLimit::FLOOR);
    acknowledge(&mut window, FULL);
    window.on_loss(at(4), Loss::Gap);
    assert_eq!(window.window(), LossLimit::FLOOR, "never below the floor");
}

#[test]
fn a_timeout_cuts_to_the_floor_and_an_rnr_nak_not_at_all() {
    let mut window = grown();
    window.on_sent(at(1), FULL);
    window.on_loss(at(1), Loss::NotReady);
    assert_eq!((window.window(), window.in_flight()), (FULL, 0));
    window.on_sent(at(1), FULL);
    window.on_loss(at(1), Loss::Timeout);
    assert_eq!(window.window(), LossLimit::RESTART, "until the peer answers");
    acknowledge(&mut window, 1);
    assert_eq!(window.window(), LossLimit::FLOOR);
}

#[test]
fn rare_loss_keeps_the_window_small_and_no_loss_restores_it() {
    let mut window = grown();
    // One in a thousand packets.
    for time in 0..20 {
        window.on_sent(at(time), window.window());
        window.on_loss(at(time), Loss::Gap);
        acknowledge(&mut window, 1000 * 4864);
    }
    assert!(window.window() < 2 * LossLimit::FLOOR, "{}", window.window());
    acknowledge(&mut window, 2 << 30);
    assert_eq!(window.window(), FULL);
}

#[test]
fn a_small_window_does_not_react_to_loss() {
    let mut window = Window::default();
    window.on_loss(at(1), Loss::Gap);
    assert_eq!(window.window(), Window::DEFAULT_SIZE);
    window.on_loss(at(1), Loss::Timeout);
    assert_eq!(window.window(), LossLimit::RESTART, "until the peer answers");
    acknowledge(&mut window, 1);
    assert_eq!(window.window(), Window::DEFAULT_SIZE);
}
