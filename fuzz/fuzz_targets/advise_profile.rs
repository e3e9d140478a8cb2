#![no_main]

use nigh_advise::Table;
use nigh_advise::profile::{Profile, Reads, Run};

libfuzzer_sys::fuzz_target!(|text: &str| {
    match Profile::parse(text) {
        Ok(mut profile) => {
            assert_eq!(Profile::parse(&profile.to_toml()).as_ref(), Ok(&profile), "what was written is read");
            let reads = |code: u64| Reads { asked_bytes: 2 << 20, read_bytes: code % (2 << 20) };
            let by_code = profile.codes.iter().map(|code| (code.code, reads(code.code))).collect();
            profile.learn(&Run { read_bytes: 1 << 30, by_code });
            let bytes = profile.table(|path| Some(path.len() as u64));
            let table = Table::new(&bytes).expect("a table");
            for code in profile.codes.iter().filter(|code| code.advised && !profile.is_left_alone()) {
                assert_eq!(table.class(code.code, 0), Some(code.class.class(code.run_bytes)));
            }
            profile.drop_stale(|_| None);
        }
        Err(error) => assert!(!error.to_string().contains('\n'), "one line"),
    }
});
