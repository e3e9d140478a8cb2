//! The table of settings: each is a flag of `nigh serve` and a key of its file. `settings.rs` has the table itself.

use serde::{Deserialize, Serialize};

/// Defines groups of settings, each with its heading in the help, and `Given`, which has all groups. A field is a flag, and the key of the file
/// with the same name; its attributes are those of clap, and its comment is the help and the description in docs/config.md.
macro_rules! settings {
    ($($heading:literal $group:ident: $Group:ident { $($(#[$meta:meta])* $field:ident: $type:ty,)* })*) => {
        $(
            // No doc comment: clap would head the help of commands with it.
            #[derive(Clone, Debug, Default, PartialEq, clap::Args, serde::Serialize)]
            #[command(next_help_heading = $heading)]
            #[serde(rename_all = "kebab-case")]
            pub(crate) struct $Group {
                $($(#[$meta])* #[serde(skip_serializing_if = "Setting::is_absent")] pub(crate) $field: $type,)*
            }
        )*

        // All settings, as flags or a file give them.
        #[derive(Clone, Debug, Default, PartialEq, clap::Args, serde::Serialize)]
        pub(crate) struct Given {
            $(#[command(flatten)] #[serde(flatten)] pub(crate) $group: $Group,)*
        }

        impl Given {
            /// The names of all settings, with underscores.
            pub(crate) const FIELDS: &[&str] = &[$($(stringify!($field),)*)*];

            /// Sets the key `name` of a file. Returns false if there is no such key.
            pub(crate) fn read(&mut self, name: &str, value: ValueDeserializer) -> Result<bool, toml::de::Error> {
                match (!name.contains('_')).then(|| name.replace('-', "_")).as_deref() {
                    $($(Some(stringify!($field)) => self.$group.$field = Deserialize::deserialize(value)?,)*)*
                    _ => return Ok(false),
                }
                Ok(true)
            }

            /// Those given here, and for the others those of `file`.
            pub(crate) fn or(self, file: Given) -> Given {
                Given { $($group: $Group { $($field: self.$group.$field.or(file.$group.$field),)* },)* }
            }
        }
    };
}
pub(crate) use settings;

/// A setting that may be absent.
pub(crate) trait Setting: Sized {
    /// Whether it has no value to print.
    fn is_absent(&self) -> bool {
        false
    }

    /// This value, or `other` if this one is absent.
    fn or(self, other: Self) -> Self;
}

impl<T> Setting for Option<T> {
    fn is_absent(&self) -> bool {
        self.is_none()
    }

    fn or(self, other: Self) -> Self {
        Option::or(self, other)
    }
}

impl<T> Setting for Vec<T> {
    fn is_absent(&self) -> bool {
        self.is_empty()
    }

    fn or(self, other: Self) -> Self {
        if self.is_empty() { other } else { self }
    }
}

/// A switch that is off by default.
impl Setting for bool {
    fn or(self, other: Self) -> Self {
        self || other
    }
}

/// A switch that is on by default.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub(crate) struct On(pub(crate) bool);

impl Default for On {
    fn default() -> On {
        On(true)
    }
}

impl Setting for On {
    fn or(self, other: Self) -> Self {
        On(self.0 && other.0)
    }
}

/// Marks a setting that a reload applies.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reloaded;

impl clap::builder::ArgExt for Reloaded {}
