#![no_main]

use libfuzzer_sys::fuzz_target;
use nigh_device::{Device, Kind, Profile, Request};

// A profile is an error of one line, or a device that takes requests anywhere and ends them after they began.
fuzz_target!(|text: &str| {
    let profile = match Profile::parse(text) {
        Ok(profile) => profile,
        Err(error) => {
            assert!(!error.to_string().contains('\n'), "{error}");
            return;
        }
    };
    let mut device = Device::new(&profile, 1);
    let last = device.bytes() - 4096;
    let mut now = 0;
    for (kind, offset_bytes) in
        [(Kind::Read, 0), (Kind::Read, 4096), (Kind::Write, last), (Kind::Read, last / 2), (Kind::Flush, 0)]
    {
        let end = device.start(now, Request { kind, offset_bytes, bytes: 4096 }).expect("on the device");
        assert!(end >= now);
        now = end;
    }
    assert!(device.start(now, Request { kind: Kind::Read, offset_bytes: last, bytes: 4097 }).is_err());
});
