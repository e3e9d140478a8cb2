//! The modelled device of each volume, as a user names it: `hdd-7200`, `my.toml`, `0=hdd-7200,1=ssd-sata`.

use std::path::{Path, PathBuf};

use nigh_device::{Profile, ProfileError};

use super::Program;

/// A profile for all volumes, profiles by volume, or both.
#[derive(Clone, Debug)]
pub struct Devices {
    others: Option<Named>,
    by_volume: Vec<(u32, Named)>,
}

/// A profile, by the name it was asked for.
#[derive(Clone, Debug)]
struct Named {
    name: String,
    profile: Profile,
}

/// The device of one volume.
#[derive(Clone, Debug)]
pub struct VolumeDevice {
    /// Its volume.
    pub volume: u32,
    /// The name that was asked for.
    pub name: String,
    /// The modelled device, as large as the programs reach.
    pub profile: Profile,
    /// The length of the profile as it was asked for, where that was too short.
    pub profile_bytes: Option<u64>,
}

/// An error in devices.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// There is no such profile, or it is malformed.
    #[error(transparent)]
    Profile(#[from] ProfileError),
    /// A file cannot be read.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// A file is no profile.
    #[error("{}: {problem}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The error.
        problem: ProfileError,
    },
    /// Two profiles for the volumes that have none of their own.
    #[error("two profiles for all volumes: expected one")]
    Several,
    /// The text before an `=` is no number.
    #[error("'{0}' is no number of a volume: expected such as 0=hdd-7200,1=ssd-sata")]
    NoVolume(String),
    /// Two profiles for one volume.
    #[error("two profiles for volume {0}")]
    Twice(u32),
    /// No request is to the volume.
    #[error("{volume}={name}: no request is to volume {volume}, only to {known}")]
    Unused {
        /// The volume.
        volume: u32,
        /// Its profile.
        name: String,
        /// The volumes of the requests.
        known: String,
    },
    /// A volume has no profile.
    #[error("volume {0} has no device: add {0}=PROFILE, or one PROFILE for all others")]
    Missing(u32),
    /// The requests reach farther than such a device can.
    #[error("{name}: the trace reaches byte {end} of volume {volume}, and no device of this kind can be so long")]
    TooLong {
        /// Its profile.
        name: String,
        /// End of the requests.
        end: u64,
        /// The volume.
        volume: u32,
    },
}

impl Devices {
    /// The devices that `text` names.
    pub fn parse(text: &str) -> Result<Devices, DeviceError> {
        let mut devices = Devices { others: None, by_volume: Vec::new() };
        for part in text.split(',') {
            let (volume, name) = part.split_once('=').map_or((None, part), |(volume, name)| (Some(volume), name));
            let named = Named { name: name.to_owned(), profile: profile(name)? };
            let Some(volume) = volume else {
                if devices.others.replace(named).is_some() {
                    return Err(DeviceError::Several);
                }
                continue;
            };
            let number = volume.trim().parse().map_err(|_| DeviceError::NoVolume(volume.to_owned()))?;
            if devices.by_volume.iter().any(|(known, _)| *known == number) {
                return Err(DeviceError::Twice(number));
            }
            devices.by_volume.push((number, named));
        }
        Ok(devices)
    }

    /// A device for each of `volumes`, those that `programs` refer to, as long as they reach.
    pub fn of(&self, volumes: &[u32], programs: &[Program]) -> Result<Vec<VolumeDevice>, DeviceError> {
        if let Some((volume, named)) = self.by_volume.iter().find(|(volume, _)| !volumes.contains(volume)) {
            return Err(DeviceError::Unused { volume: *volume, name: named.name.clone(), known: listed(volumes) });
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
            let named = given.or(self.others.as_ref()).ok_or(DeviceError::Missing(volume))?;
            VolumeDevice::new(volume, named, end)
        };
        volumes.iter().zip(ends).map(device).collect()
    }
}

impl VolumeDevice {
    /// The device of `volume`, of which the trace needs `end` bytes.
    fn new(volume: u32, named: &Named, end: u64) -> Result<VolumeDevice, DeviceError> {
        let Named { name, profile } = named.clone();
        let bytes = profile.bytes();
        if end <= bytes {
            return Ok(VolumeDevice { volume, name, profile, profile_bytes: None });
        }
        match profile.stretched(end) {
            Some(profile) => Ok(VolumeDevice { volume, name, profile, profile_bytes: Some(bytes) }),
            None => Err(DeviceError::TooLong { name, end, volume }),
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

/// A profile that comes with nigh, or one in a file.
pub fn profile(device: &str) -> Result<Profile, DeviceError> {
    let is_file = device.contains('/') || Path::new(device).extension().is_some_and(|extension| extension == "toml");
    if !is_file {
        return Ok(Profile::named(device)?);
    }
    let path = PathBuf::from(device);
    match std::fs::read_to_string(&path) {
        Ok(text) => Profile::parse(&text).map_err(|problem| DeviceError::File { path, problem }),
        Err(source) => Err(DeviceError::Io { path, source }),
    }
}
