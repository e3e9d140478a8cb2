//! The workloads as programs of the timed simulation, their files on the two disks of 5.2.

use nigh_device::Profile;
use nigh_trace::layout::{FileSize, Layout, Order, Overlap, Placement};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus as Random;

use super::{BLOCK_BYTES, Workload};
use crate::Ops;
use crate::timed::{self, Program, Recorder, Think, Volumes};

/// Assumptions about the paper's machine.
#[derive(Clone, Copy, Debug)]
pub struct Assumed {
    /// At which share of a disk the files of its second program begin.
    pub second_at: f64,
    /// Factor of the processor times of [`acfs`](super).
    pub compute: f64,
    /// Processor time of the system for each block read or written, in ns.
    pub io_ns: u64,
    /// The share of block borders inside of files where an aged file system has cut them. If it is not 0, files do not lie
    /// in the order of their numbers either, but in any order within their cylinder group, where a file was put wherever
    /// there was room.
    pub aged: f64,
}

/// A cylinder group, of 16 cylinders as usual, in bytes. The disks have 0.47 and 0.51 MB a cylinder.
const GROUP: u64 = 15 << 19;

impl Default for Assumed {
    fn default() -> Assumed {
        Assumed { second_at: 0.5, compute: 1.0, io_ns: 1_000_000, aged: 0.0 }
    }
}

/// Workloads that run together: their programs, and where their files are.
#[derive(Clone, Debug)]
pub struct Placed {
    /// In the order of the workloads.
    pub programs: Vec<Program>,
    profiles: [Profile; 2],
    layouts: [Layout; 2],
}

impl Placed {
    /// Places the files of `workloads`, numbered through. On a disk, those of a program lie one behind the other, in the
    /// order of their numbers unless the file system has [`aged`](Assumed::aged); its first program has the beginning.
    ///
    /// The programs send directives in a configuration of 5.2: about replacement if `caching`, predicted reads if
    /// `prefetching`.
    pub fn new(workloads: &[Workload], caching: bool, prefetching: bool, assumed: &Assumed) -> Result<Placed, Overlap> {
        let profiles = ["rz56", "rz26"].map(|name| Profile::named(name).expect("it comes with nigh"));
        let mut extents = [Vec::new(), Vec::new()];
        let mut first_file = 0;
        for workload in workloads {
            let disk = workload.disk as usize;
            let second = (profiles[disk].bytes() as f64 * assumed.second_at) as u64;
            let base = if extents[disk].is_empty() { 0 } else { second - second % u64::from(BLOCK_BYTES) };
            let mut files: Vec<FileSize> = (first_file..)
                .zip(&workload.files)
                .map(|(file, &bytes)| FileSize { file, bytes, path: String::new() })
                .collect();
            first_file += files.len() as u32;
            if assumed.aged > 0.0 {
                shuffle_groups(&mut files);
            }
            let placement = Placement {
                order: Order::FirstUse,
                base,
                block_bytes: BLOCK_BYTES,
                fragmentation: assumed.aged,
                seed: 1,
            };
            extents[disk].extend_from_slice(placement.place(&files)?.extents());
        }
        let [rz56, rz26] = extents.map(Layout::new);
        let layouts = [rz56?, rz26?];
        let mut programs = Vec::new();
        for workload in workloads {
            let events = workload.says(caching, prefetching);
            let think = Think::Recorded(assumed.compute);
            let mut recorder = Recorder::new(workload.name.to_owned(), think, Ops::All).saying(events);
            let mut placed = Vec::new();
            for request in &workload.requests {
                layouts[workload.disk as usize].place(request, &mut placed).expect("every file has its place");
            }
            debug_assert_eq!(placed.len(), workload.requests.len(), "files are in one piece");
            recorder.push(&placed, &mut Volumes::default()).expect("all are on one disk");
            let mut program = recorder.finish();
            program.steps.iter_mut().for_each(|step| step.disk = workload.disk as u16);
            programs.push(program);
        }
        Ok(Placed { programs, profiles, layouts })
    }

    /// The two disks.
    pub fn disks(&self) -> [timed::Disk<'_>; 2] {
        [0, 1].map(|at| timed::Disk { profile: &self.profiles[at], layouts: std::slice::from_ref(&self.layouts[at]) })
    }
}

/// Puts the files of each cylinder group in random order.
fn shuffle_groups(files: &mut [FileSize]) {
    let mut random = Random::seed_from_u64(1);
    let mut first = 0;
    while first < files.len() {
        let mut bytes = 0;
        let fit = files[first..].iter().take_while(|file| {
            let fits = bytes < GROUP;
            bytes += file.bytes;
            fits
        });
        let end = first + fit.count();
        let group = &mut files[first..end];
        for last in (1..group.len()).rev() {
            group.swap(last, random.random_range(0..=last));
        }
        first = end;
    }
}
