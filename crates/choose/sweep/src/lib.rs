#![doc = include_str!("../README.md")]

mod answer;
mod content;
mod error;
mod file;
mod folder;
mod job;
mod keys;
mod list;
mod settings;
mod sweep;
pub mod table;
pub mod text;

pub use answer::{About, to_rows};
pub use content::Content;
pub use error::Error;
pub use file::{decode, encode};
pub use folder::{Folder, Found};
pub use job::{Job, Key, RESULTS};
pub use list::{List, expand, is_uri, jobs};
pub use settings::Settings;
pub use sweep::{Outcome, Task, run, tasks};
