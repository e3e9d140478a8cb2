//! The five workloads of DULO's simulation (FAST 2005, 4.1.1, table 2) and three more, of recorded programs and seeded ones, with their
//! files on one disk.
//!
//! The authors' traces are not public. Their substitutes, and why:
//!
//! * cscope and gcc are recorded programs (`pc/` of the shared traces), over several copies of the tree that they were
//!   recorded on and several times, so that they need as much memory as those of the paper. In multi1, they make 1.1
//!   and 0.2 million references, which are the 1.6 million of table 2 with those of viewperf.
//! * glimpse is a program after 4.2.3: queries of 50 keywords, each reads the index, 12 MB, and all files of the
//!   partitions that match, of 256; a few files of each partition lie elsewhere. Its files are those of a recorded search.
//! * lxr is the same with the queries of 25 clients at once, as in 4.2.3. The paper measures this one, and does not simulate it.
//! * viewperf reads 289 files from first to last, several times: 99 % of its references are sequential.
//! * tpc-h is a program of queries: each probes a few tables of 49 at random, block by block, as a join does by an index.
//!   It has a quarter of the paper's size and references; `tpc-h-whole` has all of them, and `multi2-whole` is made of it.
//! * smm is the paging of 4.2.4: SciMark2's multiplication of a sparse matrix, page by page, with its arrays in swap one
//!   behind the other, as they were swapped out after they had been filled.
//! * `multi1-short` and `multi2-zipf` are the first versions of multi1 and multi2, which were changed after their results
//!   were known, and `tpc-h-zipf` is a part of the latter. In the first one, gcc does less and cscope more. In the second,
//!   tpc-h refers to all its blocks by Zipf's law.
//!
//! Files lie in the order of their paths, as after unpacking.

use std::collections::HashMap;
use std::io::BufWriter;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use fastrand::Rng;
use nigh_trace::generate::{Common, Generator};
use nigh_trace::layout::{FileSize, Layout, Order, Placement, read_files, write_extents};
use nigh_trace::write::{Destination, WriteOptions, Writer};
use nigh_trace::{Op, ReadOptions, Request, Requests};

use crate::measure;

pub(crate) const BLOCK_BYTES: u32 = 4096;
const MIB: u64 = 1 << 20;
/// Bytes of a request when a program reads a whole file.
const READ_BYTES: u32 = 32 << 10;
/// Place of the first file.
const FIRST: u64 = 2 << 30;
/// Of the workloads in docs.
pub(crate) const SEED: u64 = 1;

/// A workload on disk: programs that run at the same time.
pub(crate) struct Workload {
    pub(crate) name: &'static str,
    /// A trace for each program.
    pub(crate) programs: Vec<PathBuf>,
    /// Places of the files.
    pub(crate) extents: PathBuf,
    pub(crate) character: Character,
}

/// A row of table 2.
pub(crate) struct Character {
    pub(crate) references: u64,
    pub(crate) bytes: u64,
    pub(crate) files: usize,
    /// Share of the references to the block of a file behind the one that the same program referred to before.
    pub(crate) sequential: f64,
}

type Make = fn(&mut Disk, &Path) -> anyhow::Result<Vec<Program>>;

const WORKLOADS: [(&str, Make); 14] = [
    ("viewperf", |disk, _| Ok(vec![viewperf(disk, 495 * MIB)])),
    ("tpc-h", |disk, _| Ok(vec![tpc_h(disk)])),
    ("tpc-h-whole", |disk, _| Ok(vec![tpc_h_whole(disk)])),
    ("tpc-h-zipf", |disk, _| Ok(vec![tpc_h_zipf(disk)?])),
    ("smm", |disk, _| Ok(vec![smm(disk)])),
    ("cscope", |disk, traces| Ok(vec![recorded(disk, traces, "cscope_build", 3, 3)?])),
    ("glimpse", |disk, traces| glimpse(disk, traces, 1)),
    ("lxr", |disk, traces| glimpse(disk, traces, LXR_CLIENTS)),
    ("sqlite", |disk, traces| Ok(vec![recorded(disk, traces, "sqlite", 3, 2)?])),
    ("multi1", |disk, traces| multi1(disk, traces, [4, 15], [4, 1])),
    ("multi1-short", |disk, traces| multi1(disk, traces, [4, 3], [4, 2])),
    ("multi2", |disk, traces| {
        let mut programs = glimpse(disk, traces, 1)?;
        programs.push(tpc_h(disk));
        Ok(programs)
    }),
    ("multi2-whole", |disk, traces| {
        let mut programs = glimpse(disk, traces, 1)?;
        programs.push(tpc_h_whole(disk));
        Ok(programs)
    }),
    ("multi2-zipf", |disk, traces| {
        let mut programs = glimpse(disk, traces, 1)?;
        programs.push(tpc_h_zipf(disk)?);
        Ok(programs)
    }),
];
/// Clients of the Web server of 4.2.3.
const LXR_CLIENTS: usize = 25;

/// Makes the workloads named, or all, with random numbers of `seed`; those whose recorded programs are missing are skipped by name.
pub(crate) fn make(only: &[String], seed: u64) -> anyhow::Result<Vec<Workload>> {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..");
    let traces = root.join("../shared/traces/pc");
    let folder = measure::folder()?.with_file_name("workloads");
    if let Some(unknown) = only.iter().find(|wanted| WORKLOADS.iter().all(|(name, _)| name != wanted)) {
        bail!("no workload is called {unknown}: there are {}", WORKLOADS.map(|(name, _)| name).join(", "));
    }
    let mut made = Vec::new();
    for (name, make) in WORKLOADS {
        if !only.is_empty() && !only.iter().any(|wanted| wanted == name) {
            continue;
        }
        if !traces.is_dir() && !name.starts_with("tpc-h") && !["viewperf", "smm"].contains(&name) {
            println!("skipped: {name}: no {}", traces.display());
            continue;
        }
        let mut disk = Disk { files: Vec::new(), seed };
        let programs = make(&mut disk, &traces)?;
        made.push(write(name, &folder.join(name), &disk, &programs)?);
    }
    Ok(made)
}

/// Prints table 2.
pub(crate) fn run() -> anyhow::Result<()> {
    println!("{:14}{:>12}{:>8}{:>8}{:>12}  programs", "workload", "references", "MB", "files", "sequential");
    for workload in make(&[], SEED)? {
        let Character { references, bytes, files, sequential } = workload.character;
        let names: Vec<_> = workload.programs.iter().filter_map(|path| path.file_stem()?.to_str()).collect();
        print!("{:14}{references:>12}{:>8}{files:>8}{:>11.0}%", workload.name, bytes / MIB, 100.0 * sequential);
        println!("  {}", if names.len() > 4 { format!("{} programs", names.len()) } else { names.join(" ") });
    }
    Ok(())
}

/// The files of a workload, numbered from 0.
struct Disk {
    files: Vec<FileSize>,
    /// Of what is random in the workload.
    seed: u64,
}

impl Disk {
    fn add(&mut self, path: String, bytes: u64) -> u32 {
        let file = self.files.len() as u32;
        self.files.push(FileSize { file, bytes, path });
        file
    }
}

struct Program {
    name: String,
    requests: Vec<Request>,
}

/// A recorded program's reads: of `copies` trees one after the other, and that `rounds` times.
fn recorded(disk: &mut Disk, traces: &Path, name: &'static str, copies: u32, rounds: u32) -> anyhow::Result<Program> {
    let mut trace = nigh_trace::open(&traces.join(format!("{name}.csv.gz")), &ReadOptions::default())?.requests;
    let mut once = all(&mut *trace)?;
    once.retain(|request| request.op == Op::Read && request.length > 0);
    let listed = read_files(&traces.join(format!("{name}.files.csv.gz")))?;
    let mut ends: HashMap<u32, u64> = listed.iter().map(|file| (file.file, file.bytes)).collect();
    for request in &once {
        let end = ends.entry(request.volume).or_default();
        *end = (*end).max(request.offset + u64::from(request.length));
    }
    let mut round = Vec::new();
    for copy in 0..copies {
        let mut places = HashMap::new();
        for file in &listed {
            let path = format!("{name}/{copy}{}", file.path);
            places.insert(file.file, disk.add(path, ends[&file.file]));
        }
        for request in &once {
            let volume = *places.get(&request.volume).context("a file that is not listed")?;
            round.push(Request { volume, ..*request });
        }
    }
    Ok(Program { name: name.to_owned(), requests: round.repeat(rounds as usize) })
}

/// With the copies and rounds of cscope and gcc.
fn multi1(disk: &mut Disk, traces: &Path, cscope: [u32; 2], gcc: [u32; 2]) -> anyhow::Result<Vec<Program>> {
    Ok(vec![
        recorded(disk, traces, "cscope_build", cscope[0], cscope[1])?,
        recorded(disk, traces, "gcc_build", gcc[0], gcc[1])?,
        viewperf(disk, 495 * MIB),
    ])
}

fn viewperf(disk: &mut Disk, bytes: u64) -> Program {
    const FILES: u64 = 289;
    let mut random = Rng::with_seed(disk.seed);
    let mut requests = Vec::new();
    for number in 0..FILES {
        let size = random.u64(bytes / FILES / 4..bytes / FILES * 7 / 4);
        let file = disk.add(format!("viewperf/{number:03}"), size);
        read_file(&mut requests, file, size);
    }
    Program { name: "viewperf".to_owned(), requests: requests.repeat(3) }
}

fn tpc_h(disk: &mut Disk) -> Program {
    queries(disk, 300 * MIB, 40_000, 0.0)
}

/// With the size, the references and the share of sequential ones of table 2.
fn tpc_h_whole(disk: &mut Disk) -> Program {
    queries(disk, 1187 * MIB, 168_750, 0.03)
}

/// Queries of `probes` each on tables of `bytes`; a `sequential` share of the probes are of the block behind the last one.
fn queries(disk: &mut Disk, bytes: u64, probes: usize, sequential: f64) -> Program {
    const TABLES: u64 = 49;
    const QUERIES: usize = 80;
    const JOINED: usize = 4;
    let bytes = bytes / TABLES / u64::from(BLOCK_BYTES) * u64::from(BLOCK_BYTES);
    let tables: Vec<u32> = (0..TABLES).map(|number| disk.add(format!("tpc-h/{number:02}"), bytes)).collect();
    let mut random = Rng::with_seed(disk.seed);
    let mut requests: Vec<Request> = Vec::with_capacity(QUERIES * probes);
    for _ in 0..QUERIES {
        let joined: Vec<u32> = (0..JOINED).map(|_| tables[random.usize(..tables.len())]).collect();
        for _ in 0..probes {
            let last = requests.last().filter(|last| last.offset + u64::from(BLOCK_BYTES) < bytes);
            let next = last.filter(|_| sequential > 0.0 && random.f64() < sequential).copied();
            requests.push(next.map_or_else(
                || {
                    let volume = joined[random.usize(..JOINED)];
                    let offset = random.u64(..bytes / u64::from(BLOCK_BYTES)) * u64::from(BLOCK_BYTES);
                    Request { volume, offset, length: BLOCK_BYTES, ..Request::default() }
                },
                |last| Request { offset: last.offset + u64::from(BLOCK_BYTES), ..last },
            ));
        }
    }
    Program { name: "tpc-h".to_owned(), requests }
}

/// 15 multiplications of a matrix of 2^20 rows and 2^23 values with a vector (4.2.4). As in SciMark2, the values of row r
/// are in the columns 0, r/8, 2r/8, … 7r/8. A page is referenced again once its array was at another page in between.
fn smm(disk: &mut Disk) -> Program {
    const ROWS: u64 = 1 << 20;
    const A_ROW: u64 = 8;
    const PASSES: usize = 15;
    const LONG: u64 = 8;
    const INT: u64 = 4;
    let mut array = |name: &str, bytes: u64| disk.add(format!("smm/{name}"), bytes);
    let [columns, result, rows, values, vector] = [
        array("columns", ROWS * A_ROW * INT),
        array("result", ROWS * LONG),
        array("rows", (ROWS + 1) * INT),
        array("values", ROWS * A_ROW * LONG),
        array("vector", ROWS * LONG),
    ];
    let mut requests = Vec::new();
    for _ in 0..PASSES {
        // The page at which each of the arrays is; the vector is read at eight places.
        let mut at = [u64::MAX; 4 + A_ROW as usize];
        let mut touch = |place: usize, volume: u32, byte: u64| {
            let page = byte / u64::from(BLOCK_BYTES);
            if std::mem::replace(&mut at[place], page) != page {
                let offset = page * u64::from(BLOCK_BYTES);
                requests.push(Request { volume, offset, length: BLOCK_BYTES, ..Request::default() });
            }
        };
        for row in 0..ROWS {
            touch(0, rows, row * INT);
            touch(1, columns, row * A_ROW * INT);
            touch(2, values, row * A_ROW * LONG);
            for value in 0..A_ROW {
                touch(4 + value as usize, vector, value * (row / A_ROW).max(1) * LONG);
            }
            touch(3, result, row * LONG);
        }
    }
    Program { name: "smm".to_owned(), requests }
}

/// Refers to all blocks by Zipf's law.
fn tpc_h_zipf(disk: &mut Disk) -> anyhow::Result<Program> {
    const BLOCKS: u64 = 300 * MIB / BLOCK_BYTES as u64;
    const FILES: u64 = 8;
    let common = Common { requests: 3_400_000, block_bytes: BLOCK_BYTES, seed: disk.seed, ..Common::default() };
    let mut requests = all(&mut *Generator::parse(&format!("zipf:blocks={BLOCKS}:alpha=0.6"), &common)?)?;
    let bytes = BLOCKS / FILES * u64::from(BLOCK_BYTES);
    let files: Vec<u32> = (0..FILES).map(|number| disk.add(format!("tpc-h/{number}"), bytes)).collect();
    for request in &mut requests {
        request.volume = files[(request.offset / bytes) as usize];
        request.offset %= bytes;
    }
    Ok(Program { name: "tpc-h".to_owned(), requests })
}

/// Queries that `clients` make in turn.
fn glimpse(disk: &mut Disk, traces: &Path, clients: usize) -> anyhow::Result<Vec<Program>> {
    const COPIES: usize = 13;
    const PARTITIONS: usize = 256;
    const INDEX: u64 = 12 * MIB;
    const KEYWORDS: usize = 50;
    const QUERIES: usize = 270;
    const MATCHES_MOST: usize = 24;
    /// One file in this many lies apart from its partition.
    const APART: usize = 20;

    let mut random = Rng::with_seed(disk.seed);
    let mut listed = read_files(&traces.join("grep_loop.files.csv.gz"))?;
    listed.retain(|file| file.bytes > 0);
    listed.sort_by(|one, other| one.path.cmp(&other.path));
    let index = disk.add("glimpse/index".to_owned(), INDEX);
    let mut files: Vec<(u32, u64)> = Vec::new();
    for copy in 0..COPIES {
        files.extend(
            listed.iter().map(|file| (disk.add(format!("glimpse/{copy}{}", file.path), file.bytes), file.bytes)),
        );
    }
    // Which files belong together is decided in the order of the disk, but for those that change places.
    let mut apart: Vec<usize> = (0..files.len()).filter(|_| random.usize(0..APART) == 0).collect();
    random.shuffle(&mut apart);
    for pair in apart.chunks_exact(2) {
        files.swap(pair[0], pair[1]);
    }
    let partitions: Vec<&[(u32, u64)]> = files.chunks(files.len().div_ceil(PARTITIONS)).collect();
    let keywords: Vec<Vec<usize>> = (0..KEYWORDS)
        .map(|_| {
            let matches = random.usize(1..=MATCHES_MOST);
            let mut found: Vec<usize> = (0..matches).map(|_| random.usize(0..partitions.len())).collect();
            found.sort_unstable();
            found.dedup();
            found
        })
        .collect();
    let program = |client| Program { name: format!("glimpse-{client}"), requests: Vec::new() };
    let mut programs: Vec<Program> = (0..clients).map(program).collect();
    for query in 0..QUERIES {
        let requests = &mut programs[query % clients].requests;
        read_file(requests, index, INDEX);
        for &partition in &keywords[random.usize(0..KEYWORDS)] {
            for &(file, bytes) in partitions[partition] {
                read_file(requests, file, bytes);
            }
        }
    }
    Ok(programs)
}

/// Reads a file from its first byte to its last.
fn read_file(requests: &mut Vec<Request>, file: u32, bytes: u64) {
    for offset in (0..bytes).step_by(READ_BYTES as usize) {
        let length = u64::from(READ_BYTES).min(bytes - offset) as u32;
        requests.push(Request { volume: file, offset, length, ..Request::default() });
    }
}

fn all(requests: &mut (dyn Requests + Send)) -> anyhow::Result<Vec<Request>> {
    let (mut all, mut batch) = (Vec::new(), Vec::new());
    loop {
        requests.next_batch(&mut batch)?;
        if batch.is_empty() {
            return Ok(all);
        }
        all.append(&mut batch);
    }
}

fn write(name: &'static str, folder: &Path, disk: &Disk, programs: &[Program]) -> anyhow::Result<Workload> {
    std::fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    let placement =
        Placement { order: Order::Name, base: FIRST, block_bytes: BLOCK_BYTES, fragmentation: 0.0, seed: disk.seed };
    let layout = placement.place(&disk.files)?;
    let mut written = Vec::new();
    let mut character = Character { references: 0, bytes: 0, files: 0, sequential: 0.0 };
    let (mut used, mut blocks, mut sequential) = (vec![false; disk.files.len()], 0, 0);
    for program in programs {
        let path = folder.join(format!("{}.csv", program.name));
        let placed = place(&layout, &program.requests)?;
        let mut writer = Writer::create(
            &Destination::new(&path, true, &[])?,
            &WriteOptions { format: None, block_bytes: BLOCK_BYTES, taken: None },
        )?;
        writer.push(&placed)?;
        writer.finish()?;
        written.push(path);
        program.requests.iter().for_each(|request| used[request.volume as usize] = true);
        let mut last = None;
        for (file, block) in program.requests.iter().flat_map(blocks_of) {
            sequential += u64::from(block > 0 && last == Some((file, block - 1)));
            blocks += 1;
            last = Some((file, block));
        }
    }
    character.references = blocks;
    character.sequential = sequential as f64 / blocks as f64;
    character.files = used.iter().filter(|used| **used).count();
    let sizes = disk.files.iter().zip(&used).filter(|(_, used)| **used);
    character.bytes = sizes.map(|(file, _)| file.bytes).sum();
    let extents = folder.join("extents.csv");
    let file = std::fs::File::create(&extents).with_context(|| extents.display().to_string())?;
    write_extents(&layout, BufWriter::new(file))?;
    Ok(Workload { name, programs: written, extents, character })
}

fn place(layout: &Layout, requests: &[Request]) -> anyhow::Result<Vec<Request>> {
    let mut placed = Vec::new();
    for request in requests {
        layout.place(request, &mut placed)?;
    }
    Ok(placed)
}

fn blocks_of(request: &Request) -> impl Iterator<Item = (u32, u64)> {
    let block = u64::from(BLOCK_BYTES);
    let blocks = request.offset / block..=(request.offset + u64::from(request.length) - 1) / block;
    let file = request.volume;
    blocks.map(move |block| (file, block))
}

/// Tells requests apart: FNV-1a over what they ask for.
#[cfg(test)]
pub(crate) fn digest(requests: &[Request]) -> u64 {
    let words = |request: &Request| {
        [request.op as u64, request.volume.into(), request.offset, request.length.into()].map(u64::to_le_bytes)
    };
    let bytes = requests.iter().flat_map(words).flatten();
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shared_traces() -> PathBuf {
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../shared/traces/pc")
    }

    /// The tables in docs/papers/dulo.md are of these requests.
    #[test]
    fn seeded_programs_are_the_same_on_every_run() {
        let mut disk = Disk { files: Vec::new(), seed: SEED };
        let made = [viewperf(&mut disk, 495 * MIB), tpc_h(&mut disk), tpc_h_zipf(&mut disk).unwrap()];
        let figures = made.each_ref().map(|program| (program.requests.len(), digest(&program.requests)));
        let tpc_h = [(3_200_000, 0x457764a0702b42db), (3_400_000, 0x1325eafdedd6b706)];
        assert_eq!(figures, [(46_122, 0xbaa2fcae42a76dcc), tpc_h[0], tpc_h[1]]);
        assert_eq!(disk.files.len(), 289 + 49 + 8);
    }

    #[test]
    fn programs_of_recorded_files_are_the_same_on_every_run() {
        let traces = shared_traces();
        if !traces.is_dir() {
            println!("skipped: programs_of_recorded_files_are_the_same_on_every_run: no {}", traces.display());
            return;
        }
        let mut disk = Disk { files: Vec::new(), seed: SEED };
        let glimpse = glimpse(&mut disk, &traces, 1).unwrap().remove(0);
        let made = [glimpse, recorded(&mut disk, &traces, "sqlite", 3, 2).unwrap()];
        let figures = made.each_ref().map(|program| (program.requests.len(), digest(&program.requests)));
        assert_eq!(figures, [(1_057_468, 0xad5fe0c1f80fee71), (344_160, 0x318c4efb5d6a50e5)]);
    }

    #[test]
    fn a_workload_is_written_where_its_files_lie() {
        let folder = tempfile::tempdir().unwrap();
        let mut disk = Disk { files: Vec::new(), seed: SEED };
        // Their paths decide which lies first.
        let [behind, first, unused] =
            [("b", 10_000), ("a", 40_960), ("c", 5_000)].map(|(path, bytes)| disk.add(path.to_owned(), bytes));
        let mut requests = Vec::new();
        read_file(&mut requests, first, 40_960);
        read_file(&mut requests, behind, 10_000);
        assert!(requests.iter().all(|request| request.volume != unused));
        let programs = [Program { name: "reader".to_owned(), requests }];
        let workload = write("small", folder.path(), &disk, &programs).unwrap();

        let Character { references, bytes, files, sequential } = workload.character;
        // Ten blocks and three, of which the first of each file follows none.
        assert_eq!((references, bytes, files, sequential), (13, 50_960, 2, 11.0 / 13.0));
        let mut trace = nigh_trace::open(&workload.programs[0], &ReadOptions::default()).unwrap().requests;
        let placed: Vec<(u64, u32)> = all(&mut *trace).unwrap().iter().map(|one| (one.offset, one.length)).collect();
        assert_eq!(placed, [(FIRST, 32_768), (FIRST + 32_768, 8192), (FIRST + 40_960, 10_000)]);
        let extents = std::fs::read_to_string(&workload.extents).unwrap();
        let line = |file: u32, from: u64, bytes: u64| format!("{file},0,{},{bytes}\n", FIRST + from);
        assert_eq!(
            extents,
            "file,offset,disk,length\n".to_owned()
                + &line(first, 0, 40_960)
                + &line(behind, 40_960, 10_000)
                + &line(unused, 53_248, 5_000)
        );
    }

    #[test]
    fn a_request_refers_to_every_block_that_it_touches() {
        let of = |offset, length| {
            let request = Request { volume: 3, offset, length, ..Request::default() };
            blocks_of(&request).collect::<Vec<_>>()
        };
        assert_eq!(of(4096, 4096), [(3, 1)]);
        assert_eq!(of(4095, 2), [(3, 0), (3, 1)]);
        assert_eq!(of(0, 8193), [(3, 0), (3, 1), (3, 2)]);
    }
}
