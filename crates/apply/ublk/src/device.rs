//! The life of a device, by commands for the driver.
//!
//! 1. It is *added*: there is its character device, for a server.
//! 2. With its size and when all commands of its queues wait, it is *started*: there is its disk.
//! 3. When its server has gone, it waits for another one, which *recovers* it.
//! 4. It is *stopped*, so that its disk ends, and *deleted*.

use std::fs::{File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::io::Errno;

use crate::kernel::{
    BASIC_AND_DISCARD, CMD_IOCTL_ENCODE, Control, FUA, Info, LIVE, Order, Parameters, READ_ONLY, USER_COPY,
    USER_RECOVERY, USER_RECOVERY_REISSUE, VOLATILE_CACHE,
};
use crate::recovery::Own;
use crate::request::{RANGE_SECTORS, SECTOR};

/// Features of the driver that are needed: Linux 6.5.
const NEEDED: u64 = USER_RECOVERY | USER_RECOVERY_REISSUE | USER_COPY | CMD_IOCTL_ENCODE;
/// Bytes of a request at most.
const REQUEST_BYTES: u32 = 1 << 20;
const _: () = assert!(REQUEST_BYTES <= crate::kernel::DATA_MAX);
/// How long the driver may take to see that a server has gone.
const PATIENCE: Duration = Duration::from_secs(10);
const GLANCE: Duration = Duration::from_millis(10);
/// The system's list of character devices.
const LIST: &str = "/sys/class/ublk-char";
/// A number for a device that the driver chooses.
const ANY: u32 = u32::MAX;
/// Bytes of a block of the cache, as a power of two.
const BLOCK_SHIFT: u8 = 12;
const SECTOR_SHIFT: u8 = 9;

/// Why there is no device.
#[derive(Debug, thiserror::Error)]
pub enum DeviceError {
    /// The kernel has no ublk, or its module is not loaded.
    #[error(
        "this kernel has no ublk: there is no /dev/ublk-control. It needs Linux 6.5 or later with CONFIG_BLK_DEV_UBLK; if that is a module, \
         load it (modprobe ublk_drv)"
    )]
    NoDriver,
    /// The driver cannot do what is needed.
    #[error("the kernel's ublk is too old: it needs Linux 6.5 or later (UBLK_F_USER_COPY)")]
    Old,
    /// The process may not make devices.
    #[error("making a block device needs the rights of root (CAP_SYS_ADMIN): {0}")]
    Denied(io::Error),
    /// io_uring is switched off or not allowed here.
    #[error("ublk needs io_uring, which is not to be had here: {0}")]
    NoRing(io::Error),
    /// The number is taken.
    #[error(
        "there is a device {0} already, which may be in use after its server was killed: unmount it, or choose another number"
    )]
    Exists(u32),
    /// Another server has the device of the same disk.
    #[error("another server has {0} for the same disk")]
    Taken(String),
    /// The driver rejects a command.
    #[error("ublk, {0}: {1}")]
    System(&'static str, io::Error),
}

/// The path of a device's disk.
pub(crate) fn disk(device: u32) -> PathBuf {
    format!("/dev/ublkb{device}").into()
}

/// The path of the character device, for its server.
pub(crate) fn character(device: u32) -> PathBuf {
    format!("/dev/ublkc{device}").into()
}

/// The driver.
pub(crate) struct Driver(Control);

fn failed(what: &'static str) -> impl Fn(io::Error) -> DeviceError {
    move |error| DeviceError::System(what, error)
}

fn is(error: &io::Error, errno: Errno) -> bool {
    error.raw_os_error() == Some(errno.raw_os_error())
}

impl Driver {
    /// The driver, if it can do what is needed.
    pub(crate) fn open() -> Result<Driver, DeviceError> {
        let mut control = Control::open().map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => DeviceError::NoDriver,
            io::ErrorKind::PermissionDenied if is(&error, Errno::ACCESS) => DeviceError::Denied(error),
            _ if is(&error, Errno::NXIO) || is(&error, Errno::NODEV) => DeviceError::NoDriver,
            _ => DeviceError::NoRing(error),
        })?;
        let mut features = 0u64;
        match control.command(Order::GetFeatures, ANY, 0, Some(&mut features)) {
            Ok(()) if features & NEEDED == NEEDED => Ok(Driver(control)),
            Ok(()) => Err(DeviceError::Old),
            Err(error) if [Errno::OPNOTSUPP, Errno::INVAL, Errno::NODEV].iter().any(|errno| is(&error, *errno)) => {
                Err(DeviceError::Old)
            }
            Err(error) => Err(DeviceError::System("its features", error)),
        }
    }

    /// Numbers of all devices.
    pub(crate) fn devices() -> Vec<u32> {
        let entries = std::fs::read_dir(LIST).into_iter().flatten().flatten();
        let number = |name: std::ffi::OsString| name.to_str()?.strip_prefix("ublkc")?.parse().ok();
        let mut devices: Vec<u32> = entries.filter_map(|entry| number(entry.file_name())).collect();
        devices.sort_unstable();
        devices
    }

    /// The state of a device; `None` if there is none of this number.
    pub(crate) fn info(&mut self, device: u32) -> Result<Option<Info>, DeviceError> {
        let mut info = Info::default();
        match self.0.command(Order::GetInfo, device, 0, Some(&mut info)) {
            Ok(()) => Ok(Some(info)),
            Err(error) if is(&error, Errno::NODEV) => Ok(None),
            Err(error) => Err(DeviceError::System("the state of a device", error)),
        }
    }

    /// Adds a device, of this number if there is one. The kernel may give it fewer queues.
    pub(crate) fn add(&mut self, number: Option<u32>, queues: u16, depth: u16, own: Own) -> Result<Info, DeviceError> {
        let device = number.unwrap_or(ANY);
        let request_bytes = REQUEST_BYTES;
        let mut info =
            Info { queues, depth, request_bytes, device, flags: NEEDED, own: own.number(), ..Info::default() };
        let added = self.0.command(Order::Add, device, 0, Some(&mut info));
        added.map_err(|error| match number {
            Some(number) if is(&error, Errno::EXIST) => DeviceError::Exists(number),
            _ if is(&error, Errno::PERM) => DeviceError::Denied(error),
            _ => DeviceError::System("adding a device", error),
        })?;
        if info.flags & NEEDED != NEEDED {
            self.delete(info.device);
            return Err(DeviceError::Old);
        }
        Ok(info)
    }

    /// Opens the character device of a device that was added just now: its file may not be there yet.
    pub(crate) fn open_character(device: u32) -> Result<File, DeviceError> {
        let begin = Instant::now();
        loop {
            match OpenOptions::new().read(true).write(true).open(character(device)) {
                Ok(file) => return Ok(file),
                Err(error) if begin.elapsed() > PATIENCE => {
                    return Err(DeviceError::System("its character device", error));
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound || is(&error, Errno::BUSY) => {
                    std::thread::sleep(GLANCE)
                }
                Err(error) => return Err(DeviceError::System("its character device", error)),
            }
        }
    }

    /// Begins the disk of an added device, when the commands of its queues wait.
    pub(crate) fn start(&mut self, device: u32, bytes: u64, read_only: bool) -> Result<(), DeviceError> {
        let mut parameters = Parameters {
            length: size_of::<Parameters>() as u32,
            types: BASIC_AND_DISCARD,
            attributes: VOLATILE_CACHE | FUA | if read_only { READ_ONLY } else { 0 },
            logical_shift: SECTOR_SHIFT,
            physical_shift: BLOCK_SHIFT,
            best_shift: BLOCK_SHIFT,
            least_shift: BLOCK_SHIFT,
            sectors_max: REQUEST_BYTES / SECTOR as u32,
            sectors: bytes / SECTOR,
            discard_granularity: 1 << BLOCK_SHIFT,
            discard_sectors_max: if read_only { 0 } else { RANGE_SECTORS },
            zeroes_sectors_max: if read_only { 0 } else { RANGE_SECTORS },
            discard_segments_max: 1,
            ..Parameters::default()
        };
        self.0
            .command(Order::SetParameters, device, 0, Some(&mut parameters))
            .map_err(failed("the size of a device"))?;
        let process = std::process::id().into();
        self.0.command::<u64>(Order::Start, device, process, None).map_err(failed("starting a device"))
    }

    /// Bytes of a device's disk.
    pub(crate) fn bytes(&mut self, device: u32) -> Result<u64, DeviceError> {
        let mut parameters = Parameters { length: size_of::<Parameters>() as u32, ..Parameters::default() };
        self.0
            .command(Order::GetParameters, device, 0, Some(&mut parameters))
            .map_err(failed("the size of a device"))?;
        Ok(parameters.sectors * SECTOR)
    }

    /// Makes a device ready for the queues of another server. The driver may have to see first that the old one has gone.
    pub(crate) fn begin_recovery(&mut self, device: u32) -> Result<(), DeviceError> {
        let begin = Instant::now();
        loop {
            match self.0.command::<u64>(Order::BeginRecovery, device, 0, None) {
                Err(error) if is(&error, Errno::BUSY) && begin.elapsed() < PATIENCE => std::thread::sleep(GLANCE),
                result => return result.map_err(failed("recovering a device")),
            }
        }
    }

    /// Has the disk go on, when the commands of all queues wait.
    pub(crate) fn end_recovery(&mut self, device: u32) -> Result<(), DeviceError> {
        let process = std::process::id().into();
        self.0.command::<u64>(Order::EndRecovery, device, process, None).map_err(failed("recovering a device"))
    }

    /// Ends the disk: requests that wait for a server fail.
    pub(crate) fn stop(&mut self, device: u32) {
        if let Err(error) = self.0.command::<u64>(Order::Stop, device, 0, None)
            && !is(&error, Errno::NODEV)
        {
            tracing::warn!(device, %error, "a block device cannot be stopped");
        }
    }

    /// Removes a stopped device, at the latest when nobody uses its disk any more.
    pub(crate) fn delete(&mut self, device: u32) {
        let deleted = match self.0.command::<u64>(Order::DeleteWithoutWaiting, device, 0, None) {
            // Linux before 6.7.
            Err(error) if is(&error, Errno::OPNOTSUPP) => self.0.command::<u64>(Order::Delete, device, 0, None),
            result => result,
        };
        if let Err(error) = deleted
            && !is(&error, Errno::NODEV)
        {
            tracing::warn!(device, %error, "a block device cannot be removed");
        }
    }

    /// The state of a device, when the driver has seen that its server has gone: that takes a moment. With `goes`, the server goes now; otherwise only one
    /// whose process is gone is waited for.
    pub(crate) fn settled(&mut self, device: u32, goes: bool) -> Result<Option<Info>, DeviceError> {
        let begin = Instant::now();
        loop {
            let info = self.info(device)?;
            let has_gone = |info: &Info| goes || !Path::new(&format!("/proc/{}", info.process)).exists();
            let waits = info.is_some_and(|info| info.state == LIVE && has_gone(&info));
            if !waits || begin.elapsed() > PATIENCE {
                return Ok(info);
            }
            std::thread::sleep(GLANCE);
        }
    }
}
