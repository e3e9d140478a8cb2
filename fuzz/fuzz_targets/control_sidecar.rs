#![no_main]

use nigh_control::sidecar;

libfuzzer_sys::fuzz_target!(|text: &str| {
    match sidecar::parse(text) {
        Ok(events) => assert_eq!(sidecar::parse(&sidecar::write(&events)).expect("what was written is read"), events),
        Err(error) => assert!(!error.to_string().contains('\n'), "one line"),
    }
});
