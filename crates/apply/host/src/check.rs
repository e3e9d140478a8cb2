//! Reasons why a host would not start, found without starting it.

use std::io;
use std::path::Path;
use std::sync::mpsc::channel;
use std::thread::Builder;
use std::time::{Duration, Instant};

use nigh_backend::{OpenError, OpenErrorKind, Options, Target};
use nigh_control::{Config as Control, LruSp};
use nigh_engine::ConfigError;
use nigh_policy::{Setup, Spec};
use rustix::fs::{Access, access};

use crate::admin::{check_writers, machine_memory};
use crate::disk::same_file;
use crate::error::{DiskError, LevelError, StartError};
use crate::settings::{BLOCK, DiskSettings, LevelSettings, Settings};
use crate::tenants::agree_in_tenants;
use crate::warm::Warm;

/// How long targets that do not respond are waited for, all together. NBD servers have 10 s.
const PATIENCE: Duration = Duration::from_secs(15);

/// Why a host with these settings would not start, as far as can be checked without taking a disk or a lock from another process.
/// Empty if nothing is found.
pub fn problems(settings: &Settings) -> Vec<StartError> {
    let mut problems: Vec<StartError> = Vec::new();
    let there = machine_memory();
    if settings.memory > there {
        problems.push(StartError::Memory { asked: settings.memory >> 20, there: there >> 20 });
    }
    let mut disks = settings.disks.clone();
    problems.extend(agree_in_tenants(&mut disks).err().map(StartError::from));
    problems.extend(check_writers(&disks).err().map(StartError::from));
    problems.extend(check_policies(settings));
    let of_disks = check_all(&disks);
    if of_disks.is_empty() {
        // Those that are not there cannot be the same.
        problems.extend(shared_file(&disks).map(StartError::from));
    }
    problems.extend(of_disks.into_iter().map(StartError::from));
    problems.extend(settings.levels.iter().filter_map(|level| check_level(level).err()).map(StartError::from));
    let names = disks.iter().map(|disk| disk.name.as_str()).collect();
    problems.extend(settings.warm.iter().filter_map(|warm| Warm::open(warm, &names).err()));
    if let Some(remote) = &settings.remote_level {
        let configured = remote.tls.as_ref().map(|tls| tls.configure()).transpose();
        let failed = match configured {
            Err(error) => Some(io::Error::other(error)),
            Ok(_) if remote.required => remote.probe().err(),
            Ok(_) => None,
        };
        problems.extend(failed.map(|error| LevelError::Server(error).into()));
    }
    problems
}

/// With tenants: the policies that they cannot have.
fn check_policies(settings: &Settings) -> Vec<StartError> {
    let Some(allocation) = settings.allocate else { return Vec::new() };
    let capacity = settings.blocks_per_shard(settings.memory);
    let setup = Setup { capacity, slots: 1, block_bytes: BLOCK as u32, ghosts: 0, future: None, patterns: None };
    let tenants = LruSp::new(&setup, Control { allocation, ..Control::default() });
    let refused = |policy: &Spec| tenants.try_out(&policy.clone().into(), 0).err();
    let own = settings.disks.iter().filter_map(|disk| {
        let source = refused(disk.policy.as_ref()?)?;
        Some(StartError::from(DiskError::Tenant { name: disk.name.clone(), source }))
    });
    refused(&settings.policy).map(|refusal| ConfigError::from(refusal).into()).into_iter().chain(own).collect()
}

/// Looks at all disks at once: each may have to be waited for.
fn check_all(disks: &[DiskSettings]) -> Vec<DiskError> {
    let until = Instant::now() + PATIENCE;
    let begun = disks.iter().map(|disk| {
        let (sender, checked) = channel();
        let of = disk.clone();
        // Nobody waits any more if it took too long.
        let check = move || _ = sender.send(check(&of));
        let spawned = Builder::new().name("check".into()).spawn(check);
        (disk, spawned.map(|_| checked))
    });
    let begun: Vec<_> = begun.collect();
    let failed = begun.into_iter().filter_map(|(disk, checked)| {
        let silent = |source| {
            let path = disk.target.to_string().into();
            let source = OpenError { kind: OpenErrorKind::System, action: "look at", path, source };
            DiskError::Open { name: disk.name.clone(), source }
        };
        match checked {
            Err(error) => Some(silent(error)),
            Ok(checked) => match checked.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(result) => result.err(),
                Err(_) => Some(silent(io::Error::new(io::ErrorKind::TimedOut, "it does not respond"))),
            },
        }
    });
    failed.collect()
}

fn check(disk: &DiskSettings) -> Result<(), DiskError> {
    let name = || disk.name.clone();
    disk.check_log()?;
    let (read_only, has_log) = (disk.read_only, disk.write_log.is_some());
    let options = Options { read_only, has_log, block_bytes: BLOCK as u32, name: name(), ..Options::default() };
    for (target, at) in disk.targets().zip(0..) {
        let size = target.check(&options).map_err(|source| DiskError::Open { name: name(), source })?;
        disk.check_size(target, at, size)?;
    }
    Ok(())
}

/// The error if a file that is written is a target twice.
fn shared_file(disks: &[DiskSettings]) -> Option<DiskError> {
    let locked = |target: &Target| !matches!(target, Target::Unlocked(_));
    let paths: Vec<(&DiskSettings, &Path)> = disks
        .iter()
        .flat_map(|disk| {
            disk.targets().filter(|target| locked(target)).filter_map(move |target| Some((disk, target.path()?)))
        })
        .collect();
    paths.iter().enumerate().find_map(|(at, (disk, path))| {
        let is_same =
            |(other, of): &&(&DiskSettings, &Path)| !(disk.read_only && other.read_only) && same_file(path, of);
        let (other, _) = paths[..at].iter().find(is_same)?;
        Some(DiskError::OneFile { disks: [other.name.clone(), disk.name.clone()], path: (*path).to_owned() })
    })
}

/// The error if the file of a level can be neither opened nor made.
fn check_level(level: &LevelSettings) -> Result<(), LevelError> {
    let Some(path) = level.target.path() else { return Err(LevelError::Memory) };
    let fail = |source: io::Error| {
        let kind = match source.kind() {
            io::ErrorKind::NotFound => OpenErrorKind::NotFound,
            io::ErrorKind::PermissionDenied => OpenErrorKind::Denied,
            _ => OpenErrorKind::System,
        };
        LevelError::Open(OpenError { kind, action: "open for writing", path: path.to_owned(), source })
    };
    if path.exists() {
        return level.target.check(&Options::default()).map(drop).map_err(LevelError::Open);
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    access(folder, Access::WRITE_OK).map_err(|error| fail(error.into()))
}
