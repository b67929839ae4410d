//! Checks the sizes a parquet file claims against the bytes it has: the reader allocates whatever is claimed, and running
//! out of memory is not an error that can be handled; and it reads on past the end of the data.

use bytes::Bytes;
use parquet::basic::Encoding;
use parquet::column::page::Page;
use parquet::errors::{ParquetError, Result};
use parquet::file::reader::{ChunkReader, FileReader, Length};
use std::fs::File;
use std::io::{BufReader, Error, ErrorKind, Read};

/// A file that refuses to be read beyond its end.
pub(super) struct Bounded(pub(super) File);

/// A reader that fails after repeated reads at its end.
pub(super) struct Ending {
    reader: BufReader<File>,
    /// Reads that returned nothing.
    futile: usize,
}

/// Upper bound on futile reads: readers look for the end once or twice.
const MOST_FUTILE: usize = 16;

impl Length for Bounded {
    fn len(&self) -> u64 {
        self.0.len()
    }
}

impl ChunkReader for Bounded {
    type T = Ending;

    fn get_read(&self, start: u64) -> Result<Ending> {
        Ok(Ending { reader: self.0.get_read(start)?, futile: 0 })
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes> {
        let (there, end) = (self.len(), start.saturating_add(length as u64));
        if end > there {
            return Err(ParquetError::EOF(format!("bytes up to {end} are claimed, the file has {there}")));
        }
        self.0.get_bytes(start, length)
    }
}

impl Read for Ending {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let count = self.reader.read(buffer)?;
        if count == 0 && !buffer.is_empty() {
            self.futile += 1;
            if self.futile > MOST_FUTILE {
                return Err(Error::new(ErrorKind::UnexpectedEof, "more bytes are claimed than the file has"));
            }
        }
        Ok(count)
    }
}

/// Upper bound on the cells of a table that fits into memory.
const MOST_CELLS: i64 = 1 << 32;

/// Refuses a file with more cells than fit into memory, or with pages that claim more values than they can have.
pub(super) fn check(reader: &dyn FileReader) -> Result<()> {
    let about = reader.metadata().file_metadata();
    let columns = about.schema_descr().num_columns() as i64;
    if about.num_rows().saturating_mul(columns) > MOST_CELLS {
        let message = format!("{} rows of {columns} columns, want at most {MOST_CELLS} cells", about.num_rows());
        return Err(ParquetError::General(message));
    }
    for group in 0..reader.num_row_groups() {
        let group = reader.get_row_group(group)?;
        for (place, column) in group.metadata().columns().iter().enumerate() {
            let described = column.column_descr();
            let levels = usize::from(described.max_rep_level() > 0) + usize::from(described.max_def_level() > 0);
            let mut pages = group.get_column_page_reader(place)?;
            while let Some(page) = pages.get_next_page()? {
                if !is_possible(&page, levels) {
                    let message =
                        format!("a page of column `{}` claims values that it does not have", described.name());
                    return Err(ParquetError::General(message));
                }
            }
        }
    }
    Ok(())
}

/// Whether a page can have the values it claims, after this many lists of levels. Runs of one value take no space.
fn is_possible(page: &Page, levels: usize) -> bool {
    let claimed = u64::from(page.num_values());
    let (bytes, values) = match page {
        Page::DictionaryPage { buf, .. } => return claimed <= buf.len() as u64,
        Page::DataPage { buf, .. } => (&buf[..], behind_levels(buf, levels)),
        Page::DataPageV2 { buf, def_levels_byte_len, rep_levels_byte_len, .. } => {
            (&buf[..], (*def_levels_byte_len as usize).checked_add(*rep_levels_byte_len as usize))
        }
    };
    let Some(values) = values.and_then(|begin| bytes.get(begin..)) else { return false };
    let counted = |count: Option<u64>| count.is_some_and(|count| count <= claimed);
    match page.encoding() {
        Encoding::DELTA_LENGTH_BYTE_ARRAY => counted(Deltas::of(values).map(|lengths| lengths.count)),
        Encoding::DELTA_BYTE_ARRAY => {
            let suffixes = |prefixes: Deltas| Deltas::of(&values[prefixes.end()?..]);
            counted(Deltas::of(values).map(|prefixes| prefixes.count))
                && counted(Deltas::of(values).and_then(suffixes).map(|lengths| lengths.count))
        }
        _ => true,
    }
}

/// The start of the values after lists of levels, each preceded by its length.
fn behind_levels(bytes: &[u8], levels: usize) -> Option<usize> {
    (0..levels).try_fold(0usize, |at, _| {
        let length = bytes.get(at..)?.first_chunk::<4>()?;
        at.checked_add(4)?.checked_add(u32::from_le_bytes(*length) as usize)
    })
}

/// Delta-encoded integers in packed blocks, preceded by their count.
struct Deltas<'a> {
    bytes: &'a [u8],
    blocks: usize,
    block_size: u64,
    parts: u64,
    count: u64,
}

impl<'a> Deltas<'a> {
    fn of(bytes: &'a [u8]) -> Option<Self> {
        let mut at = 0;
        let [block_size, parts, count] = [number(bytes, &mut at)?, number(bytes, &mut at)?, number(bytes, &mut at)?];
        number(bytes, &mut at)?;
        (parts > 0).then_some(Self { bytes, blocks: at, block_size, parts, count })
    }

    /// Their end: a block has its least difference, the width of each part, and the parts.
    fn end(&self) -> Option<usize> {
        let mut at = self.blocks;
        let each = self.block_size / self.parts;
        let mut left = self.count.saturating_sub(1);
        while left > 0 {
            number(self.bytes, &mut at)?;
            let widths = self.bytes.get(at..at.checked_add(usize::try_from(self.parts).ok()?)?)?;
            at += widths.len();
            for &width in widths {
                if left == 0 {
                    break;
                }
                at = at.checked_add(usize::try_from(u64::from(width).checked_mul(each)? / 8).ok()?)?;
                left = left.saturating_sub(each.max(1));
            }
        }
        (at <= self.bytes.len()).then_some(at)
    }
}

/// A variable-length integer: seven bits per byte, the lowest first.
fn number(bytes: &[u8], at: &mut usize) -> Option<u64> {
    let mut value = 0u64;
    for shift in (0..64).step_by(7) {
        let byte = *bytes.get(*at)?;
        *at += 1;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dictionary(bytes: usize, num_values: u32) -> Page {
        Page::DictionaryPage { buf: vec![0; bytes].into(), num_values, encoding: Encoding::PLAIN, is_sorted: false }
    }

    fn data(bytes: &[u8], num_values: u32, encoding: Encoding) -> Page {
        let (def_level_encoding, rep_level_encoding) = (Encoding::RLE, Encoding::RLE);
        let buf = bytes.to_vec().into();
        Page::DataPage { buf, num_values, encoding, def_level_encoding, rep_level_encoding, statistics: None }
    }

    #[test]
    fn a_dictionary_has_a_byte_for_every_value() {
        assert!(is_possible(&dictionary(12, 3), 0));
        assert!(!is_possible(&dictionary(12, 1 << 30), 0));
    }

    #[test]
    fn whoever_reads_on_behind_the_end_gets_an_error() {
        let path = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(path.path(), [7; 20]).unwrap();
        let file = Bounded(File::open(path.path()).unwrap());
        assert_eq!(file.get_bytes(15, 5).unwrap().as_ref(), [7; 5]);
        assert!(file.get_bytes(15, 6).is_err() && file.get_bytes(u64::MAX, usize::MAX).is_err());
        let mut reader = file.get_read(10).unwrap();
        let mut rest = Vec::new();
        reader.read_to_end(&mut rest).unwrap();
        assert_eq!(rest, [7; 10]);
        let mut read_on = || std::io::copy(&mut reader.by_ref().take(3), &mut std::io::sink());
        assert!((0..20).any(|_| read_on().is_err()));
    }

    #[test]
    fn runs_of_one_value_may_be_long() {
        assert!(is_possible(&data(&[0; 3], 1 << 30, Encoding::RLE_DICTIONARY), 0));
    }

    #[test]
    fn lengths_are_not_more_than_values() {
        // Blocks of 128 in 4 parts, three numbers, the first of them 1; one block, its parts 0 bits wide.
        let lengths = [128, 1, 4, 3, 2, 0, 0, 0, 0, 0];
        let many = [128, 1, 4, 0xff, 0xff, 0xff, 0xff, 0x0f, 2, 0];
        let levelled = [&[2, 0, 0, 0, 9, 9][..], &lengths].concat();
        assert!(is_possible(&data(&lengths, 3, Encoding::DELTA_LENGTH_BYTE_ARRAY), 0));
        assert!(is_possible(&data(&levelled, 3, Encoding::DELTA_LENGTH_BYTE_ARRAY), 1));
        assert!(!is_possible(&data(&many, 3, Encoding::DELTA_LENGTH_BYTE_ARRAY), 0));
        assert!(!is_possible(&data(&[0xff; 30], 3, Encoding::DELTA_LENGTH_BYTE_ARRAY), 1));
        // Prefixes, then the lengths of what follows them.
        assert_eq!(Deltas::of(&lengths).and_then(|deltas| deltas.end()), Some(10));
        assert!(is_possible(&data(&[lengths, lengths].concat(), 3, Encoding::DELTA_BYTE_ARRAY), 0));
        assert!(!is_possible(&data(&[lengths, many].concat(), 3, Encoding::DELTA_BYTE_ARRAY), 0));
    }
}
