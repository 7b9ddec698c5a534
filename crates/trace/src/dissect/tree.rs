//! The annotated tree: layers, fields and problems.

use std::net::IpAddr;

use serde::{Serialize, Serializer};

/// A dissected frame.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Tree<'a> {
    /// One-line summary of the frame.
    pub summary: String,
    /// Source address, if a network layer was readable.
    pub source: Option<IpAddr>,
    /// Destination address, if a network layer was readable.
    pub destination: Option<IpAddr>,
    /// Bytes captured.
    pub captured_len: usize,
    /// Bytes on the wire.
    pub original_len: usize,
    /// The layers in byte order. Together they cover the whole frame.
    pub layers: Vec<Layer<'a>>,
    /// Problems of the frame; empty for a valid one.
    pub problems: Vec<Problem>,
}

/// A header, a payload, or unparsed bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Layer<'a> {
    /// The specification's short name, for example `BTH`.
    pub name: &'static str,
    /// Offset in the frame.
    pub offset: usize,
    /// Length in bytes.
    pub length: usize,
    /// One-line summary of the layer.
    pub summary: String,
    /// Its fields in order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub fields: Vec<Field<'a>>,
    /// The bytes of a layer that has no fields.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "optional_hex")]
    pub data: Option<&'a [u8]>,
}

/// One field of a header.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Field<'a> {
    /// Its name.
    pub name: &'static str,
    /// Offset in the frame of the first byte it occupies.
    pub offset: usize,
    /// Its first bit in that byte; 0 is the most significant.
    pub bit: usize,
    /// Width in bits.
    pub width: usize,
    /// The bytes it occupies.
    #[serde(serialize_with = "hex")]
    pub bytes: &'a [u8],
    /// Its value in the usual notation.
    pub value: String,
    /// Meaning of the value, if it has one.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub meaning: String,
    /// Purpose of the field.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub doc: &'static str,
    /// Check result, for checksums.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verdict: Option<Verdict>,
    /// Whether it can be omitted from output: reserved and zero, or part of an absent structure.
    #[serde(skip)]
    pub hidden: bool,
}

/// Result of checking a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// The value is correct.
    Correct,
    /// The value is wrong.
    Wrong,
    /// The value cannot be checked.
    Unverifiable,
}

/// A problem of a frame, with its position.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// Offset in the frame of the bytes at fault.
    pub offset: usize,
    /// What is wrong and, if possible, how to fix it.
    pub message: String,
}

impl Tree<'_> {
    /// The first layer of that name.
    pub fn layer(&self, name: &str) -> Option<&Layer<'_>> {
        self.layers.iter().find(|layer| layer.name == name)
    }
}

impl Layer<'_> {
    /// The field of that name.
    pub fn field(&self, name: &str) -> Option<&Field<'_>> {
        self.fields.iter().find(|field| field.name == name)
    }
}

impl Field<'_> {
    /// Whether it starts or ends within a byte.
    pub fn is_bits(&self) -> bool {
        self.bit != 0 || self.width % 8 != 0
    }

    /// The bits of the bytes that the field occupies; `None` for bits of neighbouring fields.
    pub fn bits(&self) -> impl Iterator<Item = Option<bool>> + '_ {
        let (bytes, own) = (self.bytes, self.bit..self.bit + self.width);
        (0..bytes.len() * 8)
            .map(move |at| own.contains(&at).then(|| bytes[at / 8] >> (7 - at % 8) & 1 == 1))
    }
}

/// Bytes in hexadecimal without separators.
pub(super) fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn hex<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&to_hex(bytes))
}

fn optional_hex<S: Serializer>(bytes: &Option<&[u8]>, serializer: S) -> Result<S::Ok, S::Error> {
    hex(bytes.unwrap_or_default(), serializer)
}
