//! Which decider a configuration describes.

use nigh_control::LruSp;
use nigh_policy::{Policy, Setup, Spec};

use crate::config::Config;
use crate::decider::{Decider, Single};
use crate::error::ConfigError;
use crate::slots::{checked, ghosts_of};
use crate::unified::{self, Unified};

/// The decider that `config` describes.
pub(crate) fn decider(config: &Config, setup: &Setup) -> Result<Box<dyn Decider>, ConfigError> {
    Ok(match &config.tenants {
        Some(tenants) => {
            let mut tenants = LruSp::new(setup, tenants.control.clone());
            tenants.set_policy(config.policy.clone().into())?;
            if setup.slots > tenants.slots_most() {
                let (slots, most) = (setup.slots, tenants.slots_most());
                return Err(ConfigError::Slots { policy: Box::new(config.policy.clone()), slots, most });
            }
            Box::new(tenants)
        }
        None if config.policy.is_unified() => Box::new(Unified::new(config, setup)?),
        None => Box::new(Single::new(&config.policy, setup, !config.into_policy)?),
    })
}

/// The number of ghosts that the decider of `config`, with this policy, can use if `capacity` blocks are resident.
pub(crate) fn ghosts(config: &Config, policy: &Spec, capacity: u32) -> Result<u32, ConfigError> {
    match &config.tenants {
        Some(tenants) => checked(tenants.control.ghosts(&policy.clone().into(), capacity)?, capacity),
        None if policy.is_unified() => unified::ghosts(policy, &config.levels, capacity),
        None => ghosts_of(policy, capacity),
    }
}
