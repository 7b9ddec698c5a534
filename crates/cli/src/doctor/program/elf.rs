//! A reader for the parts of an ELF file that decide which libraries a program loads.
//!
//! Written here and not taken from a crate: it needs five structures of a stable format, and every access is a checked
//! read from a bounded prefix of the file, so a damaged or hostile file yields `None` or an empty list.

/// The ELF machine and word size of this build.
#[cfg(target_arch = "x86_64")]
pub(in crate::doctor) const NATIVE: (u16, bool) = (62, true);
#[cfg(target_arch = "aarch64")]
pub(in crate::doctor) const NATIVE: (u16, bool) = (183, true);
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
pub(in crate::doctor) const NATIVE: (u16, bool) = (0, true);

/// What an ELF file says about itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::doctor) struct Elf {
    pub(in crate::doctor) machine: u16,
    pub(in crate::doctor) is_64: bool,
    /// The dynamic linker (PT_INTERP); a library has none, nor has a statically linked program.
    pub(in crate::doctor) interpreter: Option<String>,
    /// Whether it has a dynamic section.
    pub(in crate::doctor) is_dynamic: bool,
    pub(in crate::doctor) needed: Vec<String>,
    pub(in crate::doctor) rpath: Option<String>,
    pub(in crate::doctor) runpath: Option<String>,
    /// Whether it defines functions of libibverbs or librdmacm.
    pub(in crate::doctor) defines_verbs: bool,
}

/// Entries of a table that are looked at.
const MAX_ENTRIES: usize = 1 << 16;

const PT_LOAD: u64 = 1;
const PT_DYNAMIC: u64 = 2;
const PT_INTERP: u64 = 3;
const DT_NEEDED: u64 = 1;
const DT_STRTAB: u64 = 5;
const DT_RPATH: u64 = 15;
const DT_RUNPATH: u64 = 29;
const SHT_DYNSYM: u64 = 11;

struct Reader<'a> {
    bytes: &'a [u8],
    is_64: bool,
    big: bool,
}

impl Reader<'_> {
    /// An integer of `width` bytes.
    fn number(&self, at: u64, width: usize) -> Option<u64> {
        let at = usize::try_from(at).ok()?;
        let bytes = self.bytes.get(at..at.checked_add(width)?)?;
        let shift = |value: u64, byte: &u8| value << 8 | u64::from(*byte);
        Some(match self.big {
            true => bytes.iter().fold(0, shift),
            false => bytes.iter().rev().fold(0, shift),
        })
    }

    /// An address or offset.
    fn word(&self, at: u64) -> Option<u64> {
        self.number(at, if self.is_64 { 8 } else { 4 })
    }

    /// A text that a zero byte ends.
    fn text(&self, at: u64) -> Option<String> {
        let rest = self.bytes.get(usize::try_from(at).ok()?..)?;
        let text = rest.split(|byte| *byte == 0).next()?;
        Some(String::from_utf8_lossy(text.get(..text.len().min(4096))?).into_owned())
    }

    /// The value for a 64-bit file, or that for a 32-bit file.
    fn by_size<T>(&self, wide: T, narrow: T) -> T {
        if self.is_64 { wide } else { narrow }
    }
}

struct Segment {
    kind: u64,
    offset: u64,
    address: u64,
    length: u64,
}

impl Elf {
    /// Reads a file; `None` if it is not an ELF file.
    pub(in crate::doctor) fn parse(bytes: &[u8]) -> Option<Self> {
        let [0x7f, b'E', b'L', b'F', class, data, ..] = *bytes else { return None };
        let file = Reader { bytes, is_64: class == 2, big: data == 2 };
        let mut elf =
            Self { machine: file.number(18, 2)? as u16, is_64: file.is_64, ..Self::default() };
        let segments = segments(&file);
        let find = |kind| segments.iter().find(|segment| segment.kind == kind);
        elf.interpreter = find(PT_INTERP).and_then(|segment| file.text(segment.offset));
        if let Some(dynamic) = find(PT_DYNAMIC) {
            elf.is_dynamic = true;
            elf.dynamic(&file, &segments, dynamic);
        }
        elf.defines_verbs = defines_verbs(&file).unwrap_or(false);
        Some(elf)
    }

    fn dynamic(&mut self, file: &Reader<'_>, segments: &[Segment], dynamic: &Segment) {
        let size = file.by_size(16, 8);
        let count = (dynamic.length / size).min(MAX_ENTRIES as u64);
        let entry = |index: u64| {
            let at = dynamic.offset.checked_add(index * size)?;
            Some((file.word(at)?, file.word(at + size / 2)?))
        };
        let entries: Vec<_> =
            (0..count).map_while(entry).take_while(|(tag, _)| *tag != 0).collect();
        let strings = entries.iter().find(|(tag, _)| *tag == DT_STRTAB).map(|(_, value)| *value);
        let Some(strings) = strings.and_then(|address| file_offset(segments, address)) else {
            return;
        };
        for (tag, value) in entries {
            let text = || file.text(strings.checked_add(value)?);
            match tag {
                DT_NEEDED => self.needed.extend(text()),
                DT_RPATH => self.rpath = text(),
                DT_RUNPATH => self.runpath = text(),
                _ => {}
            }
        }
    }

    /// Whether Ferroce's libraries can be loaded into it.
    pub(in crate::doctor) fn is_native(&self) -> bool {
        (self.machine, self.is_64) == NATIVE
    }

    /// The architecture, in words.
    pub(in crate::doctor) fn architecture(&self) -> String {
        let name = match self.machine {
            3 => "x86 (32 bits)",
            40 => "Arm (32 bits)",
            62 if self.is_64 => "x86-64",
            62 => "x32",
            183 => "AArch64",
            243 => "RISC-V",
            21 => "PowerPC (64 bits)",
            22 => "s390x",
            other => return format!("ELF machine {other}"),
        };
        name.to_owned()
    }
}

fn segments(file: &Reader<'_>) -> Vec<Segment> {
    let (table, size, count) = file.by_size((32, 54, 56), (28, 42, 44));
    let (Some(table), Some(size), Some(count)) =
        (file.word(table), file.number(size, 2), file.number(count, 2))
    else {
        return Vec::new();
    };
    let segment = |index: u64| {
        let at = table.checked_add(index.checked_mul(size)?)?;
        let (offset, address, length) = file.by_size((8, 16, 32), (4, 8, 16));
        Some(Segment {
            kind: file.number(at, 4)?,
            offset: file.word(at.checked_add(offset)?)?,
            address: file.word(at.checked_add(address)?)?,
            length: file.word(at.checked_add(length)?)?,
        })
    };
    (0..count).map_while(segment).collect()
}

/// Where in the file a virtual address is.
fn file_offset(segments: &[Segment], address: u64) -> Option<u64> {
    let loaded = segments.iter().filter(|segment| segment.kind == PT_LOAD);
    loaded
        .filter_map(|segment| {
            let within = address.checked_sub(segment.address)?;
            (within < segment.length).then(|| segment.offset.checked_add(within))?
        })
        .next()
}

/// Looks through the dynamic symbols for one that programs call first.
fn defines_verbs(file: &Reader<'_>) -> Option<bool> {
    const NAMES: [&str; 4] =
        ["ibv_get_device_list", "ibv_open_device", "rdma_create_event_channel", "rdma_create_id"];
    let (table, size, count) = file.by_size((40, 58, 60), (32, 46, 48));
    let (table, size, count) = (file.word(table)?, file.number(size, 2)?, file.number(count, 2)?);
    let section = |index: u64| table.checked_add(index.checked_mul(size)?);
    let (offset_at, length_at, link_at) = file.by_size((24, 32, 40), (16, 20, 24));
    for index in 0..count {
        let at = section(index)?;
        if file.number(at + 4, 4)? != SHT_DYNSYM {
            continue;
        }
        let (offset, length) = (file.word(at + offset_at)?, file.word(at + length_at)?);
        let strings = section(file.number(at + link_at, 4)?)?;
        let strings = file.word(strings.checked_add(offset_at)?)?;
        let (entry, section_at) = file.by_size((24, 6), (16, 14));
        for symbol in 0..(length / entry).min(MAX_ENTRIES as u64) {
            let at = offset.checked_add(symbol * entry)?;
            // Section 0: the symbol is used here and defined elsewhere.
            if file.number(at.checked_add(section_at)?, 2)? == 0 {
                continue;
            }
            let name = file.text(strings.checked_add(file.number(at, 4)?)?)?;
            if NAMES.contains(&name.as_str()) {
                return Some(true);
            }
        }
    }
    Some(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_test_is_a_native_dynamic_program() {
        let bytes = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let elf = Elf::parse(&bytes).unwrap();
        assert!(elf.is_native() && elf.is_dynamic && elf.interpreter.is_some(), "{elf:?}");
        assert!(elf.needed.iter().any(|name| name.starts_with("libc.so")), "{elf:?}");
        assert!(!elf.defines_verbs);
    }

    #[test]
    fn damaged_files_are_read_as_far_as_possible() {
        let whole = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        assert_eq!(Elf::parse(b"#!/bin/sh\n"), None);
        for length in (0..4096).step_by(7) {
            let _ = Elf::parse(&whole[..length.min(whole.len())]);
        }
        // Offsets and counts that point anywhere.
        let mut bytes = whole[..4096].to_vec();
        for at in 16..64 {
            let kept = bytes[at];
            for value in [0, 0x7f, 0xff] {
                bytes[at] = value;
                let _ = Elf::parse(&bytes);
            }
            bytes[at] = kept;
        }
    }
}
