#![no_main]

use libfuzzer_sys::fuzz_target;

// Compression and format are recognized by content.
fuzz_target!(|content: &[u8]| nigh_fuzz::read(content, &Default::default()));
