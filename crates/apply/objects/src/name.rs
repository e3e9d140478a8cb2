//! The names of objects with parts of disks.

use std::fmt;
use std::str::FromStr;

/// An object with a part of a disk. No two objects of a disk have the same epoch and number, so none is ever written twice
/// with different bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Object {
    /// Which part of the disk.
    pub part: u32,
    /// The epoch of the writer that made it, from 1.
    pub epoch: u32,
    /// Its number among the objects of that epoch.
    pub number: u32,
}

impl Object {
    /// Epoch and number as one number; never 0.
    pub(crate) fn generation(self) -> u64 {
        u64::from(self.epoch) << 32 | u64::from(self.number)
    }

    /// The object of a part with this generation; none for 0.
    pub(crate) fn of(part: u32, generation: u64) -> Option<Object> {
        (generation != 0).then_some(Object { part, epoch: (generation >> 32) as u32, number: generation as u32 })
    }
}

/// Its name below `PREFIX/parts/`.
impl fmt::Display for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}-{:08x}-{:08x}", self.part, self.epoch, self.number)
    }
}

/// From its name. Other names are no objects of a disk.
impl FromStr for Object {
    type Err = ();

    fn from_str(name: &str) -> Result<Object, ()> {
        let number = |text: Option<&str>| {
            let text = text.filter(|text| text.len() == 8)?;
            u32::from_str_radix(text, 16).ok()
        };
        let mut words = name.split('-');
        let object = (|| {
            Some(Object { part: number(words.next())?, epoch: number(words.next())?, number: number(words.next())? })
        })();
        // Upper-case digits and signs are another name.
        object.filter(|object| object.epoch > 0 && object.to_string() == name).ok_or(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_named() {
        let object = Object { part: 18, epoch: 3, number: 0xab };
        assert_eq!(object.to_string(), "00000012-00000003-000000ab");
        assert_eq!(object.to_string().parse(), Ok(object));
        assert_eq!(Object::of(18, object.generation()), Some(object));
        for foreign in [
            "",
            "manifest",
            "00000012-00000003",
            "00000012-00000003-000000AB",
            "00000012-00000000-000000ab",
            "+0000012-00000003-000000ab",
            "00000012-00000003-000000ab-1",
        ] {
            assert_eq!(foreign.parse::<Object>(), Err(()), "{foreign}");
        }
    }
}
