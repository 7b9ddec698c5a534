//! The annotated tree: layers, their fields, and what is wrong with them.

use std::net::IpAddr;

use serde::{Serialize, Serializer};

/// One frame, taken apart.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Tree<'a> {
    /// The frame in one line.
    pub summary: String,
    /// Who sent it, where a network layer was readable.
    pub source: Option<IpAddr>,
    /// Whom it is for.
    pub destination: Option<IpAddr>,
    /// Bytes there are.
    pub captured_len: usize,
    /// Bytes there were on the wire.
    pub original_len: usize,
    /// What the frame is made of, in the order of its bytes. Together the layers cover all of them.
    pub layers: Vec<Layer<'a>>,
    /// What is wrong with it; empty for a sound frame.
    pub problems: Vec<Problem>,
}

/// A header, a payload, or bytes that nothing is known about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Layer<'a> {
    /// The specification's short name, for example `BTH`.
    pub name: &'static str,
    /// Its first byte, counted from the frame's.
    pub offset: usize,
    /// Its bytes.
    pub length: usize,
    /// The layer in one line.
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
    /// The first byte that it touches, counted from the frame's first.
    pub offset: usize,
    /// Its first bit in that byte; 0 is the most significant one.
    pub bit: usize,
    /// Width in bits.
    pub width: usize,
    /// The bytes that it touches.
    #[serde(serialize_with = "hex")]
    pub bytes: &'a [u8],
    /// Its value, in the notation people expect.
    pub value: String,
    /// What this value means, where the value alone does not say it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub meaning: String,
    /// What the field is for.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub doc: &'static str,
    /// For checksums: whether it is right.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verdict: Option<Verdict>,
    /// Whether it says nothing and need not be shown: reserved and zero, or part of something that is not there.
    #[serde(skip)]
    pub hidden: bool,
}

/// What checking a field gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// It is right.
    Correct,
    /// It is not what it should be.
    Wrong,
    /// It cannot be checked.
    Unverifiable,
}

/// Something wrong with a frame, and where.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// The byte of the frame where what is at fault starts.
    pub offset: usize,
    /// What is wrong, and where something can be done about it, what.
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
    /// Whether it starts or ends inside of a byte.
    pub fn is_bits(&self) -> bool {
        self.bit != 0 || self.width % 8 != 0
    }

    /// Each bit of the bytes that the field touches: `None` for those of its neighbours.
    pub fn bits(&self) -> impl Iterator<Item = Option<bool>> + '_ {
        let (bytes, own) = (self.bytes, self.bit..self.bit + self.width);
        (0..bytes.len() * 8)
            .map(move |at| own.contains(&at).then(|| bytes[at / 8] >> (7 - at % 8) & 1 == 1))
    }
}

/// Bytes as text: two digits each, nothing between them.
pub(super) fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn hex<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&to_hex(bytes))
}

fn optional_hex<S: Serializer>(bytes: &Option<&[u8]>, serializer: S) -> Result<S::Ok, S::Error> {
    hex(bytes.unwrap_or_default(), serializer)
}
