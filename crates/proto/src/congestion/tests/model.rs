//! A second implementation of DCQCN, in floating point and in steps of a microsecond, as in the paper.

use super::*;

struct Model {
    current: f64,
    target: f64,
    alpha: f64,
    since_cnp: u64,
    timer: u64,
    bytes: u64,
    timer_count: u32,
    byte_count: u32,
    started: bool,
}

const LINE_RATE: f64 = 40e9;
const MIN_RATE: f64 = 10e6;

impl Model {
    fn new() -> Self {
        Self {
            current: LINE_RATE,
            target: LINE_RATE,
            alpha: 1.0,
            since_cnp: 0,
            timer: 0,
            bytes: 0,
            timer_count: 0,
            byte_count: 0,
            started: false,
        }
    }

    fn microsecond(&mut self) {
        if !self.started {
            return;
        }
        self.since_cnp += 1;
        if self.since_cnp % 55 == 0 {
            self.alpha *= 1.0 - 1.0 / 256.0;
        }
        self.timer += 1;
        if self.timer == 55 {
            self.timer = 0;
            self.timer_count += 1;
            self.raise();
        }
    }

    fn sent(&mut self, bytes: u64) {
        if !self.started {
            return;
        }
        self.bytes += bytes;
        while self.bytes >= 10_000_000 {
            self.bytes -= 10_000_000;
            self.byte_count += 1;
            self.raise();
        }
    }

    fn raise(&mut self) {
        if self.timer_count >= 5 || self.byte_count >= 5 {
            let both = self.timer_count > 5 && self.byte_count > 5;
            self.target = (self.target + if both { 400e6 } else { 40e6 }).min(LINE_RATE);
        }
        self.current = (self.current + self.target) / 2.0;
    }

    fn notified(&mut self) {
        if self.started && self.since_cnp < 50 {
            return;
        }
        self.started = true;
        self.target = self.current;
        self.current = (self.current * (1.0 - self.alpha / 2.0)).max(MIN_RATE);
        self.alpha = self.alpha * (1.0 - 1.0 / 256.0) + 1.0 / 256.0;
        (self.since_cnp, self.timer, self.bytes) = (0, 0, 0);
        (self.timer_count, self.byte_count) = (0, 0);
    }
}

/// Runs both over a schedule of (CNP received, bytes sent) per microsecond.
fn compare(duration: u64, mut schedule: impl FnMut(u64) -> (bool, u64)) -> f64 {
    let (mut model, mut flow) = (Model::new(), Dcqcn::new(paced(), at(0)));
    let mut lowest = LINE_RATE;
    for time in 1..=duration {
        model.microsecond();
        let (cnp, bytes) = schedule(time);
        if cnp {
            model.notified();
            flow.on_cnp(at(time));
        }
        if bytes > 0 {
            model.sent(bytes);
            flow.on_sent(at(time), bytes as usize);
        }
        let close = |ours: f64, theirs: f64| (ours - theirs).abs() <= theirs * 1e-6 + 10.0;
        // Not every time, so that several expiries are processed together.
        if time % 97 == 0 || cnp {
            let rate = flow.rate(at(time)).unwrap() as f64;
            let target = flow.target_rate(at(time)) as f64;
            let alpha = flow.alpha(at(time)) as f64 / 4_294_967_296.0;
            assert!(close(rate, model.current), "{time} µs: {rate} not {}", model.current);
            assert!(close(target, model.target), "{time} µs: {target} not {}", model.target);
            assert!((alpha - model.alpha).abs() < 1e-6, "{time} µs: {alpha} not {}", model.alpha);
            lowest = lowest.min(rate);
        }
    }
    lowest
}

#[test]
fn matches_the_model_for_one_cnp() {
    assert_eq!(compare(20_000, |time| (time == 100, 0)), LINE_RATE / 2.0);
}

#[test]
fn matches_the_model_for_periodic_cnps() {
    let lowest = compare(50_000, |time| (time % 50 == 0 && time < 5000, 4096));
    assert!(lowest < LINE_RATE / 100.0);
}

#[test]
fn matches_the_model_in_hyper_increase() {
    compare(30_000, |time| (matches!(time, 100 | 150 | 200), 400_000));
}

#[test]
fn matches_the_model_for_a_random_schedule() {
    let mut seed = 1u64;
    compare(300_000, |_| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let random = seed >> 33;
        (random % 700 == 0, random % 6000)
    });
}
