//! The syntax of faults, and what each of them makes of datagrams.

use std::net::SocketAddr;

use ferroce_sys::{RxDatagram, RxInfo};

use super::{FaultInjector, Faults};

#[test]
fn faults_are_parsed_and_displayed() {
    let faults: Faults = "loss=1%,duplication=0.5%,corruption=2%,seed=7".parse().unwrap();
    assert_eq!((faults.loss, faults.duplication, faults.seed), (10_000, 5_000, 7));
    assert_eq!((faults.reordering, faults.corruption), (0, 20_000));
    assert_eq!(faults.to_string().parse(), Ok(faults));
    for bad in ["loss", "loss=x", "loss=101%", "weather=1%"] {
        let error = bad.parse::<Faults>().unwrap_err().to_string();
        assert!(error.contains(bad) && error.contains("for example"), "{error}");
    }
}

/// What the injector delivers of `count` datagrams of one packet each, and how many faults it counts.
fn inject(faults: Faults, count: u8) -> (Vec<Vec<u8>>, u64) {
    let info = RxInfo {
        source: SocketAddr::from(([127, 0, 0, 1], 4791)),
        destination: [127, 0, 0, 1].into(),
        interface: None,
        tos: 0,
        hop_limit: None,
        length: 4,
        segment: 4,
        truncated: false,
    };
    let (mut injector, mut delivered, mut injected) = (FaultInjector::new(faults), Vec::new(), 0);
    for number in 0..count {
        let datagram = RxDatagram { info: &info, data: &[number; 4] };
        injected += injector.inject(&datagram, |datagram| delivered.push(datagram.data.to_vec()));
    }
    (delivered, injected)
}

#[test]
fn each_fault_is_injected_and_counted() {
    const ALL: u32 = 1_000_000;
    let all: Vec<_> = (0..40).map(|number| vec![number; 4]).collect();
    assert_eq!(inject(Faults::default(), 40), (all.clone(), 0));
    assert_eq!(inject(Faults { loss: ALL, ..Faults::default() }, 40), (Vec::new(), 40));
    let twice = all.iter().flat_map(|packet| [packet.clone(), packet.clone()]).collect();
    assert_eq!(inject(Faults { duplication: ALL, ..Faults::default() }, 40), (twice, 40));

    let (corrupted, injected) = inject(Faults { corruption: ALL, ..Faults::default() }, 40);
    let differing = |(one, other): (&Vec<u8>, &Vec<u8>)| -> u32 {
        one.iter().zip(other).map(|(one, other)| (one ^ other).count_ones()).sum()
    };
    assert_eq!((corrupted.len(), injected), (40, 40));
    assert!(corrupted.iter().zip(&all).all(|pair| differing(pair) == 1));

    let faults = Faults { reordering: ALL / 4, seed: 3, ..Faults::default() };
    let (mut reordered, injected) = inject(faults, 40);
    assert_ne!(reordered, all[..reordered.len()]);
    assert!(injected > 0 && reordered.len() >= 32, "at most eight are delayed");
    reordered.sort();
    reordered.dedup();
    assert!(reordered.len() >= 32, "none is delivered twice");
}
