//! Clients whose export is removed while they wait for it.

use std::time::{Duration, Instant};

use crate::hung::{MIB, connect, ctl, quickly};
use crate::serving::Folder;

/// Requests before the removal of the export are done and answered; none is after it, and another export is not affected.
#[test]
fn lost_exports_answer_what_was_asked() {
    let folder = Folder::new();
    let image = folder.image("image", &[7; 4 * MIB]);
    let (config, control) = (folder.text("nigh.toml"), folder.text("control"));
    let export = |name: &str, target: &str| format!("[[export]]\nname = '{name}'\ntarget = '{target}'\n");
    let well = export("well", "memory:16M");
    let both = well.clone() + &export("lost", &format!("delay:1s:{image}"));
    std::fs::write(&config, &both).unwrap();
    let server = folder.serve(&["--config", &config, "--control", &control]);
    for (round, by_reload) in [(1, false), (2, true)] {
        let mut well_client = connect(&server.socket, "well");
        let mut client = connect(&server.socket, "lost");
        client.submit_write(0, &[round; 4096], false).unwrap();
        for at in 1..4 {
            client.submit_read((at * MIB) as u64, vec![0; 4096]).unwrap();
        }
        // The server has all of them.
        std::thread::sleep(Duration::from_millis(300));
        let begin = Instant::now();
        let remover = std::thread::spawn({
            let (config, control, well) = (config.clone(), control.clone(), well.clone());
            move || {
                let arguments: &[&str] = if by_reload { &["reload"] } else { &["export", "remove", "lost"] };
                if by_reload {
                    std::fs::write(config, well).unwrap();
                }
                let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_nigh"));
                let output = command.args(["ctl", "--control", &control]).args(arguments).output().unwrap();
                assert!(output.status.success(), "{output:?}");
            }
        });
        let mut answered = 0;
        while client.in_flight() > 0 {
            let completion = client.receive().expect("an answer to what was asked before");
            answered += 1;
            completion.result.expect("it succeeds");
            assert!(completion.buffer.is_empty() || completion.buffer == [7; 4096], "another block");
        }
        assert_eq!(answered, 4);
        assert!(client.read(0, 4096).is_err(), "a client of a removed export is served");
        quickly("another export", || well_client.write(0, &[1; 4096]).unwrap());
        remover.join().unwrap();
        assert!(begin.elapsed() < Duration::from_secs(15), "a removal takes {:?}", begin.elapsed());
        assert_eq!(std::fs::read(&image).unwrap()[..4096], [round; 4096], "what was acknowledged is not written");
        let status = ctl(&folder, &["status"]);
        assert!(!status.contains("lost"), "{status}");
        std::fs::write(&config, &both).unwrap();
        ctl(&folder, &["reload"]);
        assert_eq!(connect(&server.socket, "lost").read(0, 4096).unwrap(), [round; 4096]);
    }
    server.end();
}
