//! Whatever a client sends, a session stays within its export and its buffers.
#![no_main]

use libfuzzer_sys::fuzz_target;
use nigh_nbd::{BlockSizes, Command, Event, Export, Exports, Features, Negotiation, Outcome, Tls};

fuzz_target!(|data: &[u8]| {
    let Some((&mode, mut input)) = data.split_first() else { return };
    let export = |name: &str, flags| Export {
        name: name.into(),
        description: "a disk".into(),
        size: 1 << 20,
        features: Features::from_wire(flags),
        blocks: BlockSizes { minimum: 512, preferred: 4096, maximum: 1 << 16 },
    };
    let exports = Exports::new(vec![export("a", u16::MAX), export("b", !2)]).unwrap();
    let tls = [Tls::Off, Tls::Required][usize::from(mode % 2)];
    let mut negotiation = Negotiation::new(exports.clone(), tls);
    let mut out = Vec::new();
    let mut transmission = loop {
        out.clear();
        let Ok((consumed, outcome)) = negotiation.step(input, &mut out) else { return };
        input = &input[consumed..];
        match outcome {
            Outcome::Continue => {}
            Outcome::StartTls => {
                negotiation.tls_started(exports.clone());
                return;
            }
            Outcome::Transmit(transmission) => break transmission,
            Outcome::Need(more) => {
                assert!(more > 0);
                return;
            }
            Outcome::Abort => return,
        }
    };
    loop {
        let Ok((consumed, event)) = transmission.step(input) else { return };
        input = &input[consumed..];
        match event {
            Event::Need(more) => {
                assert!(more > 0 && input.is_empty() || input.len() < 32);
                return;
            }
            Event::Disconnect => return,
            Event::Refused { tag, errno } => assert!(!transmission.framing().error(tag, errno).is_empty()),
            Event::Request(request) => {
                assert!(request.offset.checked_add(request.length).unwrap() <= 1 << 20);
                assert!(request.length % 512 == 0);
                match request.command {
                    Command::Write { .. } if request.length as usize <= input.len() => {
                        input = &input[request.length as usize..];
                    }
                    Command::Write { .. } => return,
                    _ => {}
                }
            }
        }
    }
});
