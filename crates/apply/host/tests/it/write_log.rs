//! A disk with a write log in a cache: what is acknowledged survives, goes home later, and is never missing from what is served.

use std::path::Path;
use std::time::{Duration, Instant};

use nigh_host::{BLOCK, ChangeError, DiskSettings, Host, Settings, WriteLogSettings, WriteLogStatistics, WriteMode};

const SIZE: u64 = 4 << 20;

fn settings(target: &str, log: Option<&Path>) -> DiskSettings {
    let write_log = log.map(|log| WriteLogSettings { target: log.to_str().unwrap().parse().unwrap(), bytes: 2 << 20 });
    DiskSettings { write_log, write_mode: WriteMode::Through, ..DiskSettings::new("disk", target.parse().unwrap()) }
}

fn start(disk: DiskSettings) -> Result<Host, String> {
    Host::start(Settings::new(1 << 20, "lru".parse().unwrap(), vec![disk])).map_err(|error| error.to_string())
}

fn log(host: &Host) -> WriteLogStatistics {
    host.disk_statistics(&host.disk("disk").unwrap()).write_log.unwrap()
}

#[test]
fn a_write_waits_for_the_log_and_not_for_the_disk() {
    let folder = tempfile::tempdir().unwrap();
    let (image, path) = (folder.path().join("image"), folder.path().join("log"));
    std::fs::File::create(&image).unwrap().set_len(SIZE).unwrap();
    let plain = image.to_str().unwrap();
    let host = start(settings(&format!("delay:2s:{plain}"), Some(&path))).unwrap();
    let session = host.open("disk").unwrap();
    let begin = Instant::now();
    for value in 0..40u8 {
        session.write(u64::from(value) * BLOCK, &[value + 1; BLOCK as usize], value % 4 == 0).unwrap();
    }
    session.flush().unwrap();
    assert!(begin.elapsed() < Duration::from_secs(60), "40 writes and 11 flushes waited for a disk of 2 s");
    let state = log(&host);
    assert!(state.records > 0 && state.log_writes >= 11 && state.used_bytes > 0, "{state:?}");
    assert!(!std::fs::read(&image).unwrap().contains(&40), "it was not to be home yet");
    drop(session);
    host.shut_down().unwrap();
    // Refused without the log; all there with it, whatever is home by now.
    let error = start(settings(plain, None)).err().unwrap();
    assert!(error.contains("write-log="), "{error}");
    let host = start(settings(plain, Some(&path))).unwrap();
    let session = host.open("disk").unwrap();
    let mut block = [0; BLOCK as usize];
    for value in 0..40u8 {
        session.read(u64::from(value) * BLOCK, &mut block).unwrap();
        assert!(block == [value + 1; BLOCK as usize], "block {value}");
    }
    host.drain("disk").unwrap();
    let home = std::fs::read(&image).unwrap();
    assert!((0..40).all(|at| home[at * BLOCK as usize] == at as u8 + 1), "a drain leaves nothing in the log");
    assert_eq!(log(&host).records, 0);
    assert!(matches!(host.set("disk", |disk| disk.write_log = None), Err(ChangeError::WriteLog(_))));
    drop(session);
    host.shut_down().unwrap();
    let host = start(settings(plain, None)).unwrap();
    assert!(matches!(host.drain("disk"), Err(ChangeError::NoWriteLog(_))));
}
