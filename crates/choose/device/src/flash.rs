//! Flash: pages spread over channels that work in parallel, behind one interface.

use crate::profile::FlashProfile;
use crate::write_buffer::WriteBuffer;
use crate::{Kind, Served, transfer_ns};

#[derive(Clone, Debug)]
pub(crate) struct Flash {
    page_bytes: u64,
    overhead_ns: u64,
    read_ns: u64,
    program_ns: u64,
    read_bytes_per_s: f64,
    write_bytes_per_s: f64,
    /// When each channel is free.
    channels: Vec<u64>,
    /// When the interface is free, in each direction.
    sending: u64,
    receiving: u64,
    writes: WriteBuffer,
}

impl Flash {
    pub(crate) fn new(profile: &FlashProfile) -> Flash {
        Flash {
            page_bytes: profile.page_bytes,
            overhead_ns: ns(profile.overhead_us),
            read_ns: ns(profile.read_us),
            program_ns: ns(profile.program_us),
            read_bytes_per_s: profile.read_mb_per_s * 1e6,
            write_bytes_per_s: profile.write_mb_per_s * 1e6,
            channels: vec![0; profile.channels as usize],
            sending: 0,
            receiving: 0,
            writes: WriteBuffer::new(profile.write_buffer_kib * 1024),
        }
    }

    pub(crate) fn serve(&mut self, now: u64, kind: Kind, offset: u64, bytes: u64) -> Served {
        let ready = now + self.overhead_ns;
        let at = match kind {
            Kind::Read => self.read(ready, offset, bytes),
            Kind::Write => self.write(ready, bytes),
            Kind::Flush => self.writes.empty_at(ready),
            Kind::Trim => ready,
        };
        Served { at, seeks: 0 }
    }

    /// The page determines the channel: neighbours are on different ones.
    fn read(&mut self, ready: u64, offset: u64, bytes: u64) -> u64 {
        let mut sent = ready;
        let (mut from, end) = (offset, offset + bytes);
        while from < end {
            let page = from / self.page_bytes;
            let part = ((page + 1) * self.page_bytes).min(end) - from;
            let at = (page % self.channels.len() as u64) as usize;
            self.channels[at] = self.channels[at].max(ready) + self.read_ns;
            self.sending = self.sending.max(self.channels[at]) + transfer_ns(part, self.read_bytes_per_s);
            sent = self.sending;
            from += part;
        }
        sent
    }

    /// Pages go to the channel that is free first: the drive decides where it writes. A write is acknowledged when it
    /// is in the drive's buffer, or, without a buffer, when it is programmed.
    fn write(&mut self, ready: u64, bytes: u64) -> u64 {
        let begin = self.writes.room_at(ready, bytes);
        self.receiving = self.receiving.max(begin) + transfer_ns(bytes, self.write_bytes_per_s);
        let mut programmed = self.receiving;
        for _ in 0..bytes.div_ceil(self.page_bytes) {
            let free = self.channels.iter_mut().min_by_key(|free| **free).expect("a profile has a channel or more");
            *free = self.receiving.max(*free) + self.program_ns;
            programmed = programmed.max(*free);
        }
        if bytes > self.writes.limit_bytes() {
            return programmed;
        }
        self.writes.hold(programmed, bytes);
        self.receiving
    }
}

fn ns(us: f64) -> u64 {
    (us * 1e3).round() as u64
}
