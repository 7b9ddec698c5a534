//! Parses tshark's packet details (PDML): every field with its name, position and printed value.

use ferroce_tests::tool;

/// One packet.
#[derive(Debug, Default)]
pub struct Packet {
    /// Its number in the file, from 1.
    pub number: u64,
    /// All fields in the order of printing, including nested ones.
    pub fields: Vec<Field>,
    /// tshark tried another protocol's dissector on the payload, in vain, and printed neither the payload nor the ICRC.
    pub misread_payload: bool,
}

/// One field.
#[derive(Clone, Debug, Default)]
pub struct Field {
    /// Its name as in a display filter.
    pub name: String,
    /// First byte in the record.
    pub at: usize,
    /// Length in bytes; zero for fields that tshark generated.
    pub len: usize,
    /// The value as a display filter would take it.
    pub show: String,
    /// The value as text for people.
    pub text: String,
}

impl Packet {
    /// Returns all fields of a name.
    pub fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Field> {
        self.fields.iter().filter(move |field| field.name == name)
    }
}

/// Parses the packets of tshark's output.
pub fn parse(pdml: &str) -> Vec<Packet> {
    let mut packets: Vec<Packet> = Vec::new();
    let mut is_infiniband = false;
    for tag in tags(pdml) {
        if tag == "packet" {
            packets.push(Packet::default());
            is_infiniband = false;
        } else if let Some(attributes) = tag.strip_prefix("proto ") {
            let packet = packets.last_mut().expect("protocols are inside of packets");
            let protocol = field(attributes);
            is_infiniband |= protocol.name == "infiniband";
            packet.misread_payload |= is_infiniband && tool::is_other_malformed(&protocol.text);
        } else if let Some(attributes) = tag.strip_prefix("field ") {
            let packet = packets.last_mut().expect("fields are inside of packets");
            let field = field(attributes);
            match field.name.as_str() {
                // tshark's own summary of the record comes first, under names without a protocol.
                "num" => packet.number = field.show.parse().expect("a packet's number"),
                "len" | "caplen" | "timestamp" => {}
                _ => packet.fields.push(field),
            }
        }
    }
    assert!(pdml.trim_end().ends_with("</pdml>"), "tshark's output is not complete");
    packets
}

/// Returns the text between angle brackets, which are escaped in quoted text.
fn tags(text: &str) -> impl Iterator<Item = &str> {
    text.split('<').skip(1).filter_map(|tag| tag.split_once('>').map(|(tag, _)| tag))
}

fn field(attributes: &str) -> Field {
    let mut field = Field::default();
    let mut rest = attributes;
    while let Some((key, (value, behind))) =
        rest.split_once("=\"").and_then(|(key, rest)| Some((key.trim(), rest.split_once('"')?)))
    {
        match key {
            "name" => field.name = value.to_owned(),
            "pos" => field.at = value.parse().expect("a position"),
            "size" => field.len = value.parse().expect("a size"),
            "show" => field.show = value.to_owned(),
            "showname" => field.text = value.to_owned(),
            _ => {}
        }
        rest = behind;
    }
    field
}
