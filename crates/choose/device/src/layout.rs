//! The position of a sector on a disk, and the time at which it passes under its head.

use crate::seek::SeekCurve;

/// Cylinders with equally many sectors on each track.
#[derive(Clone, Debug)]
struct Zone {
    first_sector: u64,
    first_cylinder: u64,
    /// Sectors of a track.
    per_track: u64,
    /// The offset of a track's start from that of the previous head, in sectors, so that a head switch does not lose a
    /// rotation.
    head_skew: u64,
    /// The same from one cylinder to the next.
    cylinder_skew: u64,
}

/// The sectors of a disk, counted from the outermost cylinder inwards, all heads of a cylinder before the next.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    rotation_ns: u64,
    heads: u64,
    zones: Vec<Zone>,
}

/// The position of a sector.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) cylinder: u64,
    pub(crate) head: u64,
    /// Sectors from here to the end of the track, including this one.
    pub(crate) left: u64,
    per_track: u64,
    rotation_ns: u64,
    /// Sectors since the index, of this track's size; wraps at the end of the track.
    turned: u64,
}

impl Place {
    /// The time at which the `count`th sector from here begins, measured from the index and modulo a rotation.
    pub(crate) fn passes_ns(&self, count: u64) -> u64 {
        // Whole sectors are added before the division: a consecutive transfer then begins exactly at the end of the
        // previous one and never misses it.
        (self.turned + count) * self.rotation_ns / self.per_track
    }

    /// The time of `count` sectors from here.
    pub(crate) fn span_ns(&self, count: u64) -> u64 {
        self.passes_ns(count) - self.passes_ns(0)
    }

    /// The number of whole sectors from here that pass in `ns`.
    pub(crate) fn sectors_in(&self, ns: u64) -> u64 {
        let mut count = (ns * self.per_track / self.rotation_ns).min(self.left);
        while count > 0 && self.span_ns(count) > ns {
            count -= 1;
        }
        count
    }
}

impl Layout {
    /// `zones` are cylinders and sectors of each of their tracks, outermost first.
    pub(crate) fn new(rpm: f64, heads: u64, zones: &[(u64, u64)], seek: &SeekCurve, head_switch_ns: u64) -> Layout {
        let rotation_ns = (60e9 / rpm).round() as u64;
        let cylinder_switch_ns = ((seek.ms(1) * 1e6).round() as u64).max(head_switch_ns);
        let (mut first_sector, mut first_cylinder) = (0, 0);
        let mut laid = Vec::with_capacity(zones.len());
        for &(cylinders, per_track) in zones {
            let skew = |switch_ns: u64| (switch_ns * per_track).div_ceil(rotation_ns) % per_track;
            laid.push(Zone {
                first_sector,
                first_cylinder,
                per_track,
                head_skew: skew(head_switch_ns),
                cylinder_skew: skew(cylinder_switch_ns),
            });
            first_sector += cylinders * heads * per_track;
            first_cylinder += cylinders;
        }
        Layout { rotation_ns, heads, zones: laid }
    }

    pub(crate) fn rotation_ns(&self) -> u64 {
        self.rotation_ns
    }

    /// The position of a sector of the disk.
    pub(crate) fn place(&self, sector: u64) -> Place {
        let at = self.zones.partition_point(|zone| zone.first_sector <= sector) - 1;
        let zone = &self.zones[at];
        let within = sector - zone.first_sector;
        let (track, on_track) = (within / zone.per_track, within % zone.per_track);
        let (cylinder, head) = (track / self.heads, track % self.heads);
        let skew = cylinder * ((self.heads - 1) * zone.head_skew + zone.cylinder_skew) + head * zone.head_skew;
        Place {
            cylinder: zone.first_cylinder + cylinder,
            head,
            left: zone.per_track - on_track,
            per_track: zone.per_track,
            rotation_ns: self.rotation_ns,
            turned: skew % zone.per_track + on_track,
        }
    }
}
