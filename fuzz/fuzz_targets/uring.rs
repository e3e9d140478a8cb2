#![no_main]

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use nigh_record::uring::{PARAMS_BYTES, Rings};

/// A system call of a traced program, or its end. Addresses are places in the memory of the program, which is short.
#[derive(Arbitrary, Debug)]
enum Step {
    Setup { thread: u8, ring: u8, flags: u32, places: [u16; 6] },
    Map { ring: u8, is_requests: bool, address: u16 },
    Close { ring: u8 },
    End { thread: u8 },
    Register { thread: u8, ring: u8, code: u32, address: u16, count: u32, result: u16 },
    Enter { thread: u8, ring: u8, count: u32, flags: u32 },
}

const PROCESS: i32 = 1;

// A program passes any requests, by rings of any form.
fuzz_target!(|input: (Vec<Step>, &[u8])| {
    let (steps, memory) = input;
    let read = |at: u64, to: &mut [u8]| {
        let begin = usize::try_from(at).unwrap_or(usize::MAX);
        let from = begin.checked_add(to.len()).and_then(|end| memory.get(begin..end));
        from.map(|from| to.copy_from_slice(from)).is_some()
    };
    let mut rings = Rings::default();
    for step in steps {
        match step {
            Step::Setup { thread, ring, flags, places } => {
                let mut params = [0; PARAMS_BYTES];
                params[8..12].copy_from_slice(&flags.to_le_bytes());
                // Head, tail, mask and array in the ring; then requests and ring in the program's own memory.
                for (at, place) in [40, 44, 48, 64, 72, 112].into_iter().zip(places) {
                    params[at..at + 2].copy_from_slice(&place.to_le_bytes());
                }
                let _ = rings.begin(thread.into(), PROCESS, ring.into(), &params);
            }
            Step::Map { ring, is_requests, address } => {
                rings.map(PROCESS, ring.into(), if is_requests { 0x1000_0000 } else { 0 }, address.into());
            }
            Step::Close { ring } => rings.close(PROCESS, ring.into()),
            Step::End { thread } => rings.end(thread.into()),
            Step::Register { thread, ring, code, address, count, result } => {
                let arguments = [ring.into(), code.into(), address.into(), count.into(), 0, 0];
                if let Some((ring, numbered)) = rings.register(thread.into(), &arguments, result.into(), &read) {
                    let files = numbered.descriptors.iter().map(|&file| u32::try_from(file).ok()).collect();
                    rings.number(PROCESS, ring, &numbered, files);
                }
            }
            Step::Enter { thread, ring, count, flags } => {
                let arguments = [ring.into(), count.into(), 0, flags.into(), 0, 0];
                if let Ok(passed) = rings.entered(thread.into(), PROCESS, &arguments, &read, &|_| 0) {
                    assert!(passed.len() <= 1 << 15 && passed.len() as u64 <= u64::from(count));
                }
            }
        }
    }
});
