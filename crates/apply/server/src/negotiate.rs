//! The first part of a connection: TLS, and the choice of an export.

use std::io::{self, IoSlice};
use std::sync::Arc;
use std::time::{Duration, Instant};

use nigh_nbd::wire::option_reply;
use nigh_nbd::{BlockSizes, Exports, Features, InvalidExport, Negotiation, Outcome, Tls, Transmission};
use nigh_service::front::{Export, Guest, Refused, Stream};

use crate::error::Ended;
use crate::input::Input;
use crate::link;
use crate::patience::PATIENCE;

/// How long a client may take to choose an export.
const CHOICE: Duration = PATIENCE;

/// The shortest wait for a client that the system knows.
const LEAST: Duration = Duration::from_millis(1);

/// The exports that a client with a certificate of these names may see.
fn sees(guest: &Guest<'_>, names: &[String]) -> Result<(Vec<Arc<Export>>, Exports), InvalidExport> {
    let exports = guest.exports(names);
    let offered = Exports::new(exports.iter().map(|export| offer(export)).collect())?;
    let reason = |name| format!("export {name} is being opened: its device has not responded yet");
    let absent = guest.opening(names).into_iter().map(|name| (name.clone(), reason(name)));
    Ok((exports, offered.with_absent(absent)))
}

/// An export as clients see it.
fn offer(export: &Export) -> nigh_nbd::Export {
    nigh_nbd::Export {
        name: export.name().to_owned(),
        description: String::new(),
        size: export.disk.size(),
        features: Features {
            read_only: export.disk.read_only(),
            rotational: false,
            flush: true,
            fua: true,
            trim: true,
            write_zeroes: true,
            fast_zero: true,
            cache: true,
            multi_conn: true,
        },
        blocks: BlockSizes::default(),
    }
}

fn send_all(stream: &Stream, mut bytes: &[u8], deadline: Instant) -> io::Result<()> {
    loop {
        if Instant::now() > deadline {
            return Err(io::ErrorKind::TimedOut.into());
        }
        if bytes.is_empty() {
            return Ok(());
        }
        match stream.write(&[IoSlice::new(bytes)], true) {
            Ok(written) => bytes = &bytes[written..],
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
}

/// The client, whose certificate has these names, chose an export.
fn enter(guest: &Guest<'_>, export: &Arc<Export>, names: &[String]) -> Result<(), Refused> {
    guest.check_loss(export)?;
    guest.enter(export, names)
}

/// Agrees with the client on an export; none if the client leaves.
pub(crate) fn negotiate(input: &mut Input, guest: &Guest<'_>) -> Result<Option<(Transmission, Arc<Export>)>, Ended> {
    let (mut exports, offered) = match guest.tls {
        // It is asked again when it is known who the client is.
        Some(_) => (Vec::new(), Exports::new(Vec::new())?),
        None => sees(guest, &[])?,
    };
    let tls = if guest.tls.is_some() { Tls::Required } else { Tls::Off };
    let mut negotiation = Negotiation::new(offered, tls);
    let deadline = Instant::now() + CHOICE;
    send_all(&input.stream, &Negotiation::greeting(), deadline)?;
    let mut out = Vec::new();
    let mut names = Vec::new();
    loop {
        if let Some(at) = negotiation.asks_about(input.bytes()) {
            let disk = &exports[at].disk;
            guest.host().look_at_size(disk);
            negotiation.set_size(at, disk.size());
        }
        let (used, mut outcome) = negotiation.step(input.bytes(), &mut out)?;
        input.start += used;
        if let Outcome::Transmit(transmission) = &outcome
            && let Err(refused) = enter(guest, &exports[transmission.export()], &names)
        {
            out.clear();
            let kind = match refused {
                Refused::Full | Refused::Crowded | Refused::Lost => option_reply::ERR_POLICY,
                Refused::Leaving | Refused::Others => option_reply::ERR_UNKNOWN,
            };
            if !negotiation.refuse_choice(kind, &refused.to_string(), &mut out) {
                return Err(refused.into());
            }
            outcome = Outcome::Continue;
        }
        send_all(&input.stream, &out, deadline)?;
        out.clear();
        match outcome {
            Outcome::Continue => {}
            Outcome::Need(more) => {
                input.grow(input.bytes().len() + more);
                let left = deadline.saturating_duration_since(Instant::now());
                if left < LEAST {
                    return Err(io::Error::from(io::ErrorKind::TimedOut).into());
                }
                input.stream.set_patience(left, link::GLANCE)?;
                if !input.receive()? {
                    return Ok(None);
                }
            }
            Outcome::StartTls => {
                let Some(config) = &guest.tls else { return Ok(None) };
                names = input.stream.secure(config).map_err(Ended::Tls)?;
                let offered;
                (exports, offered) = sees(guest, &names)?;
                negotiation.tls_started(offered);
            }
            Outcome::Transmit(transmission) => {
                let export = exports.swap_remove(transmission.export());
                return Ok(Some((transmission, export)));
            }
            Outcome::Abort => return Ok(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;
    use std::sync::mpsc::channel;

    use nigh_host::BLOCK;
    use nigh_nbd::client::Handshake;
    use nigh_service::{ExportSettings, Service, Settings};

    use crate::NBD;

    #[test]
    fn an_export_is_not_seen_before_it_is_open() {
        let export = |name: &str| ExportSettings::new(name, "memory:1M".parse().unwrap());
        let image = tempfile::NamedTempFile::new().unwrap();
        image.as_file().set_len(1 << 20).unwrap();
        let target = std::fs::canonicalize(image.path()).unwrap();
        let new = ExportSettings::new("new", target.to_str().unwrap().parse().unwrap());
        let opened = || {
            let links = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
            links.filter(|link| std::fs::read_link(link.path()).is_ok_and(|path| path == target)).count()
        };
        let before = opened();
        let server = Service::start(Settings::new(1 << 20, "lru".parse().unwrap(), vec![export("old")])).unwrap();
        let cache = server.host().cache();
        let old = server.host().disk("old").unwrap();
        let greet = || {
            let (ours, theirs) = UnixStream::pair().unwrap();
            server.attach(NBD, theirs.try_clone().unwrap().into(), theirs.into(), || ());
            Handshake::begin(ours).unwrap()
        };
        let names = |handshake: &mut Handshake<UnixStream>| {
            handshake.list().unwrap().into_iter().map(|(name, _)| name).collect::<Vec<_>>()
        };
        std::thread::scope(|scope| {
            let (go_on, wait) = channel::<()>();
            let (held, holds) = channel();
            // Nothing can be opened while a shard is held.
            scope.spawn(move || {
                let hold = |_, _| {
                    held.send(()).unwrap();
                    // Fails when it is to go on.
                    let _ = wait.recv();
                };
                cache.states(&old, 0..BLOCK, hold).unwrap();
            });
            holds.recv().unwrap();
            let adding = scope.spawn(|| server.add(new));
            // Then it is opened in the cache.
            while opened() == before {
                std::thread::yield_now();
            }
            let mut early = greet();
            assert_eq!(names(&mut early), ["old"]);
            assert!(early.info("new").is_err() && early.go("new").is_err());
            drop(go_on);
            adding.join().unwrap().unwrap();
        });
        let mut late = greet();
        assert_eq!(names(&mut late), ["old", "new"]);
        late.go("new").unwrap().read(0, 4096).unwrap();
        server.shut_down().unwrap();
    }
}
