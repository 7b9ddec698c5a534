use std::format;
use std::string::{String, ToString};
use std::vec::Vec;

use proptest::prelude::*;

use super::*;
use crate::cm::PathMtu;
use crate::field::{Meaning, Value};
use crate::number::{Guid, LKey, Psn, RKey, SrqNumber, VirtualAddress};

const EXCHANGE: ExchangeId = ExchangeId(0x0102_0304);

/// The nine messages of one exchange, with the values of the original walkthrough.
fn exchange() -> [SetupMessage; 9] {
    let (client, server) = (Qpn(1), Qpn(2));
    let (client_guid, server_guid) = (Guid(0x1234_5678_9abc_def0), Guid(0x8765_4321_fedc_ba98));
    let (client_key, server_key) = (RKey(0x1234_5678), RKey(0x8765_4321));
    let queue_pair = QpCreateReq {
        qp_number: client,
        qp_type: QpType::RC,
        path_mtu: PathMtu::MTU_4096,
        max_send_wqe: 10,
        max_recv_wqe: 10,
        max_send_sge: 1,
        max_recv_sge: 1,
        send_queue_size: 0x1000,
        recv_queue_size: 0x1000,
        starting_psn: Psn(0x1000),
        ..QpCreateReq::new(EXCHANGE, TransactionId(2))
    };
    let access = AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_WRITE | AccessFlags::REMOTE_READ;
    [
        DeviceDiscoveryReq {
            client_id: PeerId(0x1234_5678),
            capabilities: Capabilities(0x0f),
            ..DeviceDiscoveryReq::new(EXCHANGE, TransactionId(1))
        }
        .into(),
        DeviceDiscoveryResp {
            server_id: PeerId(0x8765_4321),
            capabilities: Capabilities(0x0f),
            device_guid: server_guid,
            max_queue_pairs: 1024,
            max_memory_regions: 1024,
            max_message_size: DEFAULT_MAX_MESSAGE_SIZE,
            supported_transports: Transports(0x0f),
            path_mtu: PathMtu::MTU_4096,
            ..DeviceDiscoveryResp::new(EXCHANGE, TransactionId(1))
        }
        .into(),
        queue_pair.into(),
        QpCreateResp {
            qp_number: server,
            qp_type: QpType::RC,
            status: Status::SUCCESS,
            max_send_wqe: 10,
            max_recv_wqe: 10,
            max_send_sge: 1,
            max_recv_sge: 1,
            send_queue_size: 0x1000,
            recv_queue_size: 0x1000,
            ..QpCreateResp::new(EXCHANGE, TransactionId(2))
        }
        .into(),
        MrRegisterReq {
            region_id: RegionId(1),
            virtual_address: VirtualAddress(0x7f8b_4000_0000),
            length: 0x0100_0000,
            access_flags: access,
            protection_domain: DomainId(1),
            ..MrRegisterReq::new(EXCHANGE, TransactionId(3))
        }
        .into(),
        MrRegisterResp {
            region_id: RegionId(2),
            virtual_address: VirtualAddress(0x7f8b_5000_0000),
            length: 0x0100_0000,
            access_flags: access,
            protection_domain: DomainId(2),
            remote_key: server_key,
            local_key: LKey(0x8765_4321),
            ..MrRegisterResp::new(EXCHANGE, TransactionId(3))
        }
        .into(),
        ConnectionReq {
            client_qp: client,
            server_qp: server,
            client_guid,
            server_guid,
            client_key,
            server_key,
            max_message_size: DEFAULT_MAX_MESSAGE_SIZE,
            timeout: DEFAULT_TIMEOUT,
            retry_count: DEFAULT_RETRY_COUNT,
            rnr_retry_count: DEFAULT_RNR_RETRY,
            ..ConnectionReq::new(EXCHANGE, TransactionId(4))
        }
        .into(),
        ConnectionAccept {
            client_qp: client,
            server_qp: server,
            server_key,
            client_key,
            max_message_size: DEFAULT_MAX_MESSAGE_SIZE,
            timeout: DEFAULT_TIMEOUT,
            retry_count: DEFAULT_RETRY_COUNT,
            rnr_retry_count: DEFAULT_RNR_RETRY,
            ..ConnectionAccept::new(EXCHANGE, TransactionId(4))
        }
        .into(),
        ConnectionConfirm {
            client_qp: client,
            server_qp: server,
            ..ConnectionConfirm::new(EXCHANGE, TransactionId(4))
        }
        .into(),
    ]
}

fn emitted(message: &SetupMessage) -> Vec<u8> {
    message.emit(&mut [0xff; MAX_LEN]).to_vec()
}

#[test]
fn sizes_and_types_match_the_walkthrough() {
    let messages = exchange();
    let sizes: Vec<usize> = messages.iter().map(|message| emitted(message).len()).collect();
    assert_eq!(sizes, [32, 64, 64, 64, 64, 64, 64, 64, 32]);
    for (message, message_type) in messages.iter().zip(MessageType::ALL) {
        assert_eq!(emitted(message)[0], message_type.0);
        assert_eq!(SetupMessage::parse(&emitted(message)), Ok(*message));
        assert_eq!(message.name(), Meaning(message_type).to_string());
        assert_eq!(message.prefix(), Prefix::split(&emitted(message)).unwrap().0);
    }
    assert_eq!(MessageType::ALL.len(), messages.len());
}

#[test]
fn parameters_are_encoded_as_in_the_walkthrough() {
    let [.., req, _, _] = exchange();
    let bytes = emitted(&req);
    assert_eq!(bytes[48..52], 0x0100_0000u32.to_be_bytes());
    assert_eq!(bytes[52..58], [0, 0, 0, 0x14, 7, 7]);
    assert_eq!(DEFAULT_TIMEOUT.duration().unwrap().as_millis(), 4294);
}

#[test]
fn fields_have_values_and_meanings() {
    let [.., region, _, _, _, _] = exchange();
    let mut shown = Vec::new();
    region.visit(&mut |spec, value| {
        shown.push((spec.name, format!("{} {}", Value(value), Meaning(value))));
    });
    let field = |name| shown.iter().find(|field| field.0 == name).unwrap().1.as_str();
    assert_eq!(field("message_type"), "0x05 MR_REGISTER_REQ");
    assert_eq!(field("access_flags"), "0x00000007 LOCAL_WRITE | REMOTE_WRITE | REMOTE_READ");
    assert_eq!(field("virtual_address"), "0x00007f8b40000000 ");
    assert_eq!(Meaning(&Transports(0x0f)).to_string(), "RC | UC | UD | XRC");
    assert_eq!(Meaning(&Transports(0x90)).to_string(), "0x90 unknown");
    assert_eq!(Meaning(&Capabilities(0)).to_string(), "none");
}

#[test]
fn srq_numbers_have_none_of_the_reserved_qp_meanings() {
    let [_, _, queue_pair, ..] = exchange();
    let mut shown = None;
    queue_pair.visit(&mut |spec, value| {
        if spec.name == "shared_receive_queue" {
            shown = Some(format!("{} {}", Value(value), Meaning(value)));
        }
    });
    assert_eq!(shown.as_deref(), Some("0x000000 none"));
    assert_eq!(Meaning(&SrqNumber(1)).to_string(), "");
}

#[test]
fn types_have_phases_and_responses() {
    let phases: Vec<_> = MessageType::ALL.iter().map(|kind| kind.phase().unwrap() as u8).collect();
    assert_eq!(phases, [1, 1, 2, 2, 3, 3, 4, 4, 4]);
    assert_eq!(MessageType::QP_CREATE_REQ.response(), Some(MessageType::QP_CREATE_RESP));
    assert_eq!(MessageType::CONNECTION_REQ.response(), Some(MessageType::CONNECTION_ACCEPT));
    assert_eq!(MessageType::CONNECTION_ACCEPT.response(), None);
    assert_eq!((MessageType(0).phase(), MessageType(10).phase()), (None, None));
    for &kind in QpType::ALL {
        assert!(Transports(0x0f).contains(kind.to_set()) && kind.to_set().0.is_power_of_two());
    }
    assert_eq!(QpType(9).to_set(), Transports(0));
}

#[test]
fn invalid_datagrams_are_rejected_with_the_cause() {
    let good = emitted(&exchange()[0]);
    let with = |at: usize, value: u8| {
        let mut bytes = good.clone();
        bytes[at] = value;
        SetupMessage::parse(&bytes)
    };
    assert_eq!(SetupMessage::parse(&[]), Err(ParseError::Short(0)));
    assert_eq!(SetupMessage::parse(&good[..15]), Err(ParseError::Short(15)));
    assert_eq!(with(4, 0), Err(ParseError::Magic(Magic(0x0065_5355))));
    assert_eq!(with(1, 2), Err(ParseError::Version(2)));
    assert_eq!(with(0, 0), Err(ParseError::Type(MessageType(0))));
    assert_eq!(with(0, 10), Err(ParseError::Type(MessageType(10))));
    let length = ParseError::Length {
        message_type: MessageType::DEVICE_DISCOVERY_RESP,
        expected: 64,
        found: 32,
    };
    assert_eq!(with(0, 2), Err(length));
    let padded = [good.as_slice(), &[0; 4]].concat();
    assert!(matches!(SetupMessage::parse(&padded), Err(ParseError::Length { found: 36, .. })));
}

/// Fields are naturally aligned.
#[test]
fn fields_are_aligned() {
    for message in exchange() {
        for spec in message.fields().iter().filter(|spec| !spec.is_reserved()) {
            // Narrow fields are at the low end of a byte or word, aligned like the whole.
            let end = spec.bit + spec.width;
            let word = spec.width.next_power_of_two().max(8);
            assert_eq!(end % word, 0, "{} of {}", spec.name, message.name());
        }
    }
}

const DOCUMENT: &str = include_str!("../../../../docs/set-up-exchange.md");

/// The lines of a section, up to the next heading.
fn section(heading: &str) -> Vec<&'static str> {
    let mut lines = DOCUMENT.lines().skip_while(|line| *line != heading);
    assert_eq!(lines.next(), Some(heading), "the document has no such section");
    lines.take_while(|line| !line.starts_with('#')).collect()
}

/// The rows of a section's table without the header.
fn rows(heading: &str) -> Vec<&'static str> {
    section(heading).into_iter().filter(|line| line.starts_with('|')).skip(2).collect()
}

fn documented(fields: &[FieldSpec]) -> Vec<String> {
    fields
        .iter()
        .map(|spec| {
            let byte = match spec.bit % 8 {
                0 => format!("{}", spec.bit / 8),
                bit => format!("{}.{bit}", spec.bit / 8),
            };
            format!("| {byte} | {} | {} | {} |", spec.width, spec.name, spec.doc)
        })
        .collect()
}

fn assert_rows(heading: &str, expected: Vec<String>) {
    let found = rows(heading);
    assert!(found == expected, "section {heading:?} should have\n{}", expected.join("\n"));
}

#[test]
fn the_documentation_lists_every_field() {
    let prefix = <Prefix as Header>::FIELDS;
    assert_rows("### The prefix (16 bytes)", documented(prefix));
    for message in exchange() {
        let (own_prefix, fields) = message.fields().split_at(prefix.len());
        assert_eq!(own_prefix, prefix);
        let (name, size) = (message.name(), emitted(&message).len());
        let heading = format!("### {name} ({}, {size} bytes)", message.prefix().message_type);
        assert_rows(&heading, documented(fields));
    }
}

#[test]
fn the_documentation_lists_every_code() {
    fn codes<T: Show>(all: &[T]) -> Vec<String> {
        all.iter().map(|code| format!("| {} | {} |", Value(code), Meaning(code))).collect()
    }
    fn flags<T: Show>(all: &[(&str, T)]) -> Vec<String> {
        all.iter().map(|(name, flag)| format!("| {} | {name} |", Value(flag))).collect()
    }
    assert_rows("### Status", codes(Status::ALL));
    assert_rows("### Queue pair types", codes(QpType::ALL));
    assert_rows("### Transports", flags(Transports::ALL));
    assert_rows("### Capabilities", flags(Capabilities::ALL));
    assert_rows(
        "### Access flags",
        flags(&AccessFlags::all().iter_names().collect::<std::vec::Vec<_>>()),
    );
    for constant in [QUEUE_KEY.to_string(), QUEUE_PAIR.to_string(), Magic::SETUP.to_string()] {
        assert!(DOCUMENT.contains(&constant), "{constant} is not in the document");
    }
}

proptest! {
    /// Random bytes after a valid prefix randomize every field, so both directions are covered.
    #[test]
    fn emit_is_the_inverse_of_parse(random in proptest::collection::vec(any::<u8>(), MAX_LEN)) {
        for message in exchange() {
            let mut bytes = emitted(&message);
            bytes[2..4].copy_from_slice(&random[2..4]);
            let len = bytes.len();
            bytes[8..].copy_from_slice(&random[8..len]);
            let parsed = SetupMessage::parse(&bytes).unwrap();
            prop_assert_eq!(emitted(&parsed), bytes);
            prop_assert_eq!(parsed.name(), message.name());
        }
    }

    #[test]
    fn any_datagram_is_parsed_or_rejected(
        bytes in proptest::collection::vec(any::<u8>(), 0..80),
        kind in 0u8..12,
        version in 0u8..3,
        genuine: bool,
    ) {
        let mut bytes = bytes;
        if let Some(front) = bytes.first_chunk_mut::<8>().filter(|_| genuine) {
            front[..2].copy_from_slice(&[kind, version]);
            front[4..].copy_from_slice(&Magic::SETUP.0.to_be_bytes());
        }
        if let Ok(message) = SetupMessage::parse(&bytes) {
            prop_assert_eq!(emitted(&message), bytes);
        }
    }
}
