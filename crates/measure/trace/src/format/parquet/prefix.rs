//! The beginning of a file that ends in a footer: all of it, or up to the last footer of a recording that was cut short.

use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::os::unix::fs::FileExt;

use parquet::errors::ParquetError;
use parquet::file::reader::{ChunkReader, FileReader, Length, SerializedFileReader};

use super::TAKEN_KEY;

const MAGIC: &[u8; 4] = b"PAR1";

/// Bytes that are searched at a time.
const STEP_BYTES: usize = 1 << 20;

/// The most footers that are tried: the word may occur in data, or be put there.
const TRIES_MOST: u32 = 1000;

/// The first `bytes` of `file`.
pub(super) struct Prefix {
    pub(super) file: File,
    pub(super) bytes: u64,
}

impl Length for Prefix {
    fn len(&self) -> u64 {
        self.bytes
    }
}

impl ChunkReader for Prefix {
    type T = BufReader<io::Take<File>>;

    fn get_read(&self, start: u64) -> Result<Self::T, ParquetError> {
        let mut file = self.file.try_clone()?;
        file.seek(SeekFrom::Start(start))?;
        Ok(BufReader::new(file.take(self.bytes.saturating_sub(start))))
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<bytes::Bytes, ParquetError> {
        if start.checked_add(length as u64).is_none_or(|end| end > self.bytes) {
            return Err(ParquetError::EOF(format!("{length} bytes at {start} reach beyond the end")));
        }
        let mut buffer = vec![0; length];
        self.file.read_exact_at(&mut buffer, start)?;
        Ok(buffer.into())
    }
}

/// Whether a file is a recording without any rows.
pub(crate) fn is_without_rows(file: &File) -> bool {
    let found = file.metadata().and_then(|metadata| whole_part(file, metadata.len()));
    found.is_ok_and(|found| found.is_some_and(|(reader, _)| reader.metadata().file_metadata().num_rows() == 0))
}

/// Of a recording of `bytes` that does not end in a footer, the part that does, and its length; `None` if there is none.
pub(super) fn whole_part(file: &File, bytes: u64) -> io::Result<Option<(SerializedFileReader<Prefix>, u64)>> {
    let mut buffer = Vec::new();
    let mut tries = 0;
    let mut end = bytes;
    while end > 0 {
        let start = end.saturating_sub(STEP_BYTES as u64);
        // A word that begins in this step may end in the one behind it.
        let reach = (end + MAGIC.len() as u64 - 1).min(bytes);
        buffer.resize((reach - start) as usize, 0);
        file.read_exact_at(&mut buffer, start)?;
        for at in memchr::memmem::rfind_iter(&buffer, MAGIC) {
            tries += 1;
            if tries > TRIES_MOST {
                return Ok(None);
            }
            let whole_bytes = start + (at + MAGIC.len()) as u64;
            let prefix = Prefix { file: file.try_clone()?, bytes: whole_bytes };
            let Ok(reader) = SerializedFileReader::new(prefix) else { continue };
            let pairs = reader.metadata().file_metadata().key_value_metadata();
            if pairs.is_some_and(|pairs| pairs.iter().any(|pair| pair.key == TAKEN_KEY)) {
                return Ok(Some((reader, whole_bytes)));
            }
        }
        end = start;
    }
    Ok(None)
}
