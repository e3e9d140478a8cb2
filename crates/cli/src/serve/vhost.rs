//! Sockets for virtual machines, as users write them.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use nigh_service::{ExportSettings, amount};
use nigh_vhost::VhostSettings;

use super::check_export;
use crate::args::Size;

/// The longest time that a queue is polled.
const POLL_MAX: f64 = 0.01;

/// `NAME=PATH`, or `NAME=PATH,OPTION,...`.
fn parse(text: &str) -> anyhow::Result<VhostSettings> {
    let form =
        || format!("'{text}' is no socket for a machine: it is written NAME=PATH, such as root=/run/nigh/root.sock");
    let (name, rest) = text.split_once('=').with_context(form)?;
    let mut parts = rest.split(',');
    let path = parts.next().filter(|path| !path.is_empty()).with_context(form)?;
    let mut settings = VhostSettings::new(name, path);
    for option in parts {
        match option.split_once('=') {
            Some(("queues", count)) => {
                let count = count.parse().ok().filter(|count| (1..=VhostSettings::QUEUES_MAX).contains(count));
                settings.queues = count.with_context(|| {
                    format!("--vhost-user {name}: queues is a number from 1 to {}", VhostSettings::QUEUES_MAX)
                })?;
            }
            Some(("poll", time)) => {
                let time = nigh_text::seconds(time).filter(|time| (0.0..=POLL_MAX).contains(time));
                let time =
                    time.with_context(|| format!("--vhost-user {name}: poll is a time from 0s to 10ms, such as 20us"))?;
                settings.poll = Duration::from_secs_f64(time);
            }
            Some(("memory", size)) => {
                let Size(bytes) = size.parse().with_context(|| format!("--vhost-user {name}"))?;
                settings.memory_max = bytes;
            }
            None if option == "unsealed" => settings.unsealed = true,
            _ => bail!(
                "--vhost-user {name}: '{option}' is no option of it: expected queues=N, poll=TIME, memory=SIZE or unsealed"
            ),
        }
    }
    Ok(settings)
}

/// All sockets, each of another path and for an export that Unix sockets may serve.
pub(super) fn sockets(texts: &[String], exports: &[ExportSettings]) -> anyhow::Result<Vec<VhostSettings>> {
    let sockets = texts.iter().map(|text| parse(text)).collect::<anyhow::Result<Vec<_>>>()?;
    sockets.iter().try_for_each(|settings| check_export("--vhost-user", &settings.export, exports, "a machine"))?;
    let paths: BTreeSet<_> = sockets.iter().map(|socket| &socket.socket).collect();
    ensure!(paths.len() == sockets.len(), "two of --vhost-user have the same path");
    Ok(sockets)
}

/// The same text again.
pub(super) fn text(settings: &VhostSettings) -> String {
    let VhostSettings { export, socket, queues, poll, unsealed, memory_max } = settings;
    let mut text = format!("{export}={}", socket.display());
    if *queues != VhostSettings::QUEUES {
        let _ = write!(text, ",queues={queues}");
    }
    if !poll.is_zero() {
        let _ = write!(text, ",poll={}us", poll.as_micros());
    }
    if *memory_max != VhostSettings::MEMORY_MAX {
        let _ = write!(text, ",memory={}", amount(*memory_max));
    }
    if *unsealed {
        text += ",unsealed";
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_read_and_written() {
        let exports = [ExportSettings::new("root", "memory:1M".parse().unwrap())];
        let read = |text: &str| sockets(&[text.to_owned()], &exports).map(|sockets| super::text(&sockets[0]));
        for text in [
            "root=/run/root.sock",
            "root=/run/root.sock,queues=2",
            "root=/run/root.sock,queues=64,poll=20us,memory=4G,unsealed",
        ] {
            assert_eq!(read(text).unwrap(), text);
        }
        for (text, error) in [
            ("root", "NAME=PATH"),
            ("root=", "NAME=PATH"),
            ("root=a,queues=0", "from 1 to 64"),
            ("root=a,queues=65", "from 1 to 64"),
            ("root=a,poll=1s", "0s to 10ms"),
            ("root=a,sealed", "no option"),
            ("other=a", "no export other"),
        ] {
            assert!(read(text).unwrap_err().to_string().contains(error), "{text}");
        }
        let twice = ["root=a".to_owned(), "root=a".to_owned()];
        assert!(sockets(&twice, &exports).unwrap_err().to_string().contains("same path"));
    }
}
