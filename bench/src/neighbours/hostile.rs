//! Clients that ask for too much, do it badly, or mean ill; each does so until it is asked to end.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use fastrand::Rng;
use nigh_nbd::client::{Client, Error};
use nigh_nbd::{Command, Framing, RequestHeader};

use super::{Place, Turn, connect};

const BLOCK: u64 = 4096;
const MIB: u64 = 1 << 20;
/// Of the neighbour's disk.
pub(crate) const DISK: u64 = 1 << 30;
/// In front of its file.
const FAST: &str = "";
pub(crate) const SLOW: &str = "delay:20ms:";

const SCRAPES: &str = "a byte a second to /metrics";

/// A neighbour, which acts until it is asked to end, on a server that is killed then.
type Neighbour = fn(&Place);

/// A neighbour of the victim.
pub(crate) struct Hostile {
    pub(crate) name: &'static str,
    /// How its target begins; a sparse file follows.
    pub(crate) device: &'static str,
    attack: Neighbour,
    /// Whether its own threads take processors from the others.
    is_here: bool,
}

impl Hostile {
    /// Whether it needs nothing that only nigh has: metrics.
    pub(crate) fn suits_every_server(&self) -> bool {
        self.name != SCRAPES
    }

    /// Whether its disk has to be slow.
    pub(crate) fn needs_slow_disk(&self) -> bool {
        self.device == SLOW
    }

    pub(crate) fn attack(&self, place: &Place) {
        if !self.is_here {
            // It has a processor of its own elsewhere.
            Turn::Last.take().expect("a lower priority needs no right");
        }
        (self.attack)(place);
    }
}

const fn hostile(name: &'static str, device: &'static str, attack: Neighbour) -> Hostile {
    Hostile { name, device, attack, is_here: false }
}

/// Of a row without a neighbour.
pub(crate) const COMPUTE: Hostile =
    Hostile { name: "none, but busy processors", device: FAST, attack: compute, is_here: true };
/// Of a sick device: four clients that read, write and flush, eight requests at a time each.
pub(crate) const WORKING: Hostile = hostile("", FAST, |place| several(4, |client| work_on(place, client, 8)));

pub(crate) const CLIENTS: [Hostile; 20] = [
    hostile("200 silent connections", FAST, |place| {
        let _kept: Vec<_> = (0..200).map(|_| place.raw()).collect();
        place.wait();
    }),
    hostile("connections that send garbage", FAST, |place| {
        while !place.is_over() {
            let Some(mut stream) = place.raw() else { break };
            let _ = stream.write_all(&[0xa5; 4096]);
        }
    }),
    hostile("connections that come and go", FAST, |place| {
        while !place.is_over() {
            let Ok(client) = connect(place.socket, place.export) else { break };
            let _ = client.disconnect();
        }
    }),
    hostile("72 slow writers of 256 KiB", FAST, |place| {
        let mut writers: Vec<_> = (0..72).filter_map(|_| raw_export(place)).collect();
        for writer in &mut writers {
            let _ = writer.write_all(&header(1, 0, 256 << 10));
        }
        while !place.is_over() {
            writers.retain_mut(|writer| writer.write_all(&[1]).is_ok());
            std::thread::sleep(Duration::from_millis(50));
        }
    }),
    hostile("100 half headers", FAST, |place| {
        let mut halves: Vec<_> = (0..100).filter_map(|_| raw_export(place)).collect();
        for half in &mut halves {
            let _ = half.write_all(&header(0, 0, 4096)[..14]);
        }
        place.wait();
    }),
    hostile("50 that read no replies", FAST, |place| {
        let mut readers: Vec<_> = (0..50).filter_map(|_| raw_export(place)).collect();
        for (at, reader) in readers.iter_mut().enumerate() {
            for number in 0..32 {
                let _ = reader.write_all(&header(0, (at as u64 * 32 + number) % 1000 * MIB, MIB as u32));
            }
        }
        place.wait();
    }),
    hostile("1,000 reads of 32 MiB, and gone", FAST, |place| {
        while !place.is_over() {
            let Some(mut stream) = raw_export(place) else { break };
            let asked: Vec<u8> = (0..1000).flat_map(|at| header(0, at % 32 * 32 * MIB, 32 << 20)).collect();
            let _ = stream.write_all(&asked);
        }
    }),
    hostile("block status of the whole disk", FAST, |place| {
        several(4, |_| {
            let mut random = Rng::with_seed(1);
            pipeline(place, 16, |client, _| {
                let offset = random.u64(..DISK / MIB / 2) * MIB;
                client.submit(Command::BlockStatus { one: false }, offset, DISK / 2)
            });
        });
    }),
    hostile("trims of 1 GiB, slow device", SLOW, |place| {
        several(24, |_| pipeline(place, 3, |client, _| client.submit(Command::Trim { fua: false }, 0, DISK)));
    }),
    hostile("zeroes of 256 MiB", FAST, |place| {
        let zeroes = Command::WriteZeroes { fua: false, no_hole: true, fast: false };
        pipeline(place, 4, |client, at| client.submit(zeroes, at % 4 * (DISK / 4), DISK / 4));
    }),
    hostile("prefetches of 64 MiB, slow device", SLOW, |place| {
        pipeline(place, 16, |client, at| client.submit(Command::Cache, at % 16 * (DISK / 16), DISK / 16));
    }),
    hostile("flushes, 64 at a time", FAST, |place| {
        pipeline(place, 64, |client, _| client.submit(Command::Flush, 0, 0));
    }),
    hostile("hits, 64 at a time", FAST, |place| {
        pipeline(place, 64, |client, at| client.submit_read(at % 64 * BLOCK, vec![0; BLOCK as usize]));
    }),
    hostile("misses, 64 at a time", FAST, |place| {
        let mut random = Rng::with_seed(1);
        pipeline(place, 64, |client, _| {
            client.submit_read(random.u64(..DISK / BLOCK) * BLOCK, vec![0; BLOCK as usize])
        });
    }),
    hostile("misses, 256 at a time, slow device", SLOW, |place| {
        let mut random = Rng::with_seed(1);
        pipeline(place, 256, |client, _| {
            client.submit_read(random.u64(..DISK / BLOCK) * BLOCK, vec![0; BLOCK as usize])
        });
    }),
    hostile("sequential reads of 1 MiB", FAST, |place| {
        pipeline(place, 16, |client, at| client.submit_read(at % 1024 * MIB, vec![0; MIB as usize]));
    }),
    hostile("random writes, 32 at a time", FAST, |place| {
        let mut random = Rng::with_seed(1);
        pipeline(place, 32, |client, _| {
            client.submit_write(random.u64(..DISK / BLOCK) * BLOCK, &[1; BLOCK as usize], false)
        });
    }),
    hostile("random writes, slow device", SLOW, |place| {
        let mut random = Rng::with_seed(1);
        pipeline(place, 32, |client, _| {
            client.submit_write(random.u64(..DISK / BLOCK) * BLOCK, &[1; BLOCK as usize], false)
        });
    }),
    hostile("writes of 512 bytes with FUA", FAST, |place| {
        let mut random = Rng::with_seed(1);
        pipeline(place, 32, |client, _| client.submit_write(random.u64(..DISK / 512) * 512, &[1; 512], true));
    }),
    hostile(SCRAPES, FAST, |place| {
        let mut scrapes: Vec<_> = (0..8).filter_map(|_| TcpStream::connect(place.metrics).ok()).collect();
        while !place.is_over() {
            scrapes.retain_mut(|scrape| scrape.write_all(b"G").is_ok());
            std::thread::sleep(Duration::from_millis(100));
        }
    }),
];

/// No neighbour, but programs that keep as many processors busy: what the victim waits for them is not the server's doing.
fn compute(place: &Place) {
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| while !place.is_over() {});
        }
    });
}

/// Runs `client` in this many threads, with the number of each.
fn several(count: u64, client: impl Fn(u64) + Sync) {
    std::thread::scope(|scope| {
        for number in 0..count {
            let client = &client;
            scope.spawn(move || client(number));
        }
    });
}

/// Reads, writes and flushes at random, this many at a time.
fn work_on(place: &Place, seed: u64, depth: usize) {
    let mut random = Rng::with_seed(seed);
    pipeline(place, depth, |client, _| {
        let offset = random.u64(..DISK / BLOCK) * BLOCK;
        match random.u8(..32) {
            0 => client.submit(Command::Flush, 0, 0),
            1..16 => client.submit_read(offset, vec![0; BLOCK as usize]),
            _ => client.submit_write(offset, &[1; BLOCK as usize], false),
        }
    });
}

/// Keeps `depth` requests on their way, whether or not they succeed; `ask` gets their number.
fn pipeline(place: &Place, depth: usize, mut ask: impl FnMut(&mut Client<UnixStream>, u64) -> Result<u64, Error>) {
    let Ok(mut client) = connect(place.socket, place.export) else { return };
    let mut number = 0;
    while !place.is_over() {
        let done = if client.in_flight() < depth {
            number += 1;
            ask(&mut client, number).map(drop)
        } else {
            client.receive().map(drop)
        };
        if done.is_err() {
            return;
        }
    }
}

/// A connection past its negotiation, for simple replies.
fn raw_export(place: &Place) -> Option<UnixStream> {
    let mut stream = place.raw()?;
    let mut greeting = [0; 18];
    stream.read_exact(&mut greeting).ok()?;
    // Fixed newstyle without zeroes, then EXPORT_NAME.
    stream.write_all(&3_u32.to_be_bytes()).ok()?;
    stream.write_all(b"IHAVEOPT").ok()?;
    stream.write_all(&1_u32.to_be_bytes()).ok()?;
    stream.write_all(&(place.export.len() as u32).to_be_bytes()).ok()?;
    stream.write_all(place.export.as_bytes()).ok()?;
    let mut answer = [0; 10];
    stream.read_exact(&mut answer).ok()?;
    Some(stream)
}

fn header(command: u16, offset: u64, length: u32) -> Vec<u8> {
    let header = RequestHeader { flags: 0, command, cookie: 7, offset, length: length.into() };
    header.encode(Framing::Simple).expect("a short length").to_vec()
}
