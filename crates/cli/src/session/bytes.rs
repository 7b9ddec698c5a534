//! Sizes on the command line, and test patterns.

use std::fmt;
use std::str::FromStr;

use ferroce::{Buffer, CopyError, MemoryRegion, OutOfBounds};

/// A number of bytes: `4096`, `64K`, `4M`, `1G`, in powers of 1024.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Size(pub(crate) u64);

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let digits = text.trim_end_matches(|letter: char| !letter.is_ascii_digit());
        let shift = match text[digits.len()..].to_ascii_uppercase().trim_end_matches("IB") {
            "" | "B" => 0,
            "K" => 10,
            "M" => 20,
            "G" => 30,
            _ => return Err("expected a number of bytes, such as 4096, 64K, 4M or 1G".to_owned()),
        };
        let number: u64 = digits.parse().map_err(|_| "not a number of bytes".to_owned())?;
        let bytes = number.checked_mul(1 << shift);
        bytes.filter(|bytes| *bytes > 0).map(Self).ok_or_else(|| "1 byte or more".to_owned())
    }
}

impl fmt::Display for Size {
    /// Formats it with the largest unit that divides it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [(30, " GiB"), (20, " MiB"), (10, " KiB")];
        let fits = |shift: &u32| self.0 > 0 && self.0 % (1 << shift) == 0;
        match units.iter().find(|(shift, _)| fits(shift)) {
            Some((shift, unit)) => write!(f, "{}{unit}", self.0 >> shift),
            None => f.write_str(&bytes(self.0)),
        }
    }
}

/// Formats a number of bytes without unit prefix: `1 byte`, `4096 bytes`.
pub(crate) fn bytes(count: u64) -> String {
    format!("{count} byte{}", if count == 1 { "" } else { "s" })
}

/// A test pattern that differs by position and by seed, so that missing, stale and misplaced bytes are detected.
///
/// Every 8 bytes are the hash of the seed and their index within a page; the first 8 of a page are its position
/// instead. So a filled page is moved to another position by changing 8 bytes, and filling keeps up with the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pattern {
    seed: u64,
}

const PAGE: usize = 4096;

impl Pattern {
    pub(crate) fn new(seed: u64) -> Self {
        Self { seed }
    }

    pub(crate) fn seed(self) -> u64 {
        self.seed
    }

    fn page(self) -> [u8; PAGE] {
        let mut page = [0; PAGE];
        for (number, word) in page.chunks_exact_mut(8).enumerate() {
            word.copy_from_slice(&mixed(self.seed ^ (number as u64) << 32).to_be_bytes());
        }
        page
    }

    fn stamp(self, place: u64) -> [u8; 8] {
        mixed(self.seed.wrapping_add(place)).to_be_bytes()
    }

    /// The bytes from a page on; `place` is the position of the first.
    pub(crate) fn fill(self, place: u64, out: &mut [u8]) {
        let page = self.page();
        for (number, part) in out.chunks_mut(PAGE).enumerate() {
            part.copy_from_slice(&page[..part.len()]);
            let stamp = self.stamp(place + (number * PAGE) as u64);
            let length = part.len().min(stamp.len());
            part[..length].copy_from_slice(&stamp[..length]);
        }
    }

    /// Fills a part of a region with the pattern at position `place`.
    pub(crate) fn write(
        self,
        region: &MemoryRegion,
        offset: usize,
        place: u64,
        length: usize,
    ) -> Result<(), CopyError> {
        self.write_with(place, length, |start, part| region.write(offset + start, part))
    }

    /// Fills a whole buffer.
    pub(crate) fn fill_buffer(self, buffer: &Buffer) -> Result<(), OutOfBounds> {
        self.write_with(0, buffer.len(), |start, part| buffer.write(start, part))
    }

    fn write_with<E>(
        self,
        place: u64,
        length: usize,
        write: impl Fn(usize, &[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut block = vec![0; BLOCK.min(length)];
        for start in (0..length).step_by(BLOCK) {
            let part = &mut block[..BLOCK.min(length - start)];
            self.fill(place + start as u64, part);
            write(start, part)?;
        }
        Ok(())
    }

    /// Moves a part filled by [`Pattern::write`] to another position.
    pub(crate) fn move_to(
        self,
        region: &MemoryRegion,
        offset: usize,
        place: u64,
        length: usize,
    ) -> Result<(), CopyError> {
        for start in (0..length).step_by(PAGE) {
            let stamp = self.stamp(place + start as u64);
            region.write(offset + start, &stamp[..stamp.len().min(length - start)])?;
        }
        Ok(())
    }

    /// The number of correct bytes of a region from `offset` on, where position and offset are the same; less than
    /// `length` if a byte is wrong.
    pub(crate) fn check(
        self,
        region: &MemoryRegion,
        offset: usize,
        length: usize,
    ) -> Result<usize, CopyError> {
        self.check_with(offset, length, |start, found| region.read(offset + start, found))
    }

    /// The number of correct bytes at the start of a buffer; less than `length` if a byte is wrong.
    pub(crate) fn check_buffer(self, buffer: &Buffer, length: usize) -> Result<usize, OutOfBounds> {
        self.check_with(0, length, |start, found| buffer.read(start, found))
    }

    fn check_with<E>(
        self,
        place: usize,
        length: usize,
        read: impl Fn(usize, &mut [u8]) -> Result<(), E>,
    ) -> Result<usize, E> {
        let (mut found, mut right) = (vec![0; BLOCK.min(length)], vec![0; BLOCK.min(length)]);
        for start in (0..length).step_by(BLOCK) {
            let size = BLOCK.min(length - start);
            read(start, &mut found[..size])?;
            self.fill((place + start) as u64, &mut right[..size]);
            if found[..size] != right[..size] {
                let wrong = found.iter().zip(&right).position(|(found, right)| found != right);
                return Ok(start + wrong.unwrap_or(0));
            }
        }
        Ok(length)
    }
}

/// The number of bytes generated or compared at a time.
const BLOCK: usize = 256 * PAGE;

/// Every bit of the result depends on every bit of the number (the finalizer of SplitMix64).
fn mixed(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_parsed_and_printed() {
        for (text, bytes) in [("1", 1), ("64k", 65_536), ("4MiB", 4 << 20), ("1G", 1 << 30)] {
            assert_eq!(text.parse(), Ok(Size(bytes)));
        }
        for text in ["", "0", "K", "1T", "-1", "1.5M", "99999999999G"] {
            assert!(text.parse::<Size>().is_err(), "{text}");
        }
        assert_eq!(Size(1 << 30).to_string(), "1 GiB");
        assert_eq!(Size(65_536).to_string(), "64 KiB");
        assert_eq!(Size(1001).to_string(), "1001 bytes");
        assert_eq!((Size(1).to_string(), Size(0).to_string()), ("1 byte".into(), "0 bytes".into()));
    }

    #[test]
    fn the_pattern_depends_on_the_offset_only() {
        let pattern = Pattern::new(7);
        let mut whole = vec![0; 5 * PAGE + 3];
        pattern.fill(0, &mut whole);
        let mut part = vec![0; 2 * PAGE + 3];
        pattern.fill(3 * PAGE as u64, &mut part);
        assert_eq!(part, whole[3 * PAGE..]);
        assert_ne!(whole[..8], whole[PAGE..PAGE + 8]);
    }

    #[test]
    fn a_wrong_byte_of_a_buffer_is_found() {
        let length = BLOCK + 5000;
        let buffer = Buffer::new(length).unwrap();
        let pattern = Pattern::new(7);
        pattern.fill_buffer(&buffer).unwrap();
        assert_eq!(pattern.check_buffer(&buffer, length), Ok(length));
        assert!(Pattern::new(8).check_buffer(&buffer, length).unwrap() < 8);
        buffer.write(BLOCK + 4999, &[buffer.to_vec()[BLOCK + 4999] ^ 1]).unwrap();
        assert_eq!(pattern.check_buffer(&buffer, length), Ok(BLOCK + 4999));
        assert!(pattern.check_buffer(&buffer, length + 1).is_err());
    }
}
