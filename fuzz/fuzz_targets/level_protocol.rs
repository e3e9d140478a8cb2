#![no_main]

//! Both sides of the protocol of levels. The first byte chooses the side; a decoded message has exactly one encoding.

use libfuzzer_sys::fuzz_target;
use nigh_level::{Decoded, Hello, Reply, Request, Welcome};

fuzz_target!(|bytes: &[u8]| {
    let Some((&side, mut input)) = bytes.split_first() else { return };
    let mut again = Vec::new();
    if side % 2 == 0 {
        match Hello::decode(input) {
            Ok(Decoded::Whole(hello, length)) => {
                hello.encode(&mut again);
                assert_eq!(again, input[..length]);
                let _ = hello.version();
                input = &input[length..];
            }
            Ok(Decoded::Need(missing)) => assert!(missing > 0),
            Err(_) => {}
        }
        while let Ok(Decoded::Whole((cookie, request), length)) = Request::decode(input) {
            again.clear();
            request.encode(cookie, &mut again);
            assert_eq!(again, input[..length]);
            input = &input[length..];
        }
    } else {
        match Welcome::decode(input) {
            Ok(Decoded::Whole(welcome, length)) => {
                welcome.encode(&mut again);
                assert_eq!(again, input[..length]);
                input = &input[length..];
            }
            Ok(Decoded::Need(missing)) => assert!(missing > 0),
            Err(_) => {}
        }
        while let Ok(Decoded::Whole(reply, length)) = Reply::decode(input) {
            again.clear();
            reply.encode(&mut again);
            assert_eq!(again, input[..length]);
            input = &input[length..];
        }
    }
});
