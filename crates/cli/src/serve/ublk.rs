//! Block devices of this host, as users write them.

use std::collections::BTreeSet;
use std::fmt::Write;

use anyhow::{Context, bail, ensure};
use nigh_service::ExportSettings;
use nigh_ublk::{Ublk, UblkSettings};

use super::check_export;

/// `NAME`, or `NAME,OPTION,...`.
fn parse(text: &str) -> anyhow::Result<UblkSettings> {
    let mut parts = text.split(',');
    let name = parts.next().filter(|name| !name.is_empty());
    let name = name.with_context(|| format!("'{text}' is no block device: it is written NAME, such as data"))?;
    let mut settings = UblkSettings::new(name);
    for option in parts {
        match option.split_once('=') {
            Some(("queues", count)) => settings.queues = number(name, "queues", count, 1, UblkSettings::QUEUES_MAX)?,
            Some(("depth", count)) => settings.depth = number(name, "depth", count, 1, UblkSettings::DEPTH_MAX)?,
            Some(("id", count)) => settings.number = Some(number(name, "id", count, 0, UblkSettings::NUMBER_MAX)?),
            None if option == "keep" => settings.keep = true,
            _ => bail!("--ublk {name}: '{option}' is no option of it: expected queues=N, depth=N, id=N or keep"),
        }
    }
    Ok(settings)
}

fn number<T>(name: &str, option: &str, text: &str, least: T, most: T) -> anyhow::Result<T>
where
    T: std::str::FromStr + PartialOrd + std::fmt::Display,
{
    let number = text.parse().ok().filter(|number| (&least..=&most).contains(&number));
    number.with_context(|| format!("--ublk {name}: {option} is a number from {least} to {most}"))
}

/// All devices, each of another export and with another number.
pub(super) fn devices(texts: &[String], exports: &[ExportSettings]) -> anyhow::Result<Vec<UblkSettings>> {
    let devices = texts.iter().map(|text| parse(text)).collect::<anyhow::Result<Vec<_>>>()?;
    devices.iter().try_for_each(|settings| check_export("--ublk", &settings.export, exports, "a block device"))?;
    let names: BTreeSet<_> = devices.iter().map(|device| &device.export).collect();
    ensure!(names.len() == devices.len(), "two of --ublk have the same name: the kernel caches each device for itself");
    let numbers: Vec<u32> = devices.iter().filter_map(|device| device.number).collect();
    ensure!(numbers.iter().collect::<BTreeSet<_>>().len() == numbers.len(), "two of --ublk have the same id");
    Ok(devices)
}

/// The same text again.
pub(super) fn text(settings: &UblkSettings) -> String {
    let UblkSettings { export, queues, depth, number, keep } = settings;
    let mut text = export.clone();
    if *queues != UblkSettings::QUEUES {
        let _ = write!(text, ",queues={queues}");
    }
    if *depth != UblkSettings::DEPTH {
        let _ = write!(text, ",depth={depth}");
    }
    if let Some(number) = number {
        let _ = write!(text, ",id={number}");
    }
    if *keep {
        text += ",keep";
    }
    text
}

/// Makes the devices, or finds those that wait for a server. The process must have its rights and no other thread yet.
pub(super) fn prepare(
    devices: &[UblkSettings],
    exports: &[ExportSettings],
    replaces: bool,
    accepts_loss: bool,
) -> anyhow::Result<Vec<Ublk>> {
    let prepare = |device: &UblkSettings| {
        let export = exports.iter().find(|export| export.disk.name == device.export);
        let disk = &export.context("it was checked that there is such an export")?.disk;
        let prepared = Ublk::prepare(device.clone(), disk, replaces, accepts_loss);
        prepared.with_context(|| format!("--ublk {}", device.export))
    };
    devices.iter().map(prepare).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_read_and_written() {
        let exports = ["root", "data"].map(|name| ExportSettings::new(name, "memory:1M".parse().unwrap()));
        let read = |text: &str| devices(&[text.to_owned()], &exports).map(|devices| super::text(&devices[0]));
        for text in ["root", "root,queues=2", "root,queues=64,depth=4096,id=1048575,keep", "data,depth=1,id=0"] {
            assert_eq!(read(text).unwrap(), text);
        }
        for (text, error) in [
            ("", "written NAME"),
            ("root,queues=0", "from 1 to 64"),
            ("root,queues=65", "from 1 to 64"),
            ("root,depth=4097", "from 1 to 4096"),
            ("root,id=-1", "from 0 to 1048575"),
            ("root,kept", "no option"),
            ("other", "no export other"),
        ] {
            assert!(read(text).unwrap_err().to_string().contains(error), "{text}");
        }
        let both = |first: &str, second: &str| devices(&[first.to_owned(), second.to_owned()], &exports);
        assert!(both("root,id=1", "data,id=2").is_ok());
        assert!(both("root", "root,id=2").unwrap_err().to_string().contains("same name"));
        assert!(both("root,id=1", "data,id=1").unwrap_err().to_string().contains("same id"));
    }
}
