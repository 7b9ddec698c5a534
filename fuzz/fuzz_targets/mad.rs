//! Management datagrams and CM messages: parsed messages are emitted byte for byte.
//!
//! Seeds: mads
#![no_main]

use ferroce_wire::cm::CmMessage;
use ferroce_wire::field::{Meaning, Value};
use ferroce_wire::mad::Mad;
use ferroce_wire::rdmacm;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Ok(mad) = Mad::parse(data) else { return };
    assert_eq!(mad.to_bytes(), data);
    let Ok(message) = CmMessage::from_mad(&mad) else { return };
    assert_eq!(message.to_bytes(), *mad.data);
    message.visit(&mut |_, value| drop((Value(value).to_string(), Meaning(value).to_string())));
    if let Some(service) = message.service_id() {
        if let Ok((header, consumer)) = rdmacm::split_private_data(service, message.private_data())
        {
            let again = [&header.to_bytes()[..], consumer].concat();
            assert_eq!(again, message.private_data());
        }
    }
});
