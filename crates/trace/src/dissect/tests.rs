//! Compares trees of captured frames with files in `golden/`, and checks that trees of built and damaged frames cover
//! every byte without a panic.

mod frames;

use std::fs::File;
use std::path::{Path, PathBuf};

use super::*;
use crate::file::CaptureReader;

fn captures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/rxe")
}

/// A frame of a capture in the repository.
fn captured(file: &str, number: u64) -> Vec<u8> {
    let file = File::open(captures().join(file)).unwrap();
    let mut reader = CaptureReader::new(file).unwrap();
    loop {
        let record = reader.next_record().unwrap().unwrap();
        if record.number == number {
            return record.data.to_vec();
        }
    }
}

/// A tree as text.
fn rendered(tree: &Tree<'_>) -> String {
    let mut text = format!("{}\n", tree.summary);
    for layer in &tree.layers {
        let (first, end) = (layer.offset, layer.offset + layer.length);
        text += &format!("{} {first}..{end}: {}\n", layer.name, layer.summary);
        for field in layer.fields.iter().filter(|field| !field.hidden) {
            let bit = if field.is_bits() { format!(".{}", field.bit) } else { String::new() };
            let line = format!(
                "  {}{bit} {} = {}  {}",
                field.offset, field.name, field.value, field.meaning
            );
            text += line.trim_end();
            text.push('\n');
        }
    }
    for problem in &tree.problems {
        text += &format!("! {} {}\n", problem.offset, problem.message);
    }
    text
}

/// Checks that the layers cover the frame without gap or overlap, and that each field is within its layer.
fn check_cover(tree: &Tree<'_>, len: usize) {
    let mut at = 0;
    for layer in &tree.layers {
        assert_eq!(layer.offset, at, "{}", rendered(tree));
        assert!(layer.length > 0, "{}", rendered(tree));
        at += layer.length;
        assert!(layer.data.is_none_or(|data| data.len() == layer.length));
        for field in &layer.fields {
            assert!(field.offset >= layer.offset && field.offset + field.bytes.len() <= at);
            assert_eq!(field.bytes.len(), (field.bit + field.width).div_ceil(8), "{}", field.name);
            assert_eq!(field.bits().flatten().count(), field.width);
        }
    }
    assert_eq!(at, len, "{}", rendered(tree));
}

fn check_golden(file: &str, number: u64, expected: &str) {
    let frame = captured(file, number);
    let tree = dissect(LinkType::ETHERNET, &frame, frame.len());
    let found = rendered(&tree);
    assert_eq!(found, expected, "\nfound:\n{found}");
}

#[test]
fn dissects_a_write() {
    check_golden("write_64_mtu1024.pcap", 1, include_str!("golden/write.txt"));
}

#[test]
fn dissects_a_nak() {
    check_golden("bad_rkey_write.pcap", 4, include_str!("golden/nak.txt"));
}

#[test]
fn dissects_an_atomic() {
    check_golden("atomic.pcap", 3, include_str!("golden/compare_swap.txt"));
}

#[test]
fn dissects_a_padded_payload_over_ipv6() {
    check_golden("sizes_v6.pcap", 9, include_str!("golden/pad.txt"));
}

#[test]
fn dissects_a_connection_request() {
    check_golden("rping.pcap", 1, include_str!("golden/cm_req.txt"));
}

#[test]
fn dissects_a_rejection() {
    check_golden("cm_reject.pcap", 2, include_str!("golden/cm_rej.txt"));
}

#[test]
fn all_captured_frames_are_valid() {
    let mut frames = 0;
    for entry in std::fs::read_dir(captures()).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "pcap") {
            continue;
        }
        let mut reader = CaptureReader::new(File::open(&path).unwrap()).unwrap();
        while let Some(record) = reader.next_record().unwrap() {
            let tree = dissect(record.link, record.data, record.original_len as usize);
            let position = format!("{}, frame {}", path.display(), record.number);
            assert_eq!(tree.problems, [], "{position}");
            let icrc = tree.layer("ICRC").and_then(|layer| layer.field("icrc")).unwrap();
            assert_eq!(icrc.verdict, Some(Verdict::Correct), "{position}");
            check_cover(&tree, record.data.len());
            frames += 1;
        }
    }
    assert!(frames > 1000);
}

/// Frames that together have all kinds of headers.
fn assorted() -> Vec<Vec<u8>> {
    [
        ("write_64_mtu1024.pcap", 1),
        ("bad_rkey_write.pcap", 4),
        ("atomic.pcap", 3),
        ("atomic.pcap", 4),
        ("sizes_v6.pcap", 9),
        ("imm.pcap", 1),
        ("invalidate.pcap", 5),
        ("ud_imm.pcap", 1),
        ("rping.pcap", 1),
        ("rping.pcap", 2),
        ("cm_reject.pcap", 2),
        ("udaddy.pcap", 1),
        ("udaddy.pcap", 2),
    ]
    .into_iter()
    .map(|(file, number)| captured(file, number))
    .chain([frames::set_up()])
    .collect()
}

#[test]
fn a_truncated_frame_is_shown_up_to_its_end() {
    for frame in assorted() {
        for kept in 0..frame.len() {
            // Truncated by the capture, and by the sender.
            for len in [frame.len(), kept] {
                let tree = dissect(LinkType::ETHERNET, &frame[..kept], len);
                assert!(!tree.problems.is_empty(), "{kept} of {len}: {}", rendered(&tree));
                assert!(tree.problems.iter().all(|problem| problem.offset <= kept));
                check_cover(&tree, kept);
            }
        }
    }
}

#[test]
fn a_flipped_bit_never_panics() {
    for mut frame in assorted() {
        for bit in 0..frame.len() * 8 {
            frame[bit / 8] ^= 1 << (bit % 8);
            let tree = dissect(LinkType::ETHERNET, &frame, frame.len());
            check_cover(&tree, frame.len());
            frame[bit / 8] ^= 1 << (bit % 8);
        }
    }
}

#[test]
fn no_link_type_panics_on_any_bytes() {
    let links = [0, 1, 12, 14, 101, 108, 113, 147, 197, 228, 229, 247, 276].map(LinkType);
    let frames = assorted();
    for link in links {
        for frame in &frames {
            check_cover(&dissect(link, frame, frame.len()), frame.len());
            // Every suffix of a frame, so that no link type reads past a short one.
            for start in 0..frame.len().min(80) {
                check_cover(&dissect(link, &frame[start..], frame.len()), frame.len() - start);
            }
        }
    }
}

proptest::proptest! {
    #[test]
    fn random_bytes_never_panic(
        bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..200),
        link in proptest::sample::select(vec![0u16, 1, 101, 108, 113, 197, 228, 229, 247, 276]),
        len in 0usize..300,
    ) {
        check_cover(&dissect(LinkType(link), &bytes, len), bytes.len());
    }
}
