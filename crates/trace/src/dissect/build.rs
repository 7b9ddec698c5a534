//! Builds a tree layer by layer, in byte order of the frame.

use ferroce_wire::field::{FieldSpec, Header, Meaning, Show, Value};

use super::tree::{Field, Layer, Problem, Verdict};
use crate::link::LinkHeader;

/// The layers built so far, and their end in the frame.
pub(super) struct Builder<'a> {
    /// The whole frame including the link header: offsets in the tree count from its first byte.
    pub(super) bytes: &'a [u8],
    pub(super) layers: Vec<Layer<'a>>,
    pub(super) problems: Vec<Problem>,
    /// Where the next layer starts.
    pub(super) at: usize,
}

impl<'a> Builder<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, layers: Vec::new(), problems: Vec::new(), at: 0 }
    }

    /// Adds a header parsed from the bytes at the current offset.
    pub(super) fn header<H: Header>(&mut self, header: &H, summary: String) -> &mut Layer<'a> {
        self.visited(H::NAME, H::LEN, summary, |visitor| header.visit(visitor))
    }

    /// Adds the first `len` bytes of a structure that describes its fields. Later fields are left out: they become a
    /// separate layer.
    pub(super) fn visited(
        &mut self,
        name: &'static str,
        len: usize,
        summary: String,
        visit: impl FnOnce(&mut dyn FnMut(&'static FieldSpec, &dyn Show)),
    ) -> &mut Layer<'a> {
        let (bytes, offset) = (self.bytes, self.at);
        let mut fields = Vec::new();
        visit(&mut |spec, value| {
            if spec.bytes().end <= len {
                fields.push(field(bytes, offset, spec, value));
            }
        });
        self.push(Layer { name, offset, length: len, summary, fields, data: None })
    }

    /// Adds the header added by the capture.
    pub(super) fn link_header(&mut self, header: LinkHeader, len: usize) {
        let bytes = self.bytes;
        let fields: Vec<_> = header
            .fields
            .into_iter()
            .map(|field| Field {
                name: field.name,
                offset: field.range.start,
                bit: 0,
                width: field.range.len() * 8,
                bytes: bytes.get(field.range).unwrap_or_default(),
                value: field.value,
                meaning: field.meaning,
                doc: "",
                verdict: None,
                hidden: false,
            })
            .collect();
        let summary = "added by the capture".to_owned();
        let (name, offset) = (header.name, self.at);
        self.push(Layer { name, offset, length: len, summary, fields, data: None });
    }

    /// Adds `len` bytes without structure, or fewer if the frame ends before.
    pub(super) fn data(&mut self, name: &'static str, len: usize, mut summary: String) {
        let data = self.rest();
        let data = &data[..len.min(data.len())];
        if !data.is_empty() {
            if data.iter().all(|&byte| byte == 0) {
                summary.push_str(", all zero");
            }
            let (offset, length) = (self.at, data.len());
            self.push(Layer {
                name,
                offset,
                length,
                summary,
                fields: Vec::new(),
                data: Some(data),
            });
        }
    }

    /// Adds a layer that consists of one value.
    pub(super) fn value(&mut self, name: &'static str, len: usize, item: ValueLayer) {
        let rest = self.rest();
        let bytes = &rest[..len.min(rest.len())];
        let offset = self.at;
        let field = Field {
            name: item.name,
            offset,
            bit: 0,
            width: bytes.len() * 8,
            bytes,
            value: item.value,
            meaning: item.meaning,
            doc: item.doc,
            verdict: item.verdict,
            hidden: false,
        };
        let summary = item.summary;
        let (length, fields) = (bytes.len(), vec![field]);
        self.push(Layer { name, offset, length, summary, fields, data: None });
    }

    /// The bytes after the last layer.
    pub(super) fn rest(&self) -> &'a [u8] {
        self.bytes.get(self.at..).unwrap_or_default()
    }

    pub(super) fn problem(&mut self, offset: usize, message: impl ToString) {
        self.problems.push(Problem { offset, message: message.to_string() });
    }

    fn push(&mut self, layer: Layer<'a>) -> &mut Layer<'a> {
        self.at = layer.offset + layer.length;
        self.layers.push(layer);
        let last = self.layers.len() - 1;
        &mut self.layers[last]
    }
}

/// Description of a layer added by [`Builder::value`].
#[derive(Default)]
pub(super) struct ValueLayer {
    pub(super) name: &'static str,
    pub(super) value: String,
    pub(super) meaning: String,
    pub(super) doc: &'static str,
    pub(super) verdict: Option<Verdict>,
    /// One-line summary of the layer.
    pub(super) summary: String,
}

impl Layer<'_> {
    /// Sets the meaning of a field that depends on more than the field itself.
    pub(super) fn explain(&mut self, name: &str, meaning: impl Into<String>) -> &mut Self {
        if let Some(field) = self.fields.iter_mut().find(|field| field.name == name) {
            field.meaning = meaning.into();
        }
        self
    }

    /// Hides the fields with this name prefix, which belong to an absent part.
    pub(super) fn hide(&mut self, prefix: &str) {
        for field in self.fields.iter_mut().filter(|field| field.name.starts_with(prefix)) {
            field.hidden = true;
        }
    }

    /// Sets the verdict of a checksum field.
    pub(super) fn set_verdict(
        &mut self,
        name: &str,
        verdict: Verdict,
        meaning: String,
    ) -> &mut Self {
        if let Some(field) = self.fields.iter_mut().find(|field| field.name == name) {
            field.verdict = Some(verdict);
            field.meaning = meaning;
        }
        self
    }
}

fn field<'a>(
    bytes: &'a [u8],
    start: usize,
    spec: &'static FieldSpec,
    value: &dyn Show,
) -> Field<'a> {
    let range = spec.bytes();
    let mut field = Field {
        name: spec.name,
        offset: start + range.start,
        bit: spec.bit % 8,
        width: spec.width,
        bytes: bytes.get(start + range.start..start + range.end).unwrap_or_default(),
        value: Value(value).to_string(),
        meaning: Meaning(value).to_string(),
        doc: spec.doc,
        verdict: None,
        hidden: false,
    };
    field.hidden = spec.is_reserved() && field.bits().all(|bit| bit != Some(true));
    field
}
