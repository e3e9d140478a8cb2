//! The first part of a connection: TLS, and the choice of an export.

use std::io::{self, IoSlice};
use std::sync::Arc;
use std::time::{Duration, Instant};

use nigh_nbd::wire::option_reply;
use nigh_nbd::{Exports, InvalidExport, Negotiation, Outcome, Tls, Transmission};
use rustls::ServerConfig;

use crate::clients::Common;
use crate::error::{Ended, Refused};
use crate::export::Export;
use crate::input::Input;
use crate::link;
use crate::patience::PATIENCE;
use crate::stream::Stream;

/// How long a client may take to choose an export.
const CHOICE: Duration = PATIENCE;

/// The shortest wait for a client that the system knows.
const LEAST: Duration = Duration::from_millis(1);

/// A client that is let in, and how.
pub(crate) struct Guest<'a> {
    pub(crate) common: &'a Common,
    /// The number of its connection.
    pub(crate) id: u64,
    /// With this, it has to start TLS.
    pub(crate) tls: Option<Arc<ServerConfig>>,
}

impl Guest<'_> {
    /// What a client with a certificate of these names may see.
    fn sees(&self, names: &[String]) -> Result<(Vec<Arc<Export>>, Exports), InvalidExport> {
        let mut exports = self.common.exports();
        exports.retain(|export| export.is_for(names));
        let offered = Exports::new(exports.iter().map(|export| export.offer()).collect())?;
        let opening = self.common.opening.names_for(names).into_iter();
        let reason = |name| format!("export {name} is being opened: its device has not responded yet");
        Ok((exports, offered.with_absent(opening.map(|name| (name.clone(), reason(name))))))
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

/// Agrees with the client on an export; none if the client leaves.
pub(crate) fn negotiate(input: &mut Input, guest: &Guest<'_>) -> Result<Option<(Transmission, Arc<Export>)>, Ended> {
    let (mut exports, offered) = match guest.tls {
        // It is asked again when it is known who the client is.
        Some(_) => (Vec::new(), Exports::new(Vec::new())?),
        None => guest.sees(&[])?,
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
            guest.common.host.look_at_size(disk);
            negotiation.set_size(at, disk.size());
        }
        let (used, mut outcome) = negotiation.step(input.bytes(), &mut out)?;
        input.start += used;
        if let Outcome::Transmit(transmission) = &outcome
            && let Err(refused) = guest.common.enter(guest.id, &exports[transmission.export()], &names)
        {
            out.clear();
            let kind = match refused {
                Refused::Full | Refused::Crowded => option_reply::ERR_POLICY,
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
                (exports, offered) = guest.sees(&names)?;
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
