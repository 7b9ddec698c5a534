use super::{Attributes, Message, Response};

#[test]
fn malformed_responses_are_rejected() {
    let mut message = vec![0; 28];
    message[..4].copy_from_slice(&28_u32.to_ne_bytes());
    message[4..6].copy_from_slice(&24_u16.to_ne_bytes());
    for length in 0..28 {
        assert!(Response::parse(&message[..length]).is_err(), "{length} bytes");
    }
    assert!(Response::parse(&message).unwrap().number(1).is_none());
    // Attributes that extend beyond the message, or are shorter than their header.
    for length in [0_u16, 3, 9, 0xffff] {
        let mut damaged = message.clone();
        damaged[0] = 36;
        damaged.extend_from_slice(&length.to_ne_bytes());
        damaged.extend_from_slice(&[1, 0, 1, 2, 3, 4]);
        let response = Response::parse(&damaged).unwrap();
        assert!(response.number(1).is_none() && response.address(2).is_none(), "{length}");
    }
}

#[test]
fn malformed_messages_are_rejected() {
    let mut bytes = vec![0; 40];
    bytes[0] = 40;
    for length in 0..40 {
        assert!(Message::parse(&bytes[..length]).is_err(), "{length} bytes");
    }
    assert!(Message::parse(&bytes).is_ok());
    for length in [0_u16, 3, 9, u16::MAX] {
        let attribute = [&length.to_ne_bytes()[..], &[0, 0, 1, 2]].concat();
        assert!(Attributes(&attribute).next().is_none(), "{length}");
    }
}
