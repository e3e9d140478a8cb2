#![no_main]

//! Manifests of disks in object stores, and the names of their objects. The first byte decides whether the checksum is made right, so that fields
//! are reached; a manifest has exactly one encoding.

use libfuzzer_sys::fuzz_target;
use nigh_objects::{Disk, Limits, Manifest, Object};

fuzz_target!(|bytes: &[u8]| {
    let Some((&first, rest)) = bytes.split_first() else { return };
    let mut bytes = rest.to_vec();
    if let Ok(name) = std::str::from_utf8(rest)
        && let Ok(object) = name.parse::<Object>()
    {
        assert_eq!(object.to_string(), name);
    }
    if first % 2 == 0 {
        Manifest::seal(&mut bytes);
    }
    let Ok(manifest) = Manifest::decode(&bytes) else { return };
    assert_eq!(manifest.encode(), bytes);
    let Some(claimed) = manifest.claimed_by(1) else { return };
    assert_eq!(Manifest::decode(&claimed.encode()).as_ref(), Ok(&claimed));
    let disk = Disk::new(claimed, Limits { bytes: 1 << 20, parts: 4, replaced: 4 });
    let mut block = [1; 4096];
    let fetches = disk.read(disk.bytes() - 4096, &mut block);
    assert!(!fetches.is_empty() || block == [0; 4096]);
    for fetch in fetches {
        assert!(!disk.stored().is_leftover(fetch.object));
    }
});
