//! ICRC checks, including those of IPv4 packets with a hidden identification: a correct ICRC is always accepted, and
//! yields the identification it was computed with.
//!
//! Seeds: packets
#![no_main]

use ferroce_wire::icrc::hidden::{Identification, UdpIpv4, solve};
use ferroce_wire::icrc::{Encapsulation, check};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    for encapsulation in
        [Encapsulation::Ipv4, Encapsulation::Ipv6, Encapsulation::RoceV1, Encapsulation::Native]
    {
        let _ = check(encapsulation, data);
    }
    let Some((id, datagram)) = data.split_first_chunk::<2>() else { return };
    let Some((body, _)) = datagram.split_last_chunk::<4>() else { return };
    let Some((bth, rest)) = body.split_first_chunk::<12>() else { return };
    let truth = Identification { id: u16::from_be_bytes(*id), dont_fragment: id[0] & 1 == 0 };
    let flow = UdpIpv4 {
        source: [10, 0, 0, 1],
        destination: [10, 0, 0, 2],
        source_port: 49152,
        destination_port: 4791,
    };
    let Ok(length) = u16::try_from(datagram.len() + 8) else { return };
    if length > u16::MAX - 20 {
        return;
    }
    let mut icrc = flow.icrc(truth, length, bth);
    icrc.update(rest);
    let sent = [body, &icrc.finish()].concat();
    let expected = Identification { id: 0, dont_fragment: true };
    assert_eq!(solve(&flow, &sent, expected), Some(truth));
});
