#![no_main]

//! A device with a write log: changes, and bytes of the device that others wrote, some with right checksums. Whatever it has, it is opened or
//! refused, an opened one works, and opens again with the same groups.

use libfuzzer_sys::fuzz_target;
use nigh_writelog::{BLOCK, Change, Kind, Log, OpenError, Opened, Owner, RING_OFFSET, Settings, Sum, format, open};

const ID: [u8; 16] = [7; 16];
const DISK: u64 = 64 * BLOCK;
const DEVICE: usize = RING_OFFSET as usize + 40 * BLOCK as usize;

struct Device(Vec<u8>);

impl Device {
    fn write(&mut self, at: u64, bytes: &[u8]) {
        self.0[at as usize..][..bytes.len()].copy_from_slice(bytes);
    }

    fn open(&self, owner: Owner) -> Result<Opened, OpenError<String>> {
        open(Settings::default(), self.0.len() as u64, DISK, owner, 0, |at, to| {
            let end = (at as usize).checked_add(to.len()).filter(|end| *end <= self.0.len());
            to.copy_from_slice(&self.0[at as usize..end.ok_or("beyond the end of the device")?]);
            Ok(())
        })
    }

    /// Makes the checksum of a block right.
    fn seal(&mut self, block: usize) {
        let block = &mut self.0[block * BLOCK as usize..][..BLOCK as usize];
        let (bytes, at) = block.split_at_mut(BLOCK as usize - 8);
        let mut sum = Sum::default();
        sum.add(bytes);
        at.copy_from_slice(&sum.value().to_le_bytes());
    }

    fn commit(&mut self, log: &mut Log, now_us: u64) {
        let Some(commit) = log.next_commit(now_us) else { return };
        if let Some((at, block)) = commit.superblock {
            self.write(at, &block[..]);
        }
        if let Some(group) = commit.group {
            let data = vec![1; (group.data_blocks() * BLOCK) as usize];
            let mut sum = Sum::default();
            sum.add(&data);
            let header = log.header(&group, sum.value());
            self.write(group.offset, &header[..]);
            self.write(group.offset + BLOCK, &data);
        }
        log.committed();
    }
}

/// A flush, and everything that is then done at home.
fn write_home(log: &mut Log, now_us: u64) {
    log.flush();
    for _ in 0..1000 {
        if log.next_home(now_us).is_none() {
            break;
        }
        log.home_done(now_us, true);
    }
}

fuzz_target!(|bytes: &[u8]| {
    let mut device = Device(format(ID, DEVICE as u64, DISK).unwrap());
    device.0.resize(DEVICE, 0);
    let Opened { mut log, phases, .. } = device.open(Owner::Log(ID)).unwrap();
    phases.iter().flatten().for_each(|(at, bytes)| device.write(*at, bytes));
    let mut owner = Owner::Log(ID);
    for (step, order) in bytes.chunks(8).enumerate() {
        let mut number = [0; 8];
        number[..order.len()].copy_from_slice(order);
        let [kind, first, length, rest @ ..] = number;
        let start = u64::from(first) % 64 * BLOCK;
        let range = start..(start + (1 + u64::from(length) % 8) * BLOCK).min(DISK);
        let mut submit = |kind| log.submit(step as u64, Change { kind, range: range.clone() });
        match kind % 9 {
            0 | 1 => submit(Kind::Data),
            2 => submit(Kind::Zeroes { keep: first % 2 == 0 }),
            3 => submit(Kind::Discard),
            4 => device.commit(&mut log, step as u64),
            5 => write_home(&mut log, step as u64),
            // The fields of superblocks and headers are at the beginning of a block.
            6 | 7 => {
                let block = usize::from(first) % (DEVICE / BLOCK as usize);
                let at = block * BLOCK as usize + usize::from(length) * 2;
                device.0[at..at + rest.len()].copy_from_slice(&rest);
                if kind % 9 == 6 {
                    device.seal(block);
                }
            }
            _ => owner = [Owner::Unknown, Owner::Nobody([9; 16]), Owner::Log(ID)][usize::from(first) % 3],
        }
    }
    let Ok(Opened { mut log, phases, groups }) = device.open(owner) else { return };
    log.check();
    phases.iter().flatten().for_each(|(at, bytes)| device.write(*at, bytes));
    let id = log.id();
    assert_eq!(device.open(Owner::Log(id)).map(|opened| opened.groups), Ok(groups));
    let reading = log.read(0..DISK);
    assert_eq!(reading.pieces.iter().map(|piece| piece.range.end - piece.range.start).sum::<u64>(), DISK);
    log.unpin(reading.pin);
    log.submit(0, Change { kind: Kind::Data, range: 0..DISK });
    for now_us in 0..20 {
        device.commit(&mut log, now_us);
        write_home(&mut log, now_us);
        log.check();
    }
    let _ = log.missing(4);
});
