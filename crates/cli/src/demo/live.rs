//! Two disks, a server for them, and the clients that drive it.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, ensure};
use nigh_nbd::client::Client;
use nigh_policy::Spec;
use nigh_server::NBD;
use nigh_service::{DiskSettings, ExportSettings, Listen, Service, Settings, Statistics};
use nigh_trace::Request;
use tempfile::TempDir;

/// The tenants, each with an export of its name.
pub(super) const TENANTS: [&str; 2] = ["database", "files"];
/// Clients at a time. Each has a connection to every export and takes the next request when its own was replied to.
pub(super) const CLIENTS: usize = 8;
/// The delay of a disk: a hard disk's, divided by ten so that nobody waits for minutes.
const DELAY: &str = "seek=0.1ms..1.2ms,rotation=0.4ms,1G/s";
/// The same in words.
pub(super) const SLOWNESS: &str = "seek 0.1 to 1.2 ms, half a turn 0.4 ms: a tenth of a hard disk's";

const BLOCK: usize = 4096;
/// A server takes a request much sooner.
const PATIENCE: Duration = Duration::from_secs(20);
/// Blocks of a disk: 128 MiB.
const BLOCKS: u64 = 32 << 10;
/// Blocks that are written between two checks of the signal.
const STRETCH: u64 = 256;

/// The images of the tenants' disks, in a folder that is removed when this is dropped.
pub(super) struct Disks(TempDir);

impl Disks {
    /// Fills every block with its own content.
    pub(super) fn create(stop: &AtomicBool) -> anyhow::Result<Disks> {
        let folder = tempfile::Builder::new().prefix("nigh-demo-").tempdir().context("a temporary folder")?;
        let disks = Disks(folder);
        for tenant in 0..TENANTS.len() {
            let path = disks.image(tenant);
            disks.fill(tenant, &path, stop).with_context(|| path.display().to_string())?;
        }
        Ok(disks)
    }

    fn fill(&self, tenant: usize, path: &Path, stop: &AtomicBool) -> anyhow::Result<()> {
        let mut file = BufWriter::with_capacity(1 << 20, File::create_new(path)?);
        for block in 0..BLOCKS {
            if block % STRETCH == 0 {
                ensure!(!stop.load(Ordering::Relaxed), "interrupted");
            }
            file.write_all(&content(tenant, block))?;
        }
        Ok(file.flush()?)
    }

    pub(super) fn folder(&self) -> &Path {
        self.0.path()
    }

    fn image(&self, tenant: usize) -> PathBuf {
        self.0.path().join(TENANTS[tenant]).with_extension("img")
    }

    fn socket(&self) -> PathBuf {
        self.0.path().join("socket")
    }
}

/// Content of a block of a tenant's disk: no two are alike.
fn content(tenant: usize, block: u64) -> [u8; BLOCK] {
    let mut content = [0; BLOCK];
    let mut word = (block << 8 | tenant as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    for bytes in content.chunks_exact_mut(8) {
        bytes.copy_from_slice(&word.to_le_bytes());
        word = word.rotate_left(23).wrapping_add(0x9e37_79b9_7f4a_7c15);
    }
    content
}

/// Result of serving the requests through one policy.
pub(super) struct Served {
    /// Of each tenant.
    pub(super) hits: [Hits; TENANTS.len()],
    /// Reads given to the disks.
    pub(super) device_reads: u64,
    /// From the first request to the last reply.
    pub(super) elapsed: Duration,
    /// From request to reply, in ascending order.
    latencies: Vec<Duration>,
}

/// How many requests found their block in the cache, or on its way there for another request.
#[derive(Clone, Copy, Default)]
pub(super) struct Hits {
    pub(super) hits: u64,
    pub(super) requests: u64,
}

impl Hits {
    pub(super) fn percent(self) -> f64 {
        100.0 * self.hits as f64 / self.requests.max(1) as f64
    }
}

impl Served {
    fn new(statistics: &Statistics, mut latencies: Vec<Duration>, elapsed: Duration) -> Served {
        latencies.sort_unstable();
        let mut hits = [Hits::default(); TENANTS.len()];
        for (export, of) in statistics.exports.iter().zip(&mut hits) {
            of.hits = export.disk.hits + export.disk.joined;
            of.requests = of.hits + export.disk.misses;
        }
        let device_reads = statistics.exports.iter().map(|export| export.disk.device_reads).sum();
        Served { hits, device_reads, elapsed, latencies }
    }

    /// Of all tenants.
    pub(super) fn sum(&self) -> Hits {
        let sum = |sum: Hits, of: &Hits| Hits { hits: sum.hits + of.hits, requests: sum.requests + of.requests };
        self.hits.iter().fold(Hits::default(), sum)
    }

    /// The latency that a share of all are not above.
    pub(super) fn quantile(&self, share: f64) -> Duration {
        let rank = (self.latencies.len() as f64 * share).ceil() as usize;
        self.latencies[rank.max(1) - 1]
    }
}

/// Serves `disks` through `policy` with `memory` bytes, and has clients send `requests` in their order. `done` grows by
/// each that was replied to; `stop` ends it early, with an error.
pub(super) fn serve(
    disks: &Disks,
    policy: &Spec,
    memory: u64,
    requests: &[Request],
    done: &AtomicU64,
    stop: &AtomicBool,
) -> anyhow::Result<Served> {
    let export = |tenant: usize| -> anyhow::Result<ExportSettings> {
        let target = format!("delay:{DELAY}:{}", disks.image(tenant).display()).parse()?;
        Ok(DiskSettings { read_only: true, ..DiskSettings::new(TENANTS[tenant], target) }.into())
    };
    let exports = (0..TENANTS.len()).map(export).collect::<Result<_, _>>()?;
    let mut settings = Settings::new(memory, policy.clone(), exports);
    // The cache of a replay is not divided.
    settings.host.shards = Some(1);
    settings.connections_max = 2 * CLIENTS * TENANTS.len();
    let server = Service::start(settings)?;
    let driven = server.listen(NBD, &Listen::Unix(disks.socket()), false).map_err(anyhow::Error::from).and_then(|_| {
        let start = Instant::now();
        let latencies = drive(&server, &disks.socket(), requests, done, stop)?;
        Ok(Served::new(&server.statistics(), latencies, start.elapsed()))
    });
    server.shut_down().map_err(|unwritten| anyhow!("{}", unwritten[0]))?;
    driven
}

/// The order in which clients take the requests, and the cache references their blocks.
struct Turns<'a> {
    server: &'a Service,
    requests: &'a [Request],
    next: usize,
    /// Requests of each tenant that were sent.
    sent: [u64; TENANTS.len()],
}

impl Turns<'_> {
    /// Sends the next request on the connection of its tenant, and waits until its block was referenced: a replay takes them
    /// in this order, too. Replies are not waited for.
    fn send(&mut self, connections: &mut [Client<UnixStream>]) -> anyhow::Result<Option<Request>> {
        let Some(&request) = self.requests.get(self.next) else { return Ok(None) };
        let tenant = request.volume as usize;
        connections[tenant].submit_read(request.offset, vec![0; request.length as usize])?;
        self.next += 1;
        self.sent[tenant] += 1;
        let host = self.server.host();
        let disk = host.disk(TENANTS[tenant]).context("its disk is there")?;
        let begin = Instant::now();
        while host.disk_statistics(&disk).reads < self.sent[tenant] {
            ensure!(begin.elapsed() < PATIENCE, "{}: the server does not take a request", TENANTS[tenant]);
            std::thread::yield_now();
        }
        Ok(Some(request))
    }
}

/// Sends `requests` by all clients, and returns how long each took.
fn drive(
    server: &Service,
    socket: &Path,
    requests: &[Request],
    done: &AtomicU64,
    stop: &AtomicBool,
) -> anyhow::Result<Vec<Duration>> {
    let turns = Mutex::new(Turns { server, requests, next: 0, sent: [0; TENANTS.len()] });
    let turn = || turns.lock().map_err(|_| anyhow!("another client panicked"));
    let client = || -> anyhow::Result<Vec<Duration>> {
        let connect = |name| -> anyhow::Result<_> { Ok(Client::connect(UnixStream::connect(socket)?, name, &[])?) };
        let mut connections = TENANTS.into_iter().map(connect).collect::<Result<Vec<_>, _>>()?;
        let mut latencies = Vec::new();
        loop {
            ensure!(!stop.load(Ordering::Relaxed), "interrupted");
            let mut turn = turn()?;
            let start = Instant::now();
            let Some(request) = turn.send(&mut connections)? else { break };
            drop(turn);
            let tenant = request.volume as usize;
            let completion = connections[tenant].receive()?;
            latencies.push(start.elapsed());
            completion.result?;
            let bytes = completion.buffer;
            let block = request.offset / BLOCK as u64;
            ensure!(bytes == content(tenant, block), "{}: block {block} has wrong contents", TENANTS[tenant]);
            done.fetch_add(1, Ordering::Relaxed);
        }
        for connection in connections {
            connection.disconnect()?;
        }
        Ok(latencies)
    };
    std::thread::scope(|scope| {
        let guarded = || {
            // If one fails, the others need not go on.
            client().inspect_err(|_| {
                if let Ok(mut turn) = turns.lock() {
                    turn.next = requests.len();
                }
            })
        };
        let threads: Vec<_> = (0..CLIENTS).map(|_| scope.spawn(guarded)).collect();
        let joined = threads.into_iter().map(|thread| thread.join().expect("clients do not panic"));
        let all: Vec<Vec<Duration>> = joined.collect::<Result<_, _>>()?;
        Ok(all.concat())
    })
}
