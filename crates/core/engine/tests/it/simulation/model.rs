//! The possible contents of each piece of a disk, given which requests were submitted and acknowledged when.
//!
//! A disk is a row of *atoms*. A write gives each of its atoms one value. A value may be seen by a read unless some
//! acknowledged write of the atom lies wholly between: it began after the value's own write had ended, and it had ended
//! before the read began. After a crash the same holds with the writes that had to survive.

/// Bytes of an atom.
pub(crate) const ATOM: usize = 128;

/// A moment: counts events.
pub(crate) type Moment = u64;

/// The value of zeros.
pub(crate) const ZEROS: u64 = 0;
/// The value that a discard leaves.
pub(crate) const DISCARDED: u64 = 1;

/// How safe an acknowledged write is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Safety {
    /// It may take effect or not.
    Failed,
    /// As `Seen`, but its volume is being closed and does not keep what is dirty.
    GivenUp,
    /// Reads see it.
    Seen,
    /// The device has it.
    Device,
    /// It is on stable storage.
    Stable,
}

#[derive(Clone, Copy, Debug)]
struct Write {
    value: u64,
    request: u64,
    began: Moment,
    ended: Option<(Moment, Safety)>,
    /// A device flush failed while it was in progress, and part of it may be lost.
    lost: bool,
}

/// The history of one disk.
pub(crate) struct Model {
    atoms: Vec<Vec<Write>>,
    salt: u64,
    /// When its volume was last closed without a flush: no engine knows which earlier writes are not stable.
    discarded: Moment,
}

/// Writes `value` as it stands in atom number `at` of the disk with this salt.
pub(crate) fn encode(value: u64, salt: u64, at: usize, out: &mut [u8]) {
    let place = if value == ZEROS { 0 } else { salt << 32 | at as u64 };
    for pair in out.chunks_exact_mut(16) {
        pair[..8].copy_from_slice(&value.to_le_bytes());
        pair[8..].copy_from_slice(&place.to_le_bytes());
    }
}

impl Model {
    pub(crate) fn new(atoms: usize, salt: u64) -> Model {
        let first = Write { value: ZEROS, request: 0, began: 0, ended: Some((0, Safety::Stable)), lost: false };
        Model { atoms: vec![vec![first]; atoms], salt, discarded: 0 }
    }

    /// The value of atom number `at` that `bytes` hold.
    fn decode(&self, at: usize, bytes: &[u8]) -> u64 {
        let value = u64::from_le_bytes(bytes[..8].try_into().expect("8 bytes"));
        let mut expected = [0; ATOM];
        encode(value, self.salt, at, &mut expected);
        assert!(bytes == expected, "atom {at} of disk {} holds bytes that nobody wrote there: {bytes:?}", self.salt);
        value
    }

    /// `request` begins to write `value`.
    pub(crate) fn begin(&mut self, now: Moment, atoms: std::ops::Range<usize>, request: u64, value: u64) {
        for atom in &mut self.atoms[atoms] {
            atom.push(Write { value, request, began: now, ended: None, lost: false });
        }
    }

    /// `request` has ended. `None`: it never happened.
    pub(crate) fn end(&mut self, now: Moment, atoms: std::ops::Range<usize>, request: u64, safety: Option<Safety>) {
        for atom in &mut self.atoms[atoms] {
            match safety {
                None => atom.retain(|write| write.request != request || write.ended.is_some()),
                Some(safety) => {
                    for write in atom.iter_mut().filter(|write| write.request == request) {
                        write.ended = Some((now, if write.lost { Safety::Failed } else { safety }));
                    }
                }
            }
        }
    }

    /// A flush that was submitted at `began` was acknowledged.
    pub(crate) fn flushed(&mut self, began: Moment) {
        for write in self.atoms.iter_mut().flatten() {
            if let Some((ended, safety)) = &mut write.ended
                && *ended < began
                && *safety >= Safety::GivenUp
            {
                *safety = Safety::Stable;
            }
        }
    }

    /// The volume was closed without keeping what was dirty.
    pub(crate) fn discard(&mut self, now: Moment) {
        self.lower(Safety::GivenUp, Safety::Failed);
        self.discarded = now;
    }

    /// Values as safe as `from` are only as safe as `to` now.
    pub(crate) fn lower(&mut self, from: Safety, to: Safety) {
        for write in self.atoms.iter_mut().flatten() {
            if let Some((_, safety)) = &mut write.ended
                && *safety == from
            {
                *safety = to;
            }
        }
    }

    /// A device flush of these atoms failed: what the device had, it may have lost, and so may the cache if `lost`.
    /// A trim that is undone may uncover any contents that were written before it.
    pub(crate) fn flush_failed(&mut self, atoms: std::ops::Range<usize>, lost: bool) {
        for atom in &mut self.atoms[atoms] {
            let is_stable = |write: &Write| matches!(write.ended, Some((_, Safety::Stable)));
            let trims = atom.iter().filter(|write| write.value == DISCARDED && !is_stable(write));
            let trimmed = trims.map(|trim| trim.ended.map_or(Moment::MAX, |(end, _)| end)).max().unwrap_or(0);
            for write in atom.iter_mut().filter(|write| !is_stable(write)) {
                let uncovered = lost || write.began < trimmed;
                match &mut write.ended {
                    Some((end, safety)) if uncovered || *end < self.discarded => *safety = Safety::Failed,
                    Some((_, safety)) => *safety = (*safety).min(Safety::Seen),
                    None => write.lost |= lost,
                }
            }
        }
    }

    fn allowed(&self, at: usize, value: u64, before: Moment, safety: Safety) -> bool {
        let atom = &self.atoms[at];
        atom.iter().filter(|write| write.value == value).any(|write| {
            let Some((ended, _)) = write.ended else { return true };
            !atom.iter().any(|other| {
                other.began > ended && other.ended.is_some_and(|(end, safe)| end < before && safe >= safety)
            })
        })
    }

    /// Checks what a read that began at `began` got from the atoms from `first` on.
    pub(crate) fn check_read(&self, began: Moment, first: usize, bytes: &[u8]) {
        for (at, atom) in (first..).zip(bytes.chunks_exact(ATOM)) {
            let value = self.decode(at, atom);
            assert!(
                self.allowed(at, value, began, Safety::Seen),
                "disk {}: a read begun at {began} got {value} in atom {at}, of {:?}",
                self.salt,
                self.atoms[at]
            );
        }
    }

    /// Checks what is left on the disk after a crash; from now on it is what the disk contains.
    pub(crate) fn check_crash(&mut self, now: Moment, image: &[u8], safety: Safety) {
        for (at, atom) in image.chunks_exact(ATOM).enumerate() {
            let value = self.decode(at, atom);
            assert!(
                self.allowed(at, value, now, safety),
                "disk {}: after a crash atom {at} is {value} although writes were {safety:?}: {:?}",
                self.salt,
                self.atoms[at]
            );
            self.atoms[at] =
                vec![Write { value, request: 0, began: now, ended: Some((now, Safety::Stable)), lost: false }];
        }
    }

    /// Forgets writes that no read submitted from `oldest` on, and no crash, can show.
    pub(crate) fn prune(&mut self, oldest: Moment) {
        for atom in &mut self.atoms {
            if atom.len() > 8 {
                let latest = atom.iter().filter_map(|write| match write.ended {
                    Some((end, Safety::Stable)) if end < oldest => Some(write.began),
                    _ => None,
                });
                let latest = latest.max().unwrap_or(0);
                atom.retain(|write| write.ended.is_none_or(|(end, _)| end >= latest));
            }
        }
    }
}
