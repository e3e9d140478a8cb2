//! A server in memory, one thread per connection, built from the session types.

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use nigh_nbd::{
    BlockSizes, Command, Context, Event, Export, Exports, Extent, Features, Negotiation, Outcome, Request, Tls,
    Transmission, cache_state, state,
};

/// Granularity of what BLOCK_STATUS reports.
pub(crate) const BLOCK: usize = 4096;

/// Everything but READ_ONLY.
pub(crate) fn all_features() -> Features {
    Features {
        read_only: false,
        rotational: true,
        flush: true,
        fua: true,
        trim: true,
        write_zeroes: true,
        fast_zero: true,
        cache: true,
        multi_conn: true,
    }
}

/// An export of this name and size that understands everything.
pub(crate) fn export(name: &str, size: u64) -> Export {
    Export {
        name: name.into(),
        description: format!("the disk {name}"),
        size,
        features: all_features(),
        blocks: BlockSizes::default(),
    }
}

struct Disk {
    data: Vec<u8>,
    allocated: Vec<bool>,
    cache: Vec<u32>,
}

impl Disk {
    fn new(size: u64) -> Self {
        let size = usize::try_from(size).unwrap();
        let blocks = size.div_ceil(BLOCK);
        Self { data: vec![0; size], allocated: vec![false; blocks], cache: vec![0; blocks] }
    }

    fn extents(&self, context: Context, request: &Request) -> Vec<Extent> {
        let (begin, end) = (request.offset, request.offset + request.length);
        let block = BLOCK as u64;
        (begin / block..end.div_ceil(block))
            .map(|index| {
                let length = ((index + 1) * block).min(end) - (index * block).max(begin);
                let flags = match context {
                    Context::Allocation if self.allocated[index as usize] => 0,
                    Context::Allocation => state::HOLE | state::ZERO,
                    Context::Cache => self.cache[index as usize],
                };
                Extent { length, flags }
            })
            .collect()
    }
}

/// Serves disks full of zeroes on a socket in a temporary folder until it is dropped.
pub(crate) struct Server {
    folder: PathBuf,
}

impl Server {
    pub(crate) fn start(test: &str, exports: Vec<Export>) -> Self {
        let folder = std::env::temp_dir().join(format!("nigh-nbd-{}-{test}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let disks: Arc<Vec<Mutex<Disk>>> = Arc::new(exports.iter().map(|e| Mutex::new(Disk::new(e.size))).collect());
        let exports = Exports::new(exports).unwrap();
        let listener = UnixListener::bind(folder.join("socket")).unwrap();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (exports, disks) = (exports.clone(), Arc::clone(&disks));
                std::thread::spawn(move || drop(serve(stream.unwrap(), exports, &disks)));
            }
        });
        Self { folder }
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.folder.join("socket")
    }

    pub(crate) fn connect(&self) -> UnixStream {
        UnixStream::connect(self.socket()).unwrap()
    }

    pub(crate) fn uri(&self, export: &str) -> String {
        format!("nbd+unix:///{export}?socket={}", self.socket().display())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Bytes that were received and not consumed.
struct Input {
    stream: UnixStream,
    bytes: Vec<u8>,
}

impl Input {
    fn consume(&mut self, count: usize) {
        self.bytes.drain(..count);
    }

    /// `Ok(false)` at the end of the stream.
    fn more(&mut self) -> std::io::Result<bool> {
        let mut buffer = [0; 4096];
        let count = self.stream.read(&mut buffer)?;
        self.bytes.extend_from_slice(&buffer[..count]);
        Ok(count > 0)
    }

    fn payload(&mut self, into: &mut [u8]) -> std::io::Result<()> {
        let here = into.len().min(self.bytes.len());
        into[..here].copy_from_slice(&self.bytes[..here]);
        self.consume(here);
        self.stream.read_exact(&mut into[here..])
    }
}

fn serve(mut stream: UnixStream, exports: Exports, disks: &[Mutex<Disk>]) -> std::io::Result<()> {
    let mut input = Input { stream: stream.try_clone()?, bytes: Vec::new() };
    let mut negotiation = Negotiation::new(exports, Tls::Off);
    stream.write_all(&Negotiation::greeting())?;
    let mut transmission = loop {
        let mut out = Vec::new();
        let (consumed, outcome) = negotiation.step(&input.bytes, &mut out).map_err(std::io::Error::other)?;
        input.consume(consumed);
        stream.write_all(&out)?;
        match outcome {
            Outcome::Need(_) if input.more()? => {}
            Outcome::Continue => {}
            Outcome::Transmit(transmission) => break transmission,
            Outcome::Need(_) | Outcome::StartTls | Outcome::Abort => return Ok(()),
        }
    };
    let disk = &disks[transmission.export()];
    loop {
        let (consumed, event) = transmission.step(&input.bytes).map_err(std::io::Error::other)?;
        input.consume(consumed);
        match event {
            Event::Need(_) if input.more()? => {}
            Event::Need(_) | Event::Disconnect => return Ok(()),
            Event::Refused { tag, errno } => stream.write_all(&transmission.framing().error(tag, errno))?,
            Event::Request(request) => {
                let out = answer(&request, &transmission, disk, &mut input)?;
                stream.write_all(&out)?;
            }
        }
    }
}

fn answer(
    request: &Request,
    transmission: &Transmission,
    disk: &Mutex<Disk>,
    input: &mut Input,
) -> std::io::Result<Vec<u8>> {
    let framing = transmission.framing();
    let success = framing.success(request.tag()).to_vec();
    let bytes = request.offset as usize..(request.offset + request.length) as usize;
    let blocks = bytes.start / BLOCK..bytes.end.div_ceil(BLOCK);
    let mut payload = Vec::new();
    if matches!(request.command, Command::Write { .. }) {
        payload = vec![0; bytes.len()];
        input.payload(&mut payload)?;
    }
    let mut disk = disk.lock().unwrap();
    Ok(match request.command {
        Command::Read { dont_fragment } => {
            disk.cache[blocks.clone()].iter_mut().for_each(|state| *state |= cache_state::CACHED);
            let sparse = !dont_fragment && disk.allocated[blocks].iter().all(|allocated| !allocated);
            let length = u32::try_from(request.length).unwrap();
            match framing.chunks() {
                Some(chunks) if sparse => chunks.hole(request.tag(), request.offset, length, true).to_vec(),
                _ => [&framing.data(request.tag(), length), &disk.data[bytes]].concat(),
            }
        }
        Command::Write { fua } => {
            disk.data[bytes].copy_from_slice(&payload);
            disk.allocated[blocks.clone()].fill(true);
            let dirty = if fua { 0 } else { cache_state::DIRTY };
            disk.cache[blocks].fill(cache_state::CACHED | dirty);
            success
        }
        Command::Flush => {
            disk.cache.iter_mut().for_each(|state| *state &= !cache_state::DIRTY);
            success
        }
        Command::Trim { .. } | Command::WriteZeroes { .. } => {
            let whole = bytes.start.div_ceil(BLOCK)..bytes.end / BLOCK;
            disk.data[bytes].fill(0);
            if !whole.is_empty() && !matches!(request.command, Command::WriteZeroes { no_hole: true, .. }) {
                disk.allocated[whole.clone()].fill(false);
                disk.cache[whole].fill(0);
            }
            success
        }
        Command::Cache => {
            disk.cache[blocks].iter_mut().for_each(|state| *state |= cache_state::CACHED);
            success
        }
        Command::BlockStatus { .. } => {
            let chunks = framing.chunks().expect("contexts need chunks");
            let mut out = Vec::new();
            for context in transmission.contexts().iter() {
                chunks.extents(request, context, disk.extents(context, request), false, &mut out);
            }
            out.extend_from_slice(&chunks.end(request.tag()));
            out
        }
    })
}
