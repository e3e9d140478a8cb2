//! A hard disk: one arm, rotation, zones, and a buffer that the drive reads ahead into.
//!
//! Requests are served one after the other, in the order of their start: command queueing in the drive is not modelled,
//! because the host's scheduler orders the requests.

use std::collections::VecDeque;

use crate::layout::{Layout, Place};
use crate::profile::DiskProfile;
use crate::seek::SeekCurve;
use crate::write_buffer::WriteBuffer;
use crate::{Kind, SECTOR_BYTES, Served, transfer_ns};

/// Consecutive sectors in the drive's buffer.
#[derive(Clone, Copy, Debug)]
struct Segment {
    first: u64,
    end: u64,
}

/// The heads, over a track.
#[derive(Clone, Copy, Debug)]
struct Arm {
    cylinder: u64,
    head: u64,
    /// The time at which it is free: the end of the last transfer.
    at_ns: u64,
}

#[derive(Clone, Debug)]
pub(crate) struct Disk {
    layout: Layout,
    seek: SeekCurve,
    sectors: u64,
    overhead_ns: u64,
    hit_overhead_ns: u64,
    head_switch_ns: u64,
    write_settle_ns: u64,
    interface_bytes_per_s: f64,
    /// The rotation of the platters at time 0.
    phase_ns: u64,
    arm: Arm,
    /// The segments read, most recently used first. The drive continues to read at the end of the first one while
    /// `ahead_to` is beyond it.
    segments: VecDeque<Segment>,
    segments_max: usize,
    segment_sectors: u64,
    ahead_to: u64,
    writes: Option<WriteBuffer>,
}

impl Disk {
    pub(crate) fn new(profile: &DiskProfile, bytes: u64, random: u64) -> Disk {
        let layout = Layout::new(profile.rpm, profile.heads, &profile.zones, &profile.seek, ns(profile.head_switch_ms));
        let phase_ns = random % layout.rotation_ns();
        let segments_max = profile.buffer_segments as usize;
        let buffer_sectors = profile.buffer_kib * 1024 / SECTOR_BYTES;
        Disk {
            layout,
            seek: profile.seek.clone(),
            sectors: bytes / SECTOR_BYTES,
            overhead_ns: ns(profile.overhead_ms),
            hit_overhead_ns: ns(profile.hit_overhead_ms),
            head_switch_ns: ns(profile.head_switch_ms),
            write_settle_ns: ns(profile.seek_write_extra_ms),
            interface_bytes_per_s: profile.interface_mb_per_s * 1e6,
            phase_ns,
            arm: Arm { cylinder: 0, head: 0, at_ns: 0 },
            segments: VecDeque::with_capacity(segments_max),
            segments_max,
            segment_sectors: buffer_sectors / profile.buffer_segments.max(1),
            ahead_to: 0,
            writes: profile.write_cache.then(|| WriteBuffer::new(profile.buffer_kib * 1024)),
        }
    }

    pub(crate) fn serve(&mut self, now: u64, kind: Kind, offset: u64, bytes: u64) -> Served {
        let ready = now + self.overhead_ns;
        let (first, end) = (offset / SECTOR_BYTES, (offset + bytes).div_ceil(SECTOR_BYTES).min(self.sectors));
        match kind {
            Kind::Read if first < end => self.read(now, first, end),
            Kind::Write if first < end => self.write(ready, first, end),
            Kind::Flush => Served { at: self.writes.as_ref().map_or(ready, |writes| writes.empty_at(ready)), seeks: 0 },
            Kind::Read | Kind::Write | Kind::Trim => Served { at: ready, seeks: 0 },
        }
    }

    fn read(&mut self, now: u64, first: u64, end: u64) -> Served {
        let known = now + self.hit_overhead_ns;
        self.read_ahead(known);
        let transfer = transfer_ns((end - first) * SECTOR_BYTES, self.interface_bytes_per_s);
        let found = self.segments.iter().position(|held| (held.first..=held.end).contains(&first));
        let segment = match found {
            Some(at) => self.segments[at],
            None => Segment { first, end: first },
        };
        if end <= segment.end {
            // Served from the buffer. If the arm is there, it continues to read ahead after the last request.
            if found == Some(0) {
                self.ahead_to = self.ahead_to.max(self.ahead_limit(end));
            }
            return Served { at: known + transfer, seeks: 0 };
        }
        let reading_it = found == Some(0) && segment.end < self.ahead_to;
        let (ready, seeks) = match reading_it {
            true => (known, 0),
            false => (now + self.overhead_ns, self.move_arm(now + self.overhead_ns, segment.end, 0)),
        };
        let (arm, _) = self.stream(self.arm, segment.end, end, u64::MAX);
        self.arm = arm;
        if let Some(at) = found {
            self.segments.remove(at);
        }
        self.keep(Segment { first: segment.first, end });
        self.ahead_to = if self.segments.is_empty() { 0 } else { self.ahead_limit(end) };
        Served { at: arm.at_ns.max(ready + transfer), seeks }
    }

    fn write(&mut self, ready: u64, first: u64, end: u64) -> Served {
        self.read_ahead(ready);
        self.ahead_to = 0;
        self.segments.retain(|held| held.end <= first || end <= held.first);
        let bytes = (end - first) * SECTOR_BYTES;
        let begin = self.writes.as_mut().map_or(ready, |writes| writes.room_at(ready, bytes));
        let received = begin + transfer_ns(bytes, self.interface_bytes_per_s);
        let seeks = self.move_arm(begin, first, self.write_settle_ns);
        let (arm, _) = self.stream(self.arm, first, end, u64::MAX);
        self.arm = arm;
        let at = match &mut self.writes {
            None => arm.at_ns.max(received),
            Some(writes) => {
                writes.hold(arm.at_ns, bytes);
                received
            }
        };
        Served { at, seeks }
    }

    /// Adds the sectors that the drive has read ahead by `now` to the buffer.
    fn read_ahead(&mut self, now: u64) {
        let Some(segment) = self.segments.front().copied().filter(|segment| segment.end < self.ahead_to) else {
            return;
        };
        let (arm, end) = self.stream(self.arm, segment.end, self.ahead_to, now);
        self.arm = arm;
        self.segments.pop_front();
        self.keep(Segment { first: segment.first, end });
    }

    /// The end of the drive's read-ahead when the host has received everything before `end`.
    fn ahead_limit(&self, end: u64) -> u64 {
        (end + self.segment_sectors).min(self.sectors)
    }

    /// Makes `segment` the most recent one, limited to the available room.
    fn keep(&mut self, mut segment: Segment) {
        if self.segment_sectors == 0 {
            return;
        }
        segment.first = segment.first.max(segment.end.saturating_sub(self.segment_sectors));
        self.segments.push_front(segment);
        self.segments.truncate(self.segments_max);
    }

    /// Moves the arm to `sector`, starting at `now`, with this additional settle time; returns the number of seeks: 0
    /// or 1.
    fn move_arm(&mut self, now: u64, sector: u64, extra_ns: u64) -> u64 {
        let place = self.layout.place(sector);
        let begin = self.arm.at_ns.max(now);
        let seeks = u64::from(place.cylinder != self.arm.cylinder);
        let moved = self.move_ns(&self.arm, &place);
        let extra_ns = if moved > 0 { extra_ns } else { 0 };
        self.arm = Arm { cylinder: place.cylinder, head: place.head, at_ns: begin + moved + extra_ns };
        seeks
    }

    fn move_ns(&self, arm: &Arm, to: &Place) -> u64 {
        let switch = if arm.head == to.head { 0 } else { self.head_switch_ns };
        ns(self.seek.ms(arm.cylinder.abs_diff(to.cylinder) as u32)).max(switch)
    }

    /// Transfers the sectors `from..to`, track by track, as far as they have passed the head by `until`. Returns the
    /// arm after the last one and the first remaining sector.
    fn stream(&self, mut arm: Arm, mut from: u64, to: u64, until: u64) -> (Arm, u64) {
        while from < to {
            let place = self.layout.place(from);
            let over = arm.at_ns + self.move_ns(&arm, &place);
            let rotation = self.layout.rotation_ns();
            let turned = (over + self.phase_ns) % rotation;
            let begin = over + (place.passes_ns(0) % rotation + rotation - turned) % rotation;
            let wanted = place.left.min(to - from);
            let count = match begin + place.span_ns(wanted) <= until {
                true => wanted,
                false => place.sectors_in(until.saturating_sub(begin)).min(wanted),
            };
            if count == 0 {
                break;
            }
            arm = Arm { cylinder: place.cylinder, head: place.head, at_ns: begin + place.span_ns(count) };
            from += count;
            if count < wanted {
                break;
            }
        }
        (arm, from)
    }
}

fn ns(ms: f64) -> u64 {
    (ms * 1e6).round() as u64
}
