//! The text of FIU's traces with digests (IODedup: homes, mail, web-vm): time in nanoseconds, process id, process name, first sector,
//! number of sectors (512 bytes), `W` or `R`, major and minor number of the device, and the digest of what was read or written, in
//! any notation. The device is the volume, numbered major × 2^20 + minor as in Linux; the process is the tenant.

use crate::Request;
use crate::error::Bad;
use crate::format::blkparse::volume_of;
use crate::text::{Fields, Lines, SECTOR_BYTES, digest, extent_of, op};

const DEVICE: &str = "a device number as of Linux";

pub(crate) struct Parser;

impl Lines for Parser {
    fn parse(&mut self, line: &[u8]) -> Result<Option<Request>, Bad> {
        let mut fields = Fields::new(line);
        let time_ns = fields.number("a time in nanoseconds")?;
        let tenant = fields.number32("a process id")?;
        fields.expect("the name of a process")?;
        let sector = fields.number("the number of the first sector")?;
        let sectors = fields.number("a number of sectors")?;
        let kind = fields.expect("W or R")?;
        let op = op(kind).ok_or_else(|| Bad::field(kind, "W or R"))?;
        let (major, minor) = (fields.expect(DEVICE)?, fields.expect(DEVICE)?);
        let volume = volume_of(major, minor).ok_or_else(|| Bad::field(line, DEVICE))?;
        let content = digest(fields.expect("a digest")?);
        fields.end("nine fields")?;
        let (offset, length) = extent_of(line, sector, sectors, SECTOR_BYTES)?;
        Ok(Some(Request { time_ns, offset, length, volume, tenant, op, content, ..Request::default() }))
    }
}
