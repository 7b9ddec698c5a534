//! The packets of a page: their summaries, bytes, layers and fields, read in a second pass over the file.

use std::collections::{BTreeMap, HashMap};
use std::io::Read;

use ferroce_trace::analysis::detail::{Kept, KeptPacket};
use ferroce_trace::dissect::{self, Tree, Verdict};
use ferroce_trace::file::{CaptureReader, Record};
use ferroce_trace::segments::PacketRun;

use crate::build::{Notes, Options};
use crate::model::{FieldPage, LayerPage, PacketPage};

/// Bytes of one packet that are embedded. Headers and management datagrams are shorter.
const MAX_BYTES: usize = 1024;

/// Characters of a value that are embedded: a capture may contain long texts.
const MAX_TEXT: usize = 400;

/// Records of the file between two calls to `progress`.
const PROGRESS_STEP: u64 = 4096;

/// Rough size of a packet without its bytes and layers.
const ROW_SIZE: usize = 160;

/// The packets shown of one file.
#[derive(Debug, Default)]
pub(crate) struct Shown {
    pub(crate) packets: Vec<PacketPage>,
    pub(crate) specs: Vec<(&'static str, &'static str)>,
    pub(crate) left_out: BTreeMap<u32, u64>,
}

/// Reads the kept packets. A file that ends earlier than in the first pass gives fewer.
pub(crate) fn read(
    input: impl Read,
    kept: &Kept,
    notes: &Notes<'_>,
    options: &mut Options,
    progress: &mut dyn FnMut(u64),
) -> Shown {
    let left_out = kept.left_out_at_end.iter().map(|(id, count)| (id.unwrap_or(0), *count));
    let mut shown = Shown { left_out: left_out.collect(), ..Shown::default() };
    let mut specs = Specs::default();
    let Ok(mut reader) = CaptureReader::new(input) else { return shown };
    let mut buffer = Vec::new();
    let mut wanted = kept.packets.iter().peekable();
    while wanted.peek().is_some() {
        // Damage ended the first pass at the same record.
        let Ok(Some(record)) = reader.next_record() else { break };
        if record.number % PROGRESS_STEP == 0 {
            progress(record.offset);
        }
        let mut run = None;
        while let Some(packet) = wanted.next_if(|packet| packet.frame == record.number) {
            let mut page = match packet.segment {
                0 => describe(&record, packet, notes, &mut specs),
                number => {
                    let found = run.get_or_insert_with(|| PacketRun::find(&record));
                    let Some(found) = found else { continue };
                    let part = found.packet(&record, number - 1, &mut buffer);
                    describe(&part, packet, notes, &mut specs)
                }
            };
            let size = ROW_SIZE + serde_json::to_vec(&page).map_or(0, |bytes| bytes.len());
            if size > options.packet_bytes {
                (page.h, page.l) = (String::new(), Vec::new());
                options.packet_bytes = options.packet_bytes.min(ROW_SIZE);
            } else {
                options.packet_bytes -= size;
            }
            shown.packets.push(page);
        }
    }
    shown.specs = specs.list;
    shown
}

/// Descriptions of fields, each once.
#[derive(Default)]
struct Specs {
    list: Vec<(&'static str, &'static str)>,
    index: HashMap<(&'static str, &'static str), usize>,
}

impl Specs {
    fn of(&mut self, name: &'static str, doc: &'static str) -> usize {
        *self.index.entry((name, doc)).or_insert_with(|| {
            self.list.push((name, doc));
            self.list.len() - 1
        })
    }
}

fn describe(
    record: &Record<'_>,
    packet: &KeptPacket,
    notes: &Notes<'_>,
    specs: &mut Specs,
) -> PacketPage {
    let tree = dissect::dissect(record.link, record.data, record.original_len as usize);
    let found = notes.get(&(packet.frame, packet.segment)).into_iter().flatten();
    let addresses = match (tree.source, tree.destination) {
        (Some(source), Some(destination)) => format!("{source} → {destination}"),
        _ => String::new(),
    };
    let bytes = &record.data[..record.data.len().min(MAX_BYTES)];
    PacketPage {
        f: packet.frame,
        s: packet.segment,
        t: packet.time_ns,
        c: packet.conversation.unwrap_or(0),
        a: packet.from_a,
        x: packet.left_out,
        y: short(&tree.summary),
        d: addresses,
        n: found.map(|it| (it.severity, it.kind.name(), it.text.clone())).collect(),
        o: tree.original_len,
        h: bytes.iter().map(|byte| format!("{byte:02x}")).collect(),
        k: tree.captured_len,
        p: tree.problems.iter().map(|problem| short(&problem.message)).collect(),
        l: layers(&tree, specs),
    }
}

fn layers(tree: &Tree<'_>, specs: &mut Specs) -> Vec<LayerPage> {
    let layers = tree.layers.iter().map(|layer| {
        let fields = layer.fields.iter().filter(|field| !field.hidden).map(|field| {
            let verdict = match field.verdict {
                Some(Verdict::Correct) => "correct",
                Some(Verdict::Wrong) => "wrong",
                Some(Verdict::Unverifiable) => "unverifiable",
                None => "",
            };
            FieldPage(
                specs.of(field.name, field.doc),
                field.offset,
                field.bit,
                field.width,
                short(&field.value),
                short(&field.meaning),
                verdict,
            )
        });
        LayerPage(layer.name, layer.offset, layer.length, short(&layer.summary), fields.collect())
    });
    layers.collect()
}

fn short(text: &str) -> String {
    match text.char_indices().nth(MAX_TEXT) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
