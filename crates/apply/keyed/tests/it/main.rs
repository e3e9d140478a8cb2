//! Values by key: the cache beside naive models, for every policy that works with keys.

mod contract;
mod examples;
mod hits;
mod model;
mod settings;
mod support;
mod weights;
