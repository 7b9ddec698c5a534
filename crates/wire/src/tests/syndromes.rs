use core::time::Duration;
use std::format;

use crate::syndrome::{Credits, NakCode, RnrTimer, Syndrome, SyndromeKind};

/// IBA table 58: credits by code; code 31 carries none.
const CREDITS: [Option<u16>; 32] = {
    let mut table = [None; 32];
    let counts = [
        0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536,
        2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768,
    ];
    let mut code = 0;
    while code < counts.len() {
        table[code] = Some(counts[code]);
        code += 1;
    }
    table
};

/// IBA table 45: the RNR NAK timer of each code, in milliseconds.
#[rustfmt::skip]
const RNR_MILLISECONDS: [&str; 32] = [
    "655.36",   "0.01",   "0.02",   "0.03",   "0.04",   "0.06",   "0.08",   "0.12",
      "0.16",   "0.24",   "0.32",   "0.48",   "0.64",   "0.96",   "1.28",   "1.92",
      "2.56",   "3.84",   "5.12",   "7.68",  "10.24",  "15.36",  "20.48",  "30.72",
     "40.96",  "61.44",  "81.92", "122.88", "163.84", "245.76", "327.68", "491.52",
];

/// IBA table 46.
const NAK_CODES: [(u8, NakCode, &str); 5] = [
    (0, NakCode::PsnSequenceError, "PSN sequence error"),
    (1, NakCode::InvalidRequest, "invalid request"),
    (2, NakCode::RemoteAccessError, "remote access error"),
    (3, NakCode::RemoteOperationalError, "remote operational error"),
    (4, NakCode::InvalidRdRequest, "invalid RD request"),
];

#[test]
fn credits_match_the_table() {
    for code in 0..32u8 {
        let credits = Credits::from_code(code).expect("5 bits");
        assert_eq!(credits.code(), code);
        assert_eq!(credits.count(), CREDITS[usize::from(code)], "code {code}");
        assert_eq!(Syndrome(code).kind(), SyndromeKind::Ack(credits));
    }
    assert_eq!(Credits::from_code(32), None);
    assert_eq!(Syndrome::ACK.kind(), SyndromeKind::Ack(Credits::UNLIMITED));
}

#[test]
fn encoded_credits_never_exceed_the_receives() {
    for count in 0..70_000u32 {
        let promised = Credits::at_most(count).count().map(u32::from).expect("a count");
        let next = CREDITS.iter().flatten().map(|&one| u32::from(one)).find(|&one| one > promised);
        assert!(promised <= count && next.is_none_or(|next| next > count), "{count}: {promised}");
    }
}

#[test]
fn rnr_timers_match_the_table() {
    for code in 0..32u8 {
        let timer = RnrTimer::from_code(code).expect("5 bits");
        let milliseconds = RNR_MILLISECONDS[usize::from(code)];
        assert_eq!(timer.code(), code);
        assert_eq!(timer.duration(), duration(milliseconds), "code {code}");
        assert_eq!(Syndrome(0x20 | code).kind(), SyndromeKind::RnrNak(timer));
        let text = format!("{}", Syndrome(0x20 | code).kind());
        assert_eq!(text, format!("RNR NAK, wait {milliseconds} ms"));
        // The same code for exactly its time, and the next longer one for slightly more.
        assert_eq!(RnrTimer::at_least(timer.duration()), timer);
        let longer = if code == 0 { 0 } else { (code + 1) % 32 };
        let more = timer.duration() + Duration::from_nanos(1);
        assert_eq!(RnrTimer::at_least(more).code(), longer);
    }
    assert_eq!(RnrTimer::at_least(Duration::ZERO).code(), 1);
    assert_eq!(RnrTimer::from_code(32), None);
}

fn duration(milliseconds: &str) -> Duration {
    let (whole, hundredths) = milliseconds.split_once('.').expect("two decimals");
    let number = |digits: &str| digits.parse::<u64>().expect("digits");
    Duration::from_micros(number(whole) * 1000 + number(hundredths) * 10)
}

#[test]
fn nak_codes_match_the_table() {
    for (code, nak, name) in NAK_CODES {
        assert_eq!(NakCode::from_code(code), Some(nak));
        assert_eq!((nak.code(), nak.name()), (code, name));
        assert_eq!(Syndrome(0x60 | code).kind(), SyndromeKind::Nak(nak));
    }
    assert!((5..=u8::MAX).all(|code| NakCode::from_code(code).is_none()));
    assert_eq!(NakCode::ALL, NAK_CODES.map(|(_, nak, _)| nak));
}

/// IBA table 43: bit 7 is reserved, bits 6 and 5 are ACK (00), RNR NAK (01), reserved (10) or NAK (11).
#[test]
fn all_256_syndromes_are_decoded() {
    for byte in 0..=u8::MAX {
        let syndrome = Syndrome(byte);
        let kind = syndrome.kind();
        let known = match byte {
            0x00..=0x1f => matches!(kind, SyndromeKind::Ack(_)),
            0x20..=0x3f => matches!(kind, SyndromeKind::RnrNak(_)),
            0x60..=0x64 => matches!(kind, SyndromeKind::Nak(_)),
            _ => false,
        };
        assert_eq!(known, kind != SyndromeKind::Reserved, "{byte:#04x}: {kind}");
        assert_eq!(syndrome.is_ack(), byte < 0x20);
        if known {
            assert_eq!(Syndrome::from(kind), syndrome);
        }
    }
    assert_eq!(Syndrome::from(SyndromeKind::Reserved).kind(), SyndromeKind::Reserved);
}
