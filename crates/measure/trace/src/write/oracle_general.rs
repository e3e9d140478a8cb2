//! libCacheSim's oracleGeneral: 24 bytes for each accessed block, little-endian: u32 seconds, u64 block, u32 bytes, i64
//! number (from 1) of the next record of the same block, -1 for none.
//!
//! Records are first spooled to an unnamed file, then completed from the last to the first, then copied to the output.
//! Memory holds one entry for each distinct block (16 bytes of payload in a hash table, 18 to 36 in all): 10^8 distinct
//! blocks, 400 GB of data in 4 KiB blocks, take up to 3.6 GB.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufWriter, Read, Seek, SeekFrom, Write};

use super::compressed::Compressed;
use super::{Failure, Numbering, Sink};
use crate::Request;

pub(super) const SECOND_NS: u64 = 1_000_000_000;

const RECORD_BYTES: usize = 24;
const BLOCK_AT: usize = 4;
const BYTES_AT: usize = 12;
const NEXT_AT: usize = 16;

/// Records that are completed at a time.
const PIECE_RECORDS: u64 = 1 << 16;

pub(super) struct OracleGeneral {
    output: Compressed,
    spool: BufWriter<File>,
    records: u64,
    numbering: Numbering,
}

impl OracleGeneral {
    pub(super) fn new(output: Compressed, block_bytes: u32) -> io::Result<OracleGeneral> {
        let spool = BufWriter::with_capacity(1 << 17, output.scratch()?);
        // The same split as in the reader.
        let block_bits = 63 - block_bytes.next_power_of_two().trailing_zeros();
        Ok(OracleGeneral { output, spool, records: 0, numbering: Numbering { block_bytes, block_bits, bits: 64 } })
    }
}

impl Sink for OracleGeneral {
    fn push(&mut self, request: &Request) -> Result<u64, Failure> {
        let seconds = u32::try_from(request.time_ns / SECOND_NS)
            .map_err(|_| Failure::Unrepresentable("a time of 2^32 seconds or more"))?;
        let before = self.records;
        for block in self.numbering.blocks(request)? {
            let mut record = [0; RECORD_BYTES];
            record[..BLOCK_AT].copy_from_slice(&seconds.to_le_bytes());
            record[BLOCK_AT..BYTES_AT].copy_from_slice(&block.to_le_bytes());
            record[BYTES_AT..NEXT_AT].copy_from_slice(&self.numbering.block_bytes.to_le_bytes());
            self.spool.write_all(&record)?;
            self.records += 1;
        }
        Ok(self.records - before)
    }

    fn finish(mut self: Box<Self>) -> io::Result<Compressed> {
        let mut spool = self.spool.into_inner().map_err(io::IntoInnerError::into_error)?;
        complete(&mut spool, self.records)?;
        spool.rewind()?;
        io::copy(&mut spool, &mut self.output)?;
        Ok(self.output)
    }
}

/// Fills in the number of the next record of the same block.
fn complete(spool: &mut File, records: u64) -> io::Result<()> {
    let mut later: HashMap<u64, i64> = HashMap::new();
    let mut piece = Vec::new();
    let mut end = records;
    while end > 0 {
        let start = (end - 1) / PIECE_RECORDS * PIECE_RECORDS;
        let at = SeekFrom::Start(start * RECORD_BYTES as u64);
        piece.resize((end - start) as usize * RECORD_BYTES, 0);
        spool.seek(at)?;
        spool.read_exact(&mut piece)?;
        for (record, number) in piece.as_chunks_mut::<RECORD_BYTES>().0.iter_mut().rev().zip((1..=end as i64).rev()) {
            let mut block = [0; 8];
            block.copy_from_slice(&record[BLOCK_AT..BYTES_AT]);
            let next = later.insert(u64::from_le_bytes(block), number).unwrap_or(-1);
            record[NEXT_AT..].copy_from_slice(&next.to_le_bytes());
        }
        spool.seek(at)?;
        spool.write_all(&piece)?;
        end = start;
    }
    Ok(())
}
