//! Device flushes that fail.

use nigh_host::{ChangeError, DiskSettings, Fault, Host, HostError, Session, Settings, WriteMode};

const MIB: u64 = 1 << 20;
const EIO: Fault = Fault(5);

/// A host of four shards whose device fails its first flush.
fn start(memory: u64) -> (Host, Session) {
    let mut disk = DiskSettings::new("disk", "fault:flush=1:memory:16M".parse().unwrap());
    disk.write_mode = WriteMode::Through;
    let mut settings = Settings::new(memory, "lru".parse().unwrap(), vec![disk]);
    settings.shards = Some(4);
    let host = Host::start(settings).unwrap();
    let session = host.open("disk").unwrap();
    (host, session)
}

#[test]
fn flush_7_every_shard_writes_again_what_the_device_may_have_lost() {
    let (host, session) = start(64 * MIB);
    let written = || host.statistics().1[0].device_written_bytes;
    session.write(0, &vec![1; 8 << 20], false).unwrap();
    assert_eq!(written(), 8 * MIB);
    assert_eq!(session.flush(), Err(HostError::Device(EIO)));
    session.flush().unwrap();
    assert_eq!(written(), 16 * MIB, "some shards trust a device that failed a flush");
    session.write(0, &[2; 4096], true).unwrap();
    assert!(!host.statistics().1[0].data_lost);
    host.shut_down().unwrap();
}

#[test]
fn flush_7_a_disk_that_lost_data_fails_every_flush_until_it_is_removed() {
    let (host, session) = start(MIB);
    session.write(0, &vec![1; 8 << 20], false).unwrap();
    let lost = || HostError::Lost(EIO);
    for _ in 0..3 {
        assert_eq!(session.flush(), Err(HostError::Device(EIO)));
        // In every shard.
        for extent in 0..8 {
            assert_eq!(session.write(extent * MIB, &[2; 4096], true), Err(HostError::Device(EIO)));
        }
    }
    session.write(0, &[3; 4096], false).unwrap();
    let mut block = [0; 4096];
    session.read(0, &mut block).unwrap();
    assert_eq!(block, [3; 4096]);
    assert!(host.statistics().1[0].data_lost);

    let written = host.write_back(None);
    assert!(matches!(&written, Err(ChangeError::Unwritten(disk)) if disk.cause == lost()), "{written:?}");
    let removed = host.remove("disk", false);
    assert!(matches!(removed, Err(ChangeError::Lost { .. })), "{removed:?}");
    assert_eq!(session.flush(), Err(HostError::Device(EIO)));
    host.remove("disk", true).unwrap();
    host.add(DiskSettings::new("disk", "memory:16M".parse().unwrap())).unwrap();
    host.open("disk").unwrap().flush().unwrap();
    host.shut_down().unwrap();
}

#[test]
fn flush_7_the_end_of_a_host_names_disks_that_lost_data() {
    let (host, session) = start(MIB);
    session.write(0, &vec![1; 8 << 20], false).unwrap();
    assert!(session.flush().is_err());
    let unwritten = host.shut_down().unwrap_err();
    assert_eq!(
        unwritten.iter().map(|disk| (&*disk.name, disk.cause.clone())).collect::<Vec<_>>(),
        [("disk", HostError::Lost(EIO))]
    );
}
