//! Valid, truncated, damaged and hostile compressed data.

use std::io::{Cursor, Write};

use flate2::Compression;
use flate2::write::GzEncoder;
use ruzstd::encoding::{CompressionLevel, compress_to_vec};

use super::*;

/// Data of several blocks, compressible in part.
fn sample() -> Vec<u8> {
    let mut random = Random(1);
    let noise = (0..50_000).map(|_| random.next() as u8);
    let text = b"PSN 0x001000 ".iter().copied().cycle().take(400_000);
    noise.chain(text).collect()
}

fn gzip(data: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(data).unwrap();
    encoder.finish().unwrap()
}

fn zstd(data: &[u8]) -> Vec<u8> {
    compress_to_vec(data, CompressionLevel::Fastest)
}

/// xorshift64: tests need reproducible noise, not good randomness.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

/// Returns what can be read, and the error after it. Stops at 16 MiB.
fn read(input: &[u8]) -> (Vec<u8>, Option<io::Error>) {
    let mut reader =
        Decompressed::new(Cursor::new(input), DecompressionLimit::default()).take(16 << 20);
    let mut found = Vec::new();
    let error = reader.read_to_end(&mut found).err();
    (found, error)
}

fn damage(input: &[u8]) -> (Vec<u8>, Damage) {
    let (found, error) = read(input);
    let error = error.expect("an error");
    let damage = error.get_ref().and_then(|inner| inner.downcast_ref::<Damage>());
    (found, damage.unwrap_or_else(|| panic!("not damage: {error:?}")).clone())
}

/// A small file that expands to more than is allowed delivers what is allowed.
#[test]
fn an_expansion_beyond_the_limit_is_an_error() {
    let data = vec![0; 4 << 20];
    for (name, input) in [("gzip", gzip(&data)), ("zstd", zstd(&data))] {
        for (limit, complete) in [(1 << 20, false), (data.len() as u64 - 1, false), (4 << 20, true)]
        {
            let limit = DecompressionLimit::of(limit);
            let mut found = Vec::new();
            let read = Decompressed::new(Cursor::new(&input), limit).read_to_end(&mut found);
            assert_eq!(read.is_ok(), complete, "{name}");
            assert!(found.len() <= data.len());
            if let Err(error) = read {
                let said = error.to_string();
                assert!(said.contains(name) && said.contains("--max-decompressed"), "{said}");
            }
        }
    }
    // Without the option, a file of 1 MB may not expand to a gigabyte, and one of 100 MB may.
    let limit = DecompressionLimit::default();
    assert_eq!((limit.after(1 << 20), limit.after(100 << 20)), (256 << 20, 6400 << 20));
}

#[test]
fn formats_are_recognised() {
    let data = sample();
    for input in [data.clone(), gzip(&data), zstd(&data)] {
        let (found, error) = read(&input);
        assert!(error.is_none(), "{error:?}");
        assert!(found == data);
    }
    for short in [&b""[..], b"\x1f", b"\x28\xb5\x2f", b"abc"] {
        assert_eq!(read(short).0, short);
    }
}

#[test]
fn members_and_frames_follow_each_other() {
    let data = sample();
    let twice = [data.clone(), data.clone()].concat();
    assert!(read(&[gzip(&data), gzip(&data)].concat()).0 == twice);
    // A skippable frame of 3 bytes, before and between frames.
    let skipped = [0x53, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 1, 2, 3].to_vec();
    let frames = [skipped.clone(), zstd(&data), skipped.clone(), zstd(&data)].concat();
    let (found, error) = read(&frames);
    assert!(error.is_none() && found == twice, "{error:?}");
    let (found, damage) = damage(&[zstd(&data), b"garbage".to_vec()].concat());
    assert!(found == data && matches!(damage.problem, DamageKind::Corrupt(_)), "{damage}");
}

#[test]
fn everything_before_the_end_is_delivered() {
    let data = sample();
    for (format, whole) in [("gzip", gzip(&data)), ("zstd", zstd(&data))] {
        for cut in (4..whole.len()).step_by(whole.len() / 200) {
            let (found, damage) = damage(&whole[..cut]);
            assert_eq!((damage.format, damage.problem), (format, DamageKind::Truncated), "{cut}");
            assert!(data.starts_with(&found), "{format} cut at {cut}");
        }
        // Only the trailer is missing.
        let (found, _) = damage(&whole[..whole.len() - 1]);
        assert!(found == data, "{format}: {} of {}", found.len(), data.len());
    }
    // All blocks before the damaged one, although the decoder keeps its window.
    let whole = zstd(&data);
    let (found, _) = damage(&whole[..whole.len() - 6]);
    assert!(found.len() >= 128 << 10, "{}", found.len());
}

#[test]
fn a_failure_to_read_is_not_damage() {
    struct Failing<'a>(&'a [u8]);
    impl Read for Failing<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            match self.0.read(buffer)? {
                0 => Err(io::Error::from(ErrorKind::PermissionDenied)),
                count => Ok(count),
            }
        }
    }
    let data = sample();
    for whole in [gzip(&data), zstd(&data)] {
        let mut found = Vec::new();
        let half = &whole[..whole.len() / 2];
        let error = Decompressed::new(Failing(half), DecompressionLimit::default())
            .read_to_end(&mut found)
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::PermissionDenied);
        assert!(!crate::input::is_damage(&error));
    }
}

#[test]
fn a_large_window_is_refused_before_it_is_allocated() {
    // RFC 8878, 3.1.1.1.2: exponent 31, mantissa 7 is 3.75 TiB.
    let header = [&[0x28, 0xb5, 0x2f, 0xfd][..], &[0x00, 0xff]].concat();
    let (_, huge) = damage(&[&header[..], &[0x02, 0, 16, 0]].concat());
    assert_eq!(huge.problem, DamageKind::Window { size: 15 << 38 });
    // A single segment, whose window is the content: 1 GiB.
    let (_, content) = damage(&[0x28, 0xb5, 0x2f, 0xfd, 0xa0, 0, 0, 0, 0x40]);
    assert_eq!(content.problem, DamageKind::Window { size: 1 << 30 });
    assert!(content.to_string().contains("level 19"), "{content}");
}

#[test]
fn damaged_data_never_panics() {
    let data = &sample()[40_000..90_000];
    let mut random = Random(7);
    for whole in [gzip(data), zstd(data)] {
        for _ in 0..300 {
            let mut changed = whole.clone();
            for _ in 0..1 + random.next() % 4 {
                let at = random.next() as usize % changed.len();
                changed[at] = random.next() as u8;
            }
            changed.truncate(4 + random.next() as usize % changed.len());
            let (found, _) = read(&changed);
            assert!(found.len() <= 16 << 20);
        }
    }
    // Noise after a valid start.
    for magic in [&GZIP_MAGIC[..], &[0x28, 0xb5, 0x2f, 0xfd], &[0x50, 0x2a, 0x4d, 0x18]] {
        for _ in 0..300 {
            let noise = (0..random.next() % 4096).map(|_| random.next() as u8);
            let noise: Vec<u8> = magic.iter().copied().chain(noise).collect();
            read(&noise);
        }
    }
}

/// A frame with a window of 8 MiB: 16 bytes, and a block of `count` sequences without literals, whose matches all have this
/// length code. `bits` are their extra bits and the end of the bit stream.
fn repeating(count: u16, code: u8, bits: &[u8]) -> Vec<u8> {
    let block = |last: u32, kind: u32, content: &[u8]| {
        let header = last | kind << 1 | (content.len() as u32) << 3;
        [&header.to_le_bytes()[..3], content].concat()
    };
    let raw = block(0, 0, b"0123456789abcdef");
    // No literals; the count; RLE tables of literals length 0, offset code 0 and the match length code.
    let count_bytes = [128 + (count >> 8) as u8, count as u8];
    let sequences = [&[0][..], &count_bytes, &[0x54, 0, 0, code], bits].concat();
    [&[0x28, 0xb5, 0x2f, 0xfd, 0x00, 13 << 3][..], &raw, &block(1, 2, &sequences)].concat()
}

#[test]
fn a_block_that_expands_beyond_the_limit_is_refused() {
    // A match of 65,538 bytes is valid, and repeats the 4 bytes before it.
    let (found, error) = read(&repeating(1, 51, &[0xff, 0xff]));
    assert!(error.is_none(), "{error:?}");
    assert_eq!(found.len(), 16 + 65_538);
    assert!(found.ends_with(b"cdefcdefcd"));
    // Matches of 131,074 bytes, with all 16 extra bits set: 32,256 of them would be 4 GB.
    for count in [1, 200, 126 << 8] {
        let bits = [vec![0xff; 2 * usize::from(count)], vec![1]].concat();
        let (found, damage) = damage(&repeating(count, 52, &bits));
        assert_eq!(found, b"0123456789abcdef", "the block before it is delivered");
        let why = DamageKind::Corrupt("a block expands to more than 128 KiB".to_owned());
        assert_eq!(damage.problem, why);
    }
}

/// What the reference implementation compresses, with all of its table modes, is within the limit.
#[test]
fn blocks_of_every_level_are_accepted() {
    let mut random = Random(3);
    let mixed: Vec<u8> = (0..60_000u32)
        .flat_map(|at| match random.next() % 4 {
            0 => at.to_le_bytes().to_vec(),
            1 => b"RC RDMA WRITE Only".to_vec(),
            2 => vec![0; random.next() as usize % 300],
            _ => vec![random.next() as u8; 3],
        })
        .collect();
    for data in [sample(), mixed, vec![7; 1 << 20]] {
        assert!(read(&zstd(&data)).0 == data);
        for level in ["-1", "-3", "-9", "-19", "--fast=5"] {
            let Some(compressed) = by_program(level, &data) else { return };
            let (found, error) = read(&compressed);
            assert!(error.is_none() && found == data, "{level}: {error:?}");
        }
    }
}

/// What zstd(1) makes of the data. `None`, after a skip, if it is not installed.
fn by_program(level: &str, data: &[u8]) -> Option<Vec<u8>> {
    use std::process::{Command, Stdio};
    let child = Command::new("zstd")
        .args([level, "-q", "-c"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn();
    let Ok(mut child) = child else {
        ferroce_test_support::skip("zstd is not installed");
        return None;
    };
    let (mut input, data) = (child.stdin.take().unwrap(), data.to_vec());
    // Both pipes are used at the same time.
    let writer = std::thread::spawn(move || input.write_all(&data));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap().unwrap();
    Some(output.stdout)
}
