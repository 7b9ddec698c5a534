//! Search for the packet length in a record.

use ferroce_wire::opcode::Position;
use ferroce_wire::packet::{ICRC_LEN, MAX_PAYLOAD};
use ferroce_wire::transport::Bth;

use super::PATH_MTUS;
use super::carrier::Carrier;

/// Limit of bytes run through the CRC, per byte of the record: bounds the search on corrupted or malicious files.
pub(super) const MAX_CRC_BYTES_PER_BYTE: usize = 64;

/// The shortest packet.
const MIN_PACKET_LEN: usize = Bth::LEN + ICRC_LEN;

/// Cost of a search.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Work {
    /// Bytes whose CRC was computed.
    pub(super) bytes: usize,
    /// BTHs examined.
    pub(super) headers: usize,
}

/// Returns the length of all packets but the last.
pub(super) fn search(carrier: &Carrier<'_>, work: &mut Work) -> Option<usize> {
    let (first, _) = Bth::split(carrier.payload)?;
    let info = first.opcode.info()?;
    let least = Bth::LEN + info.extensions_len + ICRC_LEN;
    match info.position {
        Position::First | Position::Middle if info.payload => {
            try_lengths(carrier, first, PATH_MTUS.map(|mtu| least + mtu), work)
        }
        _ if !info.payload => try_lengths(carrier, first, [least], work),
        // Padding makes all lengths multiples of 4 (IBA 9.2.4).
        _ => (least..=least + MAX_PAYLOAD)
            .step_by(4)
            .take_while(|&len| len < carrier.len)
            .find(|&len| fits(carrier, first, len, work) && verifies(carrier, 0, len, work)),
    }
}

/// Tries a few lengths. The first packet may be corrupted if the second one verifies.
fn try_lengths<const N: usize>(
    carrier: &Carrier<'_>,
    first: Bth,
    lengths: [usize; N],
    work: &mut Work,
) -> Option<usize> {
    let fitting = lengths.map(|len| Some(len).filter(|&len| fits(carrier, first, len, work)));
    let mut attempts = [0, 1]
        .into_iter()
        .flat_map(|index| fitting.into_iter().flatten().map(move |len| (index, len)));
    attempts.find(|&(index, len)| verifies(carrier, index, len, work)).map(|(_, len)| len)
}

/// Whether packet `index` verifies if packets have this length.
fn verifies(carrier: &Carrier<'_>, index: u32, len: usize, work: &mut Work) -> bool {
    let at = index as usize * len;
    let len = len.min(carrier.len.saturating_sub(at));
    if work.bytes + len > MAX_CRC_BYTES_PER_BYTE * carrier.payload.len() {
        return false;
    }
    let Some(packet) = carrier.packet(at, len) else { return false };
    work.bytes += len;
    carrier.verifies(index, packet)
}

/// Whether a plausible BTH is at every position required by this packet length.
fn fits(carrier: &Carrier<'_>, first: Bth, len: usize, work: &mut Work) -> bool {
    if len >= carrier.len || carrier.len - (carrier.len - 1) / len * len < MIN_PACKET_LEN {
        return false;
    }
    (0..carrier.payload.len()).step_by(len).all(|at| {
        work.headers += 1;
        // Cut off by the capture.
        let Some((bth, _)) = Bth::split(&carrier.payload[at..]) else { return true };
        let len = len.min(carrier.len - at);
        let Some(info) = bth.opcode.info() else { return false };
        let least = Bth::LEN + info.extensions_len + usize::from(bth.pad) + ICRC_LEN;
        let most = if info.payload { least + MAX_PAYLOAD } else { least };
        // A socket may send for several queue pairs, but practically always in one partition.
        bth.version == 0 && bth.partition == first.partition && (least..=most).contains(&len)
    })
}
