//! Descriptions of the modelled devices.

use nigh_sim::timed::VolumeDevice;

use super::results::DeviceSummary;
use crate::results::distinct;
use crate::size::human_bytes;

impl DeviceSummary {
    /// Description of one device.
    pub(super) fn of(device: &VolumeDevice) -> DeviceSummary {
        DeviceSummary {
            volume: Some(device.volume),
            name: device.name.clone(),
            title: device.profile.title().to_owned(),
            bytes: device.profile.bytes(),
            profile_bytes: device.profile_bytes,
        }
    }

    /// Description of all devices together, which were asked for by `text`.
    pub(super) fn of_all(devices: &[VolumeDevice], text: &str) -> DeviceSummary {
        if let [device] = devices {
            return DeviceSummary::of(device);
        }
        DeviceSummary {
            volume: None,
            name: text.to_owned(),
            title: distinct(devices.iter().map(|device| device.profile.title())).join(" + "),
            bytes: devices.iter().fold(0, |sum: u64, device| sum.saturating_add(device.profile.bytes())),
            profile_bytes: None,
        }
    }

    /// Notes on devices that are larger than their profiles.
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
