//! The modelled device of each volume: `--device`, and how large a device is made for its trace.

use std::path::Path;

use anyhow::{Context, anyhow, bail, ensure};
use nigh_device::Profile;
use nigh_sim::timed::Program;

use super::results::DeviceSummary;
use crate::results::distinct;
use crate::size::human_bytes;

/// What `--device` asks for: a profile for all volumes, profiles by volume, or both.
pub(super) struct Asked {
    text: String,
    others: Option<Named>,
    by_volume: Vec<(u32, Named)>,
}

/// A profile, by the name it was asked for.
#[derive(Clone)]
struct Named {
    name: String,
    profile: Profile,
}

/// The device of one volume.
pub(super) struct VolumeDevice {
    volume: u32,
    name: String,
    pub(super) profile: Profile,
    /// The length of the profile as it was asked for, where that was too short.
    profile_bytes: Option<u64>,
}

impl Asked {
    pub(super) fn parse(text: &str) -> anyhow::Result<Asked> {
        let mut asked = Asked { text: text.to_owned(), others: None, by_volume: Vec::new() };
        for part in text.split(',') {
            let (volume, name) = part.split_once('=').map_or((None, part), |(volume, name)| (Some(volume), name));
            let named = Named { name: name.to_owned(), profile: profile(name)? };
            match volume {
                None => ensure!(asked.others.replace(named).is_none(), "two profiles for all volumes: expected one"),
                Some(volume) => {
                    let number = volume.trim().parse().ok().with_context(|| {
                        format!("'{volume}' is no number of a volume: expected such as 0=hdd-7200,1=ssd-sata")
                    })?;
                    ensure!(
                        asked.by_volume.iter().all(|(known, _)| *known != number),
                        "two profiles for volume {number}"
                    );
                    asked.by_volume.push((number, named));
                }
            }
        }
        Ok(asked)
    }

    /// A device for each of `volumes`, those that `programs` refer to, as long as they reach.
    pub(super) fn devices(&self, volumes: &[u32], programs: &[Program]) -> anyhow::Result<Vec<VolumeDevice>> {
        if let Some((volume, named)) = self.by_volume.iter().find(|(volume, _)| !volumes.contains(volume)) {
            bail!("{volume}={}: no request is to volume {volume}, only to {}", named.name, listed(volumes));
        }
        let mut ends = vec![0; volumes.len().max(1)];
        for step in programs.iter().flat_map(|program| &program.steps) {
            let end = &mut ends[usize::from(step.disk)];
            *end = step.end().max(*end);
        }
        // A trace of nothing but flushes has a disk, too.
        let volumes = if volumes.is_empty() { &[0] } else { volumes };
        let device = |(&volume, end)| {
            let given = self.by_volume.iter().find(|(number, _)| *number == volume).map(|(_, named)| named);
            let named = given.or(self.others.as_ref()).with_context(|| {
                format!("volume {volume} has no device: add {volume}=PROFILE, or one PROFILE for all others")
            })?;
            VolumeDevice::new(volume, named, end).with_context(|| named.name.clone())
        };
        volumes.iter().zip(ends).map(device).collect()
    }

    /// What is said of all devices together.
    pub(super) fn summary(&self, devices: &[VolumeDevice]) -> DeviceSummary {
        if let [device] = devices {
            return device.summary();
        }
        DeviceSummary {
            volume: None,
            name: self.text.clone(),
            title: distinct(devices.iter().map(|device| device.profile.title())).join(" + "),
            bytes: devices.iter().fold(0, |sum: u64, device| sum.saturating_add(device.profile.bytes())),
            profile_bytes: None,
        }
    }
}

impl VolumeDevice {
    /// The device of `volume`, of which the trace needs `end` bytes.
    fn new(volume: u32, named: &Named, end: u64) -> anyhow::Result<VolumeDevice> {
        let Named { name, profile } = named.clone();
        let bytes = profile.bytes();
        if end <= bytes {
            return Ok(VolumeDevice { volume, name, profile, profile_bytes: None });
        }
        let profile = profile.stretched(end).with_context(|| {
            format!("the trace reaches byte {end} of volume {volume}, and no device of this kind can be so long")
        })?;
        Ok(VolumeDevice { volume, name, profile, profile_bytes: Some(bytes) })
    }

    pub(super) fn summary(&self) -> DeviceSummary {
        DeviceSummary {
            volume: Some(self.volume),
            name: self.name.clone(),
            title: self.profile.title().to_owned(),
            bytes: self.profile.bytes(),
            profile_bytes: self.profile_bytes,
        }
    }
}

/// The numbers of volumes, the first few of many.
fn listed(volumes: &[u32]) -> String {
    let mut numbers: Vec<String> = volumes.iter().take(8).map(u32::to_string).collect();
    if volumes.len() > numbers.len() {
        numbers.push("...".to_owned());
    }
    numbers.join(", ")
}

impl DeviceSummary {
    /// What is to be known of devices that are larger than their profiles.
    pub(super) fn notes(devices: &[DeviceSummary]) -> Option<String> {
        let stretched = devices.iter().filter_map(|device| Some((device, device.profile_bytes?)));
        let stretched: Vec<String> = stretched
            .map(|(device, profile_bytes)| {
                let (name, from, to) = (&device.name, human_bytes(profile_bytes), human_bytes(device.bytes));
                format!("{name} has {from}, and is modelled with {to} because the trace reaches so far")
            })
            .collect();
        let last = stretched.last()?;
        let more = match stretched.len() {
            1 => String::new(),
            count => format!(" (and {} more)", count - 1),
        };
        Some(format!("{last}{more}: rates, and seek times for the same share of the disk, stay"))
    }
}

/// A profile that comes with nigh, or one in a file.
pub(super) fn profile(device: &str) -> anyhow::Result<Profile> {
    let is_file = device.contains('/') || Path::new(device).extension().is_some_and(|extension| extension == "toml");
    if !is_file {
        return Ok(Profile::named(device)?);
    }
    let text = std::fs::read_to_string(device).with_context(|| device.to_owned())?;
    Profile::parse(&text).map_err(|error| anyhow!("{device}: {error}"))
}
