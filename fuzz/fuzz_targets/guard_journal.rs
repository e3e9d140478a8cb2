#![no_main]

use libfuzzer_sys::fuzz_target;
use nigh_guard::{Journal, Writer};

// The journal of an earlier run is read, or refused in one line. Nothing is restored here: that would write to any file that it names.
fuzz_target!(|content: &[u8]| {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("journal");
    std::fs::write(&path, content).expect("room for a temporary file");
    if let Err(error) = Journal::open(&path, Writer::Files) {
        assert!(!error.to_string().contains('\n'), "{error}");
    }
    assert_eq!(std::fs::read(&path).expect("it stays"), content);
});
