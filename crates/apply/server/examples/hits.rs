//! `hits DEPTH[,READAHEAD[,POLICY[,CURVES]]] ROUNDS`: reads of 4 KiB over NBD from a server that has all in memory, `DEPTH` at a time, with a rule of
//! read-ahead, a policy, and the blocks that its curves sample at least. `cargo xtask instructions` counts the instructions that a round adds.

use std::error::Error;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use nigh_nbd::client::Handshake;
use nigh_nbd::wire::command;
use nigh_nbd::{Framing, RequestHeader};
use nigh_server::NBD;
use nigh_service::{ExportSettings, Service, Settings};

/// Reads of a round.
const READS: usize = 960;
const BLOCK: usize = 4096;
const BLOCKS: usize = 2048;
/// Of a simple reply.
const HEADER: usize = 16;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [depth, rounds] = arguments.as_slice() else {
        return Err("expected DEPTH[,READAHEAD[,POLICY[,CURVES]]] ROUNDS".into());
    };
    let mut parts = depth.split(',');
    let depth: usize = parts.next().unwrap_or_default().parse()?;
    let (readahead, policy) = (parts.next().unwrap_or("none"), parts.next().unwrap_or("lirs"));
    let (curves, rounds): (u32, usize) = (parts.next().unwrap_or("0").parse()?, rounds.parse()?);
    let export = ExportSettings::new("disk", format!("memory:{}", BLOCKS * BLOCK).parse()?);
    let mut settings = Settings::new(2 * (BLOCKS * BLOCK) as u64, policy.parse()?, vec![export]);
    settings.host.curves = Some(curves);
    settings.host.readahead = readahead.parse()?;
    let server = Service::start(settings)?;
    let (ours, theirs) = UnixStream::pair()?;
    server.attach(NBD, theirs.try_clone()?.into(), theirs.into(), || ());

    let mut stream = Handshake::begin(ours)?.negotiate("disk")?.stream;
    let mut replies = vec![0; depth * (HEADER + BLOCK)];
    let mut requests = Vec::new();
    let mut read = |count: usize, mut block: usize| -> Result<(), Box<dyn Error>> {
        for _ in 0..count / depth {
            requests.clear();
            for cookie in 0..depth as u64 {
                let (offset, length) = ((block * BLOCK) as u64, BLOCK as u64);
                let header = RequestHeader { flags: 0, command: command::READ, cookie, offset, length };
                requests.extend_from_slice(&header.encode(Framing::Simple).ok_or("a short request")?);
                block = (block + 1) % BLOCKS;
            }
            stream.write_all(&requests)?;
            stream.read_exact(&mut replies)?;
        }
        Ok(())
    };
    read(BLOCKS, 0)?;
    let before = server.host().statistics().1[0].hits;
    (0..rounds).try_for_each(|round| read(READS, round * READS % BLOCKS))?;
    assert_eq!(server.host().statistics().1[0].hits - before, (rounds * READS) as u64, "hits");
    server.shut_down().map_err(|unwritten| format!("{unwritten:?}").into())
}
