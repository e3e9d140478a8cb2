//! Levels below the memory, as users write them.

use std::fmt::Write;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use nigh_service::{ClientTlsSettings, LevelSettings, RemoteLevelSettings, ServerShare, amount};

use crate::args::{Size, Time};

/// The levels of a server, the fastest first.
#[derive(Debug, Default)]
pub(super) struct Levels {
    pub(super) files: Vec<LevelSettings>,
    /// The last one, on other hosts.
    pub(super) remote: Option<RemoteLevelSettings>,
    /// How long the start waits for `remote`.
    pub(super) wait: Duration,
}

/// The options of a level on other hosts: each may be written behind any of its servers.
#[derive(Debug, Default)]
struct Options {
    name: Option<String>,
    ca: Option<PathBuf>,
    certificate: Option<PathBuf>,
    key: Option<PathBuf>,
    wait: Option<Duration>,
    required: bool,
}

impl Levels {
    /// The levels that `texts` describe. The servers of the last one know this host as `host`, unless a name is given.
    pub(super) fn read(texts: &[String], host: impl FnOnce() -> String) -> anyhow::Result<Levels> {
        let (mut files, mut servers) = (Vec::new(), Vec::<(&str, ServerShare)>::new());
        let mut options = Options::default();
        for text in texts {
            let Some((transport @ ("tcp" | "tls"), rest)) = text.split_once(':') else {
                ensure!(servers.is_empty(), "level {text}: a level on other hosts is the last one");
                files.push(level(text)?);
                continue;
            };
            let mut parts = rest.split(',');
            let share = share(transport, parts.next().unwrap_or_default())?;
            parts.try_for_each(|option| options.add(option)).with_context(|| format!("level {text}"))?;
            let is_same = servers.first().is_none_or(|(other, _)| *other == transport);
            ensure!(is_same, "level {text}: all servers of a level are reached by tcp, or all by tls");
            let is_new = servers.iter().all(|(_, other)| other.address != share.address);
            ensure!(is_new, "level {text}: this server is named twice");
            servers.push((transport, share));
        }
        let Some((transport, _)) = servers.first() else { return Ok(Levels { files, ..Levels::default() }) };
        let tls = options.tls(transport)?;
        let client = options.name.unwrap_or_else(host);
        ensure!((1..=nigh_level::NAME_MAX).contains(&client.len()), "the name= of a level has from 1 to 256 bytes");
        let servers = servers.into_iter().map(|(_, share)| share).collect();
        let remote = RemoteLevelSettings { servers, client, tls, required: options.required };
        Ok(Levels { files, remote: Some(remote), wait: options.wait.unwrap_or_default() })
    }
}

impl Options {
    fn add(&mut self, option: &str) -> anyhow::Result<()> {
        match option.split_once('=') {
            Some(("name", name)) => set(&mut self.name, name.to_owned()),
            Some(("ca", file)) => set(&mut self.ca, file.into()),
            Some(("certificate", file)) => set(&mut self.certificate, file.into()),
            Some(("key", file)) => set(&mut self.key, file.into()),
            Some(("wait", text)) => set(&mut self.wait, text.parse::<Time>().context("wait is a time")?.0),
            None if option == "required" => {
                self.required = true;
                Ok(())
            }
            _ => bail!(
                "'{option}' is no option of it: expected name=NAME, ca=FILE, certificate=FILE, key=FILE, wait=TIME or required"
            ),
        }
        .with_context(|| format!("'{option}'"))
    }

    /// The certificates over `transport`.
    fn tls(&mut self, transport: &str) -> anyhow::Result<Option<ClientTlsSettings>> {
        let files = [("ca", self.ca.take()), ("certificate", self.certificate.take()), ("key", self.key.take())];
        if transport == "tcp" {
            let given = files.iter().find(|(_, file)| file.is_some());
            if let Some((option, _)) = given {
                bail!("{option}= has no effect with a level over tcp: it is written tls:HOST:PORT:SIZE");
            }
            return Ok(None);
        }
        let [ca, certificate, key] =
            files.map(|(option, file)| file.with_context(|| format!("a level over tls needs {option}=FILE")));
        Ok(Some(ClientTlsSettings { ca: ca?, certificate: certificate?, key: key? }))
    }
}

/// Sets an option that may be repeated, but not changed.
fn set<T: PartialEq>(at: &mut Option<T>, value: T) -> anyhow::Result<()> {
    ensure!(at.as_ref().is_none_or(|other| *other == value), "it is given with two values");
    *at = Some(value);
    Ok(())
}

/// `HOST:PORT:SIZE`, after `tcp:` or `tls:`.
fn share(transport: &str, text: &str) -> anyhow::Result<ServerShare> {
    let form = || {
        format!(
            "'{transport}:{text}' is no level: it is written tcp:HOST:PORT:SIZE, such as tcp:cache1:10810:32G, or tls:HOST:PORT:SIZE"
        )
    };
    let (address, size) = text.rsplit_once(':').with_context(form)?;
    let (host, port) = address.rsplit_once(':').with_context(form)?;
    ensure!(!host.is_empty() && port.parse::<u16>().is_ok_and(|port| port != 0), form());
    let Size(bytes) = size.parse().with_context(|| format!("level {transport}:{address}"))?;
    Ok(ServerShare { address: address.to_owned(), bytes })
}

/// `file:PATH:SIZE`, perhaps after a `delay:…:` or `fault:…:` that slows it down or fails it.
fn level(text: &str) -> anyhow::Result<LevelSettings> {
    let form = || format!("'{text}' is no level: it is written file:PATH:SIZE, such as file:/fast/nigh.level:32G");
    let (place, size) = text.rsplit_once(':').with_context(form)?;
    let starts = place.match_indices("file:").map(|(at, _)| at);
    let at = starts.into_iter().find(|&at| at == 0 || place[..at].ends_with(':')).with_context(form)?;
    let (before, path) = (&place[..at], &place[at + "file:".len()..]);
    ensure!(!path.is_empty(), form());
    let target = format!("{before}raw:{path}").parse().with_context(form)?;
    let Size(bytes) = size.parse().with_context(|| format!("level {path}"))?;
    Ok(LevelSettings { target, bytes })
}

/// The texts that [`Levels::read`] reads as these levels.
pub(super) fn texts(files: &[LevelSettings], remote: Option<&RemoteLevelSettings>, wait: Duration) -> Vec<String> {
    let mut texts: Vec<String> = files.iter().map(file_text).collect();
    let Some(remote) = remote else { return texts };
    let first = texts.len();
    texts.extend(remote.servers.iter().map(|share| format!("{}:{}", remote.name_of(share), amount(share.bytes))));
    let mut options = format!(",name={}", remote.client);
    if let Some(ClientTlsSettings { ca, certificate, key }) = &remote.tls {
        let [ca, certificate, key] = [ca, certificate, key].map(|file| file.display());
        let _ = write!(options, ",ca={ca},certificate={certificate},key={key}");
    }
    if !wait.is_zero() {
        let _ = write!(options, ",wait={}s", wait.as_secs_f64());
    }
    if remote.required {
        options.push_str(",required");
    }
    texts[first].push_str(&options);
    texts
}

fn file_text(LevelSettings { target, bytes }: &LevelSettings) -> String {
    let target = target.to_string();
    // A level is written with `file:` in front of its path, where a target may have `raw:`.
    let path = target
        .rfind("raw:")
        .map_or_else(|| format!("file:{target}"), |at| format!("{}file:{}", &target[..at], &target[at + 4..]));
    format!("{path}:{}", amount(*bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(texts: &[&str]) -> anyhow::Result<Levels> {
        let texts: Vec<String> = texts.iter().map(|text| (*text).to_owned()).collect();
        Levels::read(&texts, || "here/disk".to_owned())
    }

    #[test]
    fn levels_are_printed_as_they_are_read() {
        let all = [
            &["file:/fast/a.level:16M"][..],
            &["delay:1ms:file:/fast/a.level:16M", "tcp:one:10810:32M,name=me,wait=3s,required", "tcp:two:10810:16M"],
            &["tls:one:10810:32M,name=here/disk,ca=ca.pem,certificate=a.pem,key=a.key"],
        ];
        for texts in all {
            let Levels { files, remote, wait } = read(texts).unwrap();
            assert_eq!(super::texts(&files, remote.as_ref(), wait), texts);
        }
        let Levels { remote, .. } = read(&["tcp:one:10810:32M"]).unwrap();
        assert_eq!(remote.unwrap().client, "here/disk");
    }

    #[test]
    fn options_that_contradict_or_do_nothing_are_refused() {
        let refused = [
            (&["tcp:one:1:16M,name=me", "tcp:two:1:16M,name=you"][..], "two values"),
            (&["tcp:one:1:16M,key=k"], "key= has no effect"),
            (&["tls:one:1:16M,key=k"], "a level over tls needs ca=FILE"),
            (&["tcp:one:1:16M,wait=x"], "wait is a time"),
            (&["tcp:one:1:16M,warm"], "'warm' is no option"),
            (&["tcp:one:1:16M", "file:/a:16M"], "is the last one"),
        ];
        for (texts, words) in refused {
            let error = format!("{:#}", read(texts).unwrap_err());
            assert!(error.contains(words), "{texts:?}: {error}");
        }
    }
}
