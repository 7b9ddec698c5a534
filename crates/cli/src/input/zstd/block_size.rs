//! The size of a Zstandard block before it is decompressed (RFC 8878, 3.1.1.3).
//!
//! The decoder does not limit how much a compressed block expands to: 128 KiB of sequences can repeat 8 GiB. This module
//! decodes the lengths of the sequences, without executing them, and refuses blocks that exceed the format's limit.

/// The largest block after decompression (RFC 8878, 3.1.1.2.4).
pub(super) const MAX_BLOCK_SIZE: u64 = 128 << 10;

/// The largest accuracy of the tables of literals lengths, offsets and match lengths (RFC 8878, 3.1.1.3.2.1).
const MAX_ACCURACY: [u32; 3] = [9, 8, 9];

/// The largest codes of literals lengths, offsets and match lengths.
const MAX_CODE: [u8; 3] = [35, 31, 52];

/// Default distributions of literals lengths, offsets and match lengths (RFC 8878, 3.1.1.3.2.2).
const DEFAULT_ACCURACY: [u32; 3] = [6, 5, 6];
const LITERALS_DEFAULT: [i16; 36] = [
    4, 3, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2, 2, 3, 2, 1, 1, 1, 1, 1,
    -1, -1, -1, -1,
];
const OFFSET_DEFAULT: [i16; 29] =
    [1, 1, 1, 1, 1, 1, 2, 2, 2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, -1, -1, -1, -1, -1];
const MATCH_DEFAULT: [i16; 53] = [
    1, 4, 3, 2, 2, 2, 2, 2, 2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
    1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, -1, -1, -1, -1, -1, -1, -1,
];

/// Base and extra bits of the literals length codes from 16 on (RFC 8878, 3.1.1.3.2.1.1).
const LITERALS_CODES: [(u64, u32); 20] = [
    (16, 1),
    (18, 1),
    (20, 1),
    (22, 1),
    (24, 2),
    (28, 2),
    (32, 3),
    (40, 3),
    (48, 4),
    (64, 6),
    (128, 7),
    (256, 8),
    (512, 9),
    (1024, 10),
    (2048, 11),
    (4096, 12),
    (8192, 13),
    (16_384, 14),
    (32_768, 15),
    (65_536, 16),
];

/// Base and extra bits of the match length codes from 32 on.
const MATCH_CODES: [(u64, u32); 21] = [
    (35, 1),
    (37, 1),
    (39, 1),
    (41, 1),
    (43, 2),
    (47, 2),
    (51, 3),
    (59, 3),
    (67, 4),
    (83, 4),
    (99, 5),
    (131, 7),
    (259, 8),
    (515, 9),
    (1027, 10),
    (2051, 11),
    (4099, 12),
    (8195, 13),
    (16_387, 14),
    (32_771, 15),
    (65_539, 16),
];

/// The kinds of tables, in the order of the file.
const LITERALS: usize = 0;
const OFFSET: usize = 1;
const MATCH: usize = 2;

/// One state of an FSE table: its symbol, and how the next state is read.
#[derive(Clone, Copy, Debug, Default)]
struct Cell {
    symbol: u8,
    bits: u32,
    base: u32,
}

/// An FSE decoding table of `1 << accuracy` states.
#[derive(Clone, Debug)]
struct Table {
    accuracy: u32,
    cells: Vec<Cell>,
}

/// Checks the blocks of a frame. Tables can be repeated from block to block.
#[derive(Debug, Default)]
pub(super) struct BlockSizes {
    tables: [Option<Table>; 3],
}

impl BlockSizes {
    /// Checks that the content of a compressed block is well-formed and expands to no more than the format allows.
    pub(super) fn check(&mut self, content: &[u8]) -> Result<(), &'static str> {
        match self.size(content) {
            Some(..=MAX_BLOCK_SIZE) => Ok(()),
            Some(_) => Err("a block expands to more than 128 KiB"),
            None => Err("a block is malformed"),
        }
    }

    /// The decompressed size, or any size above the limit; `None` if the content is malformed.
    fn size(&mut self, content: &[u8]) -> Option<u64> {
        let (literals, header_len, stored_len) = literals_section(content)?;
        let rest = content.get(header_len + stored_len..)?;
        let (count, mut rest) = sequence_count(rest)?;
        if count == 0 {
            return Some(literals);
        }
        let (&modes, after) = rest.split_first()?;
        rest = after;
        for kind in [LITERALS, OFFSET, MATCH] {
            rest = self.table(kind, modes >> (6 - 2 * kind) & 3, rest)?;
        }
        let [Some(literals_table), Some(offset_table), Some(match_table)] = &self.tables else {
            return None;
        };
        let mut bits = ReverseBits::new(rest)?;
        let mut literals_state = bits.take(literals_table.accuracy)?;
        let mut offset_state = bits.take(offset_table.accuracy)?;
        let mut match_state = bits.take(match_table.accuracy)?;
        let mut size = literals;
        for left in (0..count).rev() {
            let cell = |table: &Table, state: u64| table.cells.get(state as usize).copied();
            let literal = cell(literals_table, literals_state)?;
            let offset = cell(offset_table, offset_state)?;
            let matched = cell(match_table, match_state)?;
            // RFC 8878, 3.1.1.3.2.1.2: offset, match length and literals length, each with its extra bits.
            bits.take(u32::from(offset.symbol))?;
            size += match matched.symbol {
                code @ 0..=31 => u64::from(code) + 3,
                code => {
                    let (base, extra) = *MATCH_CODES.get(usize::from(code) - 32)?;
                    base + bits.take(extra)?
                }
            };
            // All literals are counted already.
            if let Some(code) = literal.symbol.checked_sub(16) {
                bits.take(LITERALS_CODES.get(usize::from(code))?.1)?;
            }
            if size > MAX_BLOCK_SIZE {
                return Some(size);
            }
            if left > 0 {
                literals_state = u64::from(literal.base) + bits.take(literal.bits)?;
                match_state = u64::from(matched.base) + bits.take(matched.bits)?;
                offset_state = u64::from(offset.base) + bits.take(offset.bits)?;
            }
        }
        Some(size)
    }

    /// Reads the table of one kind, and returns what follows it.
    fn table<'a>(&mut self, kind: usize, mode: u8, rest: &'a [u8]) -> Option<&'a [u8]> {
        match mode {
            0 => {
                let default: &[i16] = match kind {
                    LITERALS => &LITERALS_DEFAULT,
                    OFFSET => &OFFSET_DEFAULT,
                    _ => &MATCH_DEFAULT,
                };
                self.tables[kind] = Some(Table::new(DEFAULT_ACCURACY[kind], default)?);
                Some(rest)
            }
            // RLE: one symbol.
            1 => {
                let (&symbol, rest) = rest.split_first()?;
                if symbol > MAX_CODE[kind] {
                    return None;
                }
                let cells = vec![Cell { symbol, bits: 0, base: 0 }];
                self.tables[kind] = Some(Table { accuracy: 0, cells });
                Some(rest)
            }
            2 => {
                let (table, len) = Table::read(rest, MAX_ACCURACY[kind], MAX_CODE[kind])?;
                self.tables[kind] = Some(table);
                rest.get(len..)
            }
            // The table of the block before.
            _ => self.tables[kind].is_some().then_some(rest),
        }
    }
}

impl Table {
    /// Builds the table of a distribution (RFC 8878, 4.1.1); -1 stands for "less than one".
    fn new(accuracy: u32, distribution: &[i16]) -> Option<Self> {
        let size = 1usize << accuracy;
        let mut cells = vec![Cell::default(); size];
        let mut high = size;
        for (symbol, _) in distribution.iter().enumerate().filter(|(_, count)| **count == -1) {
            high = high.checked_sub(1)?;
            cells[high].symbol = symbol as u8;
        }
        let step = (size >> 1) + (size >> 3) + 3;
        let mut position = 0;
        for (symbol, &count) in distribution.iter().enumerate() {
            for _ in 0..count.max(0) {
                cells[position].symbol = symbol as u8;
                loop {
                    position = (position + step) & (size - 1);
                    if position < high {
                        break;
                    }
                    if high == 0 {
                        return None;
                    }
                }
            }
        }
        // Each state of a symbol reads as many bits as lead to `size` next states in all.
        let mut next: Vec<u32> =
            distribution.iter().map(|&count| u32::from(count.unsigned_abs())).collect();
        for cell in &mut cells {
            let state = next.get_mut(usize::from(cell.symbol))?;
            cell.bits = accuracy.checked_sub(state.checked_ilog2()?)?;
            cell.base = (*state << cell.bits).checked_sub(size as u32)?;
            *state += 1;
        }
        Some(Self { accuracy, cells })
    }

    /// Reads the description of a table (RFC 8878, 4.1.1), and returns its length.
    fn read(bytes: &[u8], max_accuracy: u32, max_code: u8) -> Option<(Self, usize)> {
        let mut bits = ForwardBits { bytes, position: 0 };
        let accuracy = bits.take(4)? + 5;
        if accuracy > max_accuracy {
            return None;
        }
        let mut remaining = (1i32 << accuracy) + 1;
        let mut distribution: Vec<i16> = Vec::new();
        while remaining > 1 {
            if distribution.len() > usize::from(max_code) {
                return None;
            }
            // A value from 0 to `remaining`: the lower ones take one bit less.
            let width = 32 - remaining.leading_zeros();
            let short = (1i32 << width) - 1 - remaining;
            let low = bits.take(width - 1)? as i32;
            let value = if low < short {
                low
            } else {
                let value = low | (bits.take(1)? as i32) << (width - 1);
                if value >= 1 << (width - 1) { value - short } else { value }
            };
            let count = value - 1;
            remaining -= count.abs();
            distribution.push(count as i16);
            if count == 0 {
                loop {
                    let zeros = bits.take(2)?;
                    distribution.extend(std::iter::repeat_n(0, zeros as usize));
                    if zeros < 3 {
                        break;
                    }
                }
            }
        }
        if remaining != 1 || distribution.len() > usize::from(max_code) + 1 {
            return None;
        }
        Some((Self::new(accuracy, &distribution)?, bits.position.div_ceil(8)))
    }
}

/// The regenerated size of the literals, the length of their header, and their stored length (RFC 8878, 3.1.1.3.1.1).
fn literals_section(content: &[u8]) -> Option<(u64, usize, usize)> {
    let first = *content.first()?;
    let byte = |at: usize| content.get(at).map(|&byte| usize::from(byte));
    let (kind, format) = (first & 3, first >> 2 & 3);
    if kind < 2 {
        let (header, size) = match format {
            0 | 2 => (1, usize::from(first >> 3)),
            1 => (2, usize::from(first >> 4) | byte(1)? << 4),
            _ => (3, usize::from(first >> 4) | byte(1)? << 4 | byte(2)? << 12),
        };
        let stored = if kind == 0 { size } else { 1 };
        return Some((size as u64, header, stored));
    }
    let (header, width) = match format {
        0 | 1 => (3, 10),
        2 => (4, 14),
        _ => (5, 18),
    };
    let mut value = 0u64;
    for at in 0..header {
        value |= (byte(at)? as u64) << (8 * at);
    }
    let mask = (1 << width) - 1;
    Some((value >> 4 & mask, header, (value >> (4 + width) & mask) as usize))
}

/// The number of sequences, and what follows it (RFC 8878, 3.1.1.3.2.1).
fn sequence_count(bytes: &[u8]) -> Option<(usize, &[u8])> {
    Some(match *bytes {
        [first @ ..=127, ..] => (usize::from(first), &bytes[1..]),
        [first @ 128..=254, second, ..] => {
            (usize::from(first - 128) << 8 | usize::from(second), &bytes[2..])
        }
        [255, low, high, ..] => {
            (usize::from(u16::from_le_bytes([low, high])) + 0x7f00, &bytes[3..])
        }
        _ => return None,
    })
}

/// Bits from the first byte on, the lowest first.
struct ForwardBits<'a> {
    bytes: &'a [u8],
    position: usize,
}

impl ForwardBits<'_> {
    fn take(&mut self, count: u32) -> Option<u32> {
        let mut value = 0;
        for at in 0..count {
            let byte = self.bytes.get(self.position / 8)?;
            value |= u32::from(byte >> (self.position % 8) & 1) << at;
            self.position += 1;
        }
        Some(value)
    }
}

/// Bits from the last byte back, the highest first (RFC 8878, 4.1).
struct ReverseBits<'a> {
    bytes: &'a [u8],
    /// Bits not yet taken.
    left: usize,
}

impl<'a> ReverseBits<'a> {
    /// The highest set bit of the last byte ends the stream.
    fn new(bytes: &'a [u8]) -> Option<Self> {
        let top = bytes.last()?.checked_ilog2()?;
        Some(Self { bytes, left: (bytes.len() - 1) * 8 + top as usize })
    }

    fn take(&mut self, count: u32) -> Option<u64> {
        let start = self.left.checked_sub(count as usize)?;
        let mut value = 0;
        // Up to 31 bits: at most five bytes.
        let (first, last) = (start / 8, self.left.div_ceil(8));
        for (at, &byte) in self.bytes.get(first..last)?.iter().enumerate() {
            value |= u64::from(byte) << (8 * at);
        }
        self.left = start;
        Some(value >> (start % 8) & ((1 << count) - 1))
    }
}
