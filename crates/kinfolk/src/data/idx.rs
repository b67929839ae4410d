//! The idx format of MNIST and its relatives: a magic number, the sizes, then the values, bytes or integers.
//!
//! Plain and gzipped files are distinguished by their first bytes, not by their names.

use super::*;
use flate2::read::GzDecoder;
use std::io::Read;

/// An array of bytes, or of other numbers, with its sizes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Idx<T = u8> {
    /// The size of every dimension, the slowest first.
    pub(crate) sizes: Vec<usize>,
    /// The values, the last dimension fastest.
    pub(crate) values: Vec<T>,
}

/// A type of values: its number in the file, its size in bytes, and its name.
struct Stored(u32, usize, &'static str);

const BYTES: Stored = Stored(0x08, 1, "unsigned bytes");
const INTEGERS: Stored = Stored(0x0c, 4, "integers of 4 bytes");

/// The path of the file of this name, plain or else with `.gz`.
pub(super) fn plain_or_packed(folder: &Path, name: &str) -> PathBuf {
    let plain = folder.join(name);
    if plain.exists() { plain } else { folder.join(format!("{name}.gz")) }
}

/// Reads a file of unsigned bytes with this many dimensions.
pub(crate) fn read(path: &Path, dimensions: usize) -> Result<Idx> {
    let bytes = fs::read(path).map_err(|error| Error::io("reading", path, error))?;
    parse(&path.display().to_string(), bytes, dimensions)
}

/// Reads a file of integers of four bytes with this many dimensions.
pub fn read_integers(path: &Path, dimensions: usize) -> Result<Idx<i32>> {
    let bytes = fs::read(path).map_err(|error| Error::io("reading", path, error))?;
    let idx = parse_as(&path.display().to_string(), bytes, dimensions, INTEGERS)?;
    Ok(Idx { sizes: idx.sizes, values: idx.values.chunks_exact(4).map(|four| big_endian(four) as i32).collect() })
}

/// Reads an array from memory; `place` names it in errors.
pub fn parse(place: &str, bytes: Vec<u8>, dimensions: usize) -> Result<Idx> {
    parse_as(place, bytes, dimensions, BYTES)
}

fn parse_as(place: &str, bytes: Vec<u8>, dimensions: usize, Stored(number, width, name): Stored) -> Result<Idx> {
    let mut bytes = decompress(place, bytes)?;
    let header = 4 + 4 * dimensions;
    if bytes.len() < header {
        let message = format!("{place}: {} bytes, want at least {header} for the header of an idx file", bytes.len());
        return Err(broken(message));
    }
    let magic = big_endian(&bytes[..4]);
    let wanted = number << 8 | dimensions as u32;
    if magic != wanted {
        return Err(broken(format!(
            "{place}: starts with {magic:#010x}, want {wanted:#010x} (idx, {name}, {dimensions} dimensions)"
        )));
    }
    let sizes: Vec<usize> = bytes[4..header].chunks_exact(4).map(|four| big_endian(four) as usize).collect();
    let by = sizes.iter().map(usize::to_string).collect::<Vec<_>>().join(" x ");
    let each = if width > 1 { format!(", {width} bytes each") } else { String::new() };
    let want = sizes.iter().try_fold(width, |product, size| product.checked_mul(*size));
    let want = want.and_then(|values| values.checked_add(header));
    let want = want.ok_or_else(|| broken(format!("{place}: {by} values do not fit into memory")))?;
    if bytes.len() != want {
        return Err(broken(format!("{place}: {} bytes, want {want} ({header} of header and {by}{each})", bytes.len())));
    }
    bytes.drain(..header);
    Ok(Idx { sizes, values: bytes })
}

fn decompress(place: &str, bytes: Vec<u8>) -> Result<Vec<u8>> {
    if !bytes.starts_with(&[0x1f, 0x8b]) {
        return Ok(bytes);
    }
    let mut plain = Vec::new();
    GzDecoder::new(bytes.as_slice()).read_to_end(&mut plain).map_err(|error| {
        broken(format!("{place}: the gzip data breaks off after {} bytes of content: {error}", plain.len()))
    })?;
    Ok(plain)
}

fn big_endian(four: &[u8]) -> u32 {
    four.iter().fold(0, |number, byte| number << 8 | u32::from(*byte))
}

fn broken(message: String) -> Error {
    Error::data(message).hint("the file is incomplete or not the right one: delete it and fetch it again")
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use flate2::{Compression, write::GzEncoder};
    use std::io::Write;

    pub(in crate::data) fn bytes(sizes: &[u32], values: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0, 0, 8, sizes.len() as u8];
        sizes.iter().for_each(|size| bytes.extend(size.to_be_bytes()));
        bytes.extend(values);
        bytes
    }

    pub(in crate::data) fn integers(sizes: &[u32], values: &[i32]) -> Vec<u8> {
        let mut bytes = bytes(sizes, &values.iter().flat_map(|value| value.to_be_bytes()).collect::<Vec<_>>());
        bytes[2] = 0x0c;
        bytes
    }

    pub(in crate::data) fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn plain_and_gzipped_files_read_alike() {
        let folder = tempfile::tempdir().unwrap();
        let (plain, packed) = (folder.path().join("a"), folder.path().join("b"));
        let content = bytes(&[2, 3], &[1, 2, 3, 4, 5, 6]);
        fs::write(&plain, &content).unwrap();
        fs::write(&packed, gzip(&content)).unwrap();
        let idx = read(&plain, 2).unwrap();
        assert_eq!(idx, Idx { sizes: vec![2, 3], values: vec![1, 2, 3, 4, 5, 6] });
        assert_eq!(read(&packed, 2).unwrap(), idx);
    }

    #[test]
    fn integers_have_four_bytes_and_a_sign() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("labels");
        fs::write(&path, gzip(&integers(&[2, 2], &[1, -2, 70_000, 0]))).unwrap();
        assert_eq!(read_integers(&path, 2).unwrap(), Idx { sizes: vec![2, 2], values: vec![1, -2, 70_000, 0] });
        fs::write(&path, integers(&[2, 2], &[1, -2, 70_000])).unwrap();
        let text = read_integers(&path, 2).unwrap_err().to_string();
        assert!(text.contains("24 bytes, want 28 (12 of header and 2 x 2, 4 bytes each)"), "{text}");
        fs::write(&path, bytes(&[2, 2], &[1, 2, 3, 4])).unwrap();
        let text = read_integers(&path, 2).unwrap_err().to_string();
        assert!(text.contains("want 0x00000c02 (idx, integers of 4 bytes, 2 dimensions)"), "{text}");
    }

    #[test]
    fn faults_say_what_was_found_and_wanted() {
        let text = |content: Vec<u8>, dimensions| {
            let text = parse("f", content, dimensions).unwrap_err().to_string();
            text.lines().next().unwrap().to_string()
        };
        assert_eq!(text(bytes(&[2, 2], &[1, 2, 3]), 2), "f: 15 bytes, want 16 (12 of header and 2 x 2)");
        assert_eq!(
            text(bytes(&[4], &[1, 2, 3, 4, 5, 6, 7, 8]), 3),
            "f: starts with 0x00000801, want 0x00000803 (idx, unsigned bytes, 3 dimensions)"
        );
        assert_eq!(text(vec![0, 0, 8], 1), "f: 3 bytes, want at least 8 for the header of an idx file");
        let huge = bytes(&[u32::MAX, u32::MAX, u32::MAX], &[]);
        assert!(text(huge, 3).contains("do not fit"));
        let mut cut = gzip(&bytes(&[2], &[7, 7]));
        cut.truncate(cut.len() - 9);
        assert!(text(cut, 1).contains("breaks off"));
    }
}
