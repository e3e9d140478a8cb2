//! Which decider a configuration describes.

use nigh_control::LruSp;
use nigh_policy::Setup;

use crate::config::Config;
use crate::decider::{Decider, Single};
use crate::error::ConfigError;
use crate::slots::{checked, ghosts_of};
use crate::unified::{self, Unified};

/// The decider that `config` describes.
pub(crate) fn decider(config: &Config, setup: &Setup) -> Result<Box<dyn Decider>, ConfigError> {
    Ok(match &config.tenants {
        Some(tenants) => Box::new(LruSp::new(setup, tenants.control.clone())),
        None if config.policy.is_unified() => Box::new(Unified::new(config, setup)?),
        None => Box::new(Single::new(&config.policy, setup)?),
    })
}

/// The number of ghosts that the decider of `config` can use if `capacity` blocks are resident.
pub(crate) fn ghosts(config: &Config, capacity: u32) -> Result<u32, ConfigError> {
    match &config.tenants {
        Some(tenants) => checked(tenants.control.ghosts(capacity), capacity),
        None if config.policy.is_unified() => unified::ghosts(&config.policy, &config.levels, capacity),
        None => ghosts_of(&config.policy, capacity),
    }
}
