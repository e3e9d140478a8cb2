//! The layout of an event or of a page, from the kernel's own description of it.

use crate::{Error, Result};

/// The place of a field within a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// First byte.
    pub offset: usize,
    /// Bytes.
    pub size: usize,
}

/// The fields of a record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    /// The number of the event; 0 for pages.
    pub id: u16,
    fields: Vec<(String, Field)>,
}

impl Layout {
    /// Reads a description: a line `ID: 17`, and lines that begin with `field:unsigned int bytes; offset:28; size:4;`.
    pub fn parse(text: &str) -> Layout {
        let mut layout = Layout::default();
        for line in text.lines().map(str::trim) {
            if let Some(id) = line.strip_prefix("ID:") {
                layout.id = id.trim().parse().unwrap_or(0);
            }
            let Some(rest) = line.strip_prefix("field:") else { continue };
            let mut parts = rest.split(';').map(str::trim);
            let declaration = parts.next().unwrap_or_default();
            let name = declaration.split_whitespace().next_back().unwrap_or_default();
            let name = name.split('[').next().unwrap_or(name);
            let mut value = |key| parts.next()?.strip_prefix(key)?.parse::<usize>().ok();
            if let (Some(offset), Some(size)) = (value("offset:"), value("size:")) {
                layout.fields.push((name.to_owned(), Field { offset, size }));
            }
        }
        layout
    }

    /// The field `name` of the description `what`, of one of `sizes` in bytes.
    pub fn field(&self, what: &str, name: &'static str, sizes: &[usize]) -> Result<Field> {
        let found = self.fields.iter().find(|(known, _)| known == name).map(|(_, field)| *field);
        match found {
            Some(field) if sizes.is_empty() || sizes.contains(&field.size) => Ok(field),
            _ => Err(Error::Unexpected {
                what: format!("{what}, field {name}"),
                found: found.map_or_else(|| "nothing".to_owned(), |field| format!("{} bytes", field.size)),
                expected: "the field, in a size that is known",
            }),
        }
    }
}

impl Field {
    /// The bytes of this field, if `record` is long enough.
    pub(crate) fn of(self, record: &[u8]) -> Option<&[u8]> {
        record.get(self.offset..self.offset.checked_add(self.size)?)
    }

    /// The integer in this field, of up to 8 bytes in the machine's order.
    pub(crate) fn number(self, record: &[u8]) -> Option<u64> {
        let bytes = self.of(record)?;
        let mut whole = [0; 8];
        if cfg!(target_endian = "little") {
            whole.get_mut(..bytes.len())?.copy_from_slice(bytes);
        } else {
            whole.get_mut(8usize.checked_sub(bytes.len())?..)?.copy_from_slice(bytes);
        }
        Some(u64::from_ne_bytes(whole))
    }

    /// The text in this field, up to its first zero.
    pub(crate) fn text(self, record: &[u8]) -> Option<&[u8]> {
        self.of(record)?.split(|&byte| byte == 0).next()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ISSUE: &str = "name: block_rq_issue
ID: 2104
format:
\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;

\tfield:dev_t dev;\toffset:8;\tsize:4;\tsigned:0;
\tfield:sector_t sector;\toffset:16;\tsize:8;\tsigned:0;
\tfield:char rwbs[10];\toffset:34;\tsize:10;\tsigned:0;

print fmt: \"%d\", REC->dev
";

    #[test]
    fn fields_are_found_by_name() {
        let layout = Layout::parse(ISSUE);
        assert_eq!(layout.id, 2104);
        assert_eq!(layout.field("issue", "sector", &[8]).unwrap(), Field { offset: 16, size: 8 });
        assert_eq!(layout.field("issue", "rwbs", &[]).unwrap(), Field { offset: 34, size: 10 });
        let error = layout.field("issue", "dev", &[8]).unwrap_err().to_string();
        assert_eq!(error, "issue, field dev: found 4 bytes, expected the field, in a size that is known");
        let error = layout.field("issue", "bytes", &[4]).unwrap_err().to_string();
        assert_eq!(error, "issue, field bytes: found nothing, expected the field, in a size that is known");
    }

    #[test]
    fn values_outside_of_a_record_are_none() {
        let record = [1, 0, 0, 0, b'R', b'A', 0, b'x'];
        assert_eq!(Field { offset: 0, size: 4 }.number(&record), Some(1));
        assert_eq!(Field { offset: 4, size: 4 }.text(&record), Some(&b"RA"[..]));
        assert_eq!(Field { offset: 6, size: 4 }.of(&record), None);
        assert_eq!(Field { offset: usize::MAX, size: 4 }.of(&record), None);
    }
}
