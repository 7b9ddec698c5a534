//! Capture files: reading arbitrary bytes ends normally or with an error and its offset, in bounded memory.
//!
//! Seeds: files
#![no_main]

use ferroce_trace::file::CaptureReader;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Ok(mut reader) = CaptureReader::new(data) else { return };
    loop {
        match reader.next_record() {
            Ok(Some(record)) => assert!(record.offset < data.len() as u64),
            Ok(None) => break,
            Err(error) => {
                assert!(error.offset <= data.len() as u64);
                assert!(!error.to_string().is_empty());
            }
        }
    }
    assert!(reader.offset() <= data.len() as u64);
});
