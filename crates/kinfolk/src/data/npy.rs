//! Arrays as numpy saves them: the magic word, the format's version, a dictionary as Python writes it, then the numbers.
//!
//! Nothing in the header is believed before the bytes are there: memory grows with what was read.

use crate::error::{Error, Result};
use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;

/// Real headers are about a hundred bytes; those of structured arrays may be longer.
const LONGEST_HEADER: usize = 1 << 16;
/// Bytes read at a time, a multiple of every size of number.
const CHUNK: usize = 1 << 20;

/// A table of numbers, row-major.
#[derive(Debug, PartialEq)]
pub(super) struct Array {
    pub values: Vec<f64>,
    pub columns: usize,
}

/// Reads an array of one or two dimensions; one dimension is one column.
pub(super) fn read(path: &Path) -> Result<Array> {
    let file = File::open(path).map_err(|error| Error::io("reading", path, error))?;
    parse(BufReader::new(file)).map_err(|fault| match fault {
        Fault::Io(error) => Error::io("reading", path, error),
        Fault::Data(message, hint) => {
            let error = Error::data(format!("{}: {message}", path.display()));
            if hint.is_empty() { error } else { error.hint(hint) }
        }
    })
}

#[derive(Debug)]
enum Fault {
    Io(std::io::Error),
    Data(String, &'static str),
}

fn fault<T>(message: impl Into<String>) -> Result<T, Fault> {
    Err(Fault::Data(message.into(), ""))
}

/// Fills the buffer as far as the file goes, and says how far that was.
fn read_up_to(mut file: impl Read, buffer: &mut [u8]) -> Result<usize, Fault> {
    let mut filled = 0;
    while filled < buffer.len() {
        match file.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(Fault::Io(error)),
        }
    }
    Ok(filled)
}

fn read_bytes<const COUNT: usize>(file: impl Read) -> Result<[u8; COUNT], Fault> {
    let mut bytes = [0; COUNT];
    if read_up_to(file, &mut bytes)? < COUNT {
        return fault("the file ends within its header");
    }
    Ok(bytes)
}

fn parse(mut file: impl Read) -> Result<Array, Fault> {
    let mut magic = [0; 6];
    if read_up_to(&mut file, &mut magic)? < 6 || magic != *b"\x93NUMPY" {
        return fault("not an npy file");
    }
    let length = match read_bytes::<2>(&mut file)? {
        [1, _] => usize::from(u16::from_le_bytes(read_bytes(&mut file)?)),
        [2 | 3, _] => u32::from_le_bytes(read_bytes(&mut file)?) as usize,
        [major, minor] => return fault(format!("npy format {major}.{minor}, want 1.0, 2.0 or 3.0")),
    };
    if length > LONGEST_HEADER {
        return fault(format!("a header of {length} bytes, want at most {LONGEST_HEADER}"));
    }
    let mut header = vec![0; length];
    if read_up_to(&mut file, &mut header)? < length {
        return fault("the file ends within its header");
    }
    let header = Header::parse(&header)?;
    let (rows, columns) = match header.shape.as_slice() {
        [rows] => (*rows, 1),
        [rows, columns] => (*rows, *columns),
        other => {
            let message = format!("an array of {} dimensions, want 1 or 2", other.len());
            return Err(Fault::Data(message, "one row a point, one column a coordinate: numpy's reshape makes it so"));
        }
    };
    let count = rows.checked_mul(columns).filter(|count| count.checked_mul(8).is_some());
    let Some(count) = count else {
        return fault(format!("an array of {rows} × {columns} numbers, which is no array"));
    };
    let values = header.number.read(&mut file, count)?;
    if read_up_to(&mut file, &mut [0])? > 0 {
        return fault(format!("goes on after its array of {rows} × {columns} numbers"));
    }
    let values = if header.fortran_order { turned(&values, rows, columns) } else { values };
    Ok(Array { values, columns })
}

/// Row after row instead of column after column.
fn turned(values: &[f64], rows: usize, columns: usize) -> Vec<f64> {
    (0..rows).flat_map(|row| (0..columns).map(move |column| values[column * rows + row])).collect()
}

/// How one number is written.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Number {
    kind: u8,
    size: usize,
    big_endian: bool,
}

impl Number {
    fn parse(descr: &str) -> Result<Self, Fault> {
        let bytes = descr.as_bytes();
        match bytes {
            [order @ (b'<' | b'>' | b'|' | b'='), kind @ (b'f' | b'i' | b'u'), size @ (b'1' | b'2' | b'4' | b'8')]
                if *kind != b'f' || matches!(size, b'4' | b'8') =>
            {
                let big_endian = *order == b'>' || (*order == b'=' && cfg!(target_endian = "big"));
                Ok(Self { kind: *kind, size: usize::from(size - b'0'), big_endian })
            }
            _ => Err(Fault::Data(
                format!("numbers of type `{descr}`, want floats of 4 or 8 bytes or integers"),
                "save it with .astype(\"float64\")",
            )),
        }
    }

    fn read(self, mut file: impl Read, count: usize) -> Result<Vec<f64>, Fault> {
        let mut values = Vec::new();
        let mut chunk = vec![0; CHUNK.min(count * self.size)];
        while values.len() < count {
            let wanted = chunk.len().min((count - values.len()) * self.size);
            let filled = read_up_to(&mut file, &mut chunk[..wanted])?;
            if filled < wanted {
                let found = values.len() + filled / self.size;
                return fault(format!("cut short: its header says {count} numbers, but there are {found}"));
            }
            values.extend(chunk[..filled].chunks_exact(self.size).map(|bytes| self.decode(bytes)));
        }
        Ok(values)
    }

    fn decode(self, bytes: &[u8]) -> f64 {
        let mut little = [0; 8];
        little[..bytes.len()].copy_from_slice(bytes);
        if self.big_endian {
            little[..bytes.len()].reverse();
        }
        let bits = u64::from_le_bytes(little);
        match (self.kind, self.size) {
            (b'f', 4) => f64::from(f32::from_bits(bits as u32)),
            (b'f', _) => f64::from_bits(bits),
            (b'u', _) => bits as f64,
            // Shifted up and down again, the sign fills the upper bits.
            (_, size) => {
                let unused = 64 - 8 * size as u32;
                (((bits << unused) as i64) >> unused) as f64
            }
        }
    }
}

/// What the dictionary says.
#[derive(Debug, PartialEq)]
struct Header {
    number: Number,
    fortran_order: bool,
    shape: Vec<usize>,
}

impl Header {
    fn parse(bytes: &[u8]) -> Result<Self, Fault> {
        let text = std::str::from_utf8(bytes).or_else(|_| fault("its header is not text"))?;
        let mut rest = Cursor(text);
        let (mut number, mut fortran_order, mut shape) = (None, None, None);
        rest.expect('{')?;
        while !rest.take('}') {
            let key = rest.word()?;
            rest.expect(':')?;
            match key {
                "descr" if rest.peek() == Some('[') => {
                    let message = "an array of records, want a plain array of numbers";
                    return Err(Fault::Data(message.into(), "pick its columns of numbers and save them as one array"));
                }
                "descr" => number = Some(Number::parse(rest.word()?)?),
                "fortran_order" => fortran_order = Some(rest.truth()?),
                "shape" => shape = Some(rest.shape()?),
                other => return fault(format!("its header has an unknown key `{other}`")),
            }
            if !rest.take(',') {
                rest.expect('}')?;
                break;
            }
        }
        match (number, fortran_order, shape) {
            (Some(number), Some(fortran_order), Some(shape)) => Ok(Self { number, fortran_order, shape }),
            _ => fault("its header lacks one of descr, fortran_order and shape"),
        }
    }
}

/// The unread part of a header.
struct Cursor<'a>(&'a str);

impl<'a> Cursor<'a> {
    fn peek(&mut self) -> Option<char> {
        self.0 = self.0.trim_start();
        self.0.chars().next()
    }

    fn take(&mut self, wanted: char) -> bool {
        let found = self.peek() == Some(wanted);
        if found {
            self.0 = &self.0[wanted.len_utf8()..];
        }
        found
    }

    fn expect(&mut self, wanted: char) -> Result<(), Fault> {
        if self.take(wanted) { Ok(()) } else { fault("its header is not a dictionary as numpy writes it") }
    }

    fn word(&mut self) -> Result<&'a str, Fault> {
        let quote = if self.take('"') { '"' } else { '\'' };
        if quote == '\'' {
            self.expect(quote)?;
        }
        let Some((word, rest)) = self.0.split_once(quote) else {
            return fault("its header is not a dictionary as numpy writes it");
        };
        self.0 = rest;
        Ok(word)
    }

    /// Everything up to the first character that is not a letter or digit.
    fn token(&mut self) -> &'a str {
        self.0 = self.0.trim_start();
        let end = self.0.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(self.0.len());
        let (token, rest) = self.0.split_at(end);
        self.0 = rest;
        token
    }

    fn truth(&mut self) -> Result<bool, Fault> {
        match self.token() {
            "True" => Ok(true),
            "False" => Ok(false),
            other => fault(format!("its header has fortran_order `{other}`, want True or False")),
        }
    }

    fn shape(&mut self) -> Result<Vec<usize>, Fault> {
        let mut shape = Vec::new();
        self.expect('(')?;
        while !self.take(')') {
            // Python 2 wrote long integers with an L.
            let token = self.token();
            match token.strip_suffix('L').unwrap_or(token).parse() {
                Ok(size) => shape.push(size),
                Err(_) => return fault("its header has a shape that is none"),
            }
            if !self.take(',') {
                self.expect(')')?;
                break;
            }
        }
        Ok(shape)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(version: u8, header: &str, data: &[u8]) -> Vec<u8> {
        let mut bytes = b"\x93NUMPY".to_vec();
        bytes.extend([version, 0]);
        match version {
            1 => bytes.extend((header.len() as u16).to_le_bytes()),
            _ => bytes.extend((header.len() as u32).to_le_bytes()),
        }
        bytes.extend(header.as_bytes());
        bytes.extend(data);
        bytes
    }

    fn dictionary(descr: &str, fortran: &str, shape: &str) -> String {
        format!("{{'descr': '{descr}', 'fortran_order': {fortran}, 'shape': {shape}, }}          \n")
    }

    fn values(descr: &str, shape: &str, data: &[u8]) -> Vec<f64> {
        parse(&file(1, &dictionary(descr, "False", shape), data)[..]).unwrap().values
    }

    fn message(bytes: &[u8]) -> String {
        match parse(bytes).unwrap_err() {
            Fault::Data(message, _) => message,
            Fault::Io(error) => panic!("{error}"),
        }
    }

    #[test]
    fn every_version_type_and_order() {
        let data: Vec<u8> = [1.0f64, -2.5, 3.0, 4.0, 5.0, 6.0].iter().flat_map(|value| value.to_le_bytes()).collect();
        for version in [1, 2, 3] {
            let plain = parse(&file(version, &dictionary("<f8", "False", "(3, 2)"), &data)[..]).unwrap();
            assert_eq!(plain, Array { values: vec![1.0, -2.5, 3.0, 4.0, 5.0, 6.0], columns: 2 });
        }
        let turned = parse(&file(1, &dictionary("<f8", "True", "(3, 2)"), &data)[..]).unwrap();
        assert_eq!(turned, Array { values: vec![1.0, 4.0, -2.5, 5.0, 3.0, 6.0], columns: 2 });
        let line = parse(&file(1, &dictionary("<f8", "True", "(6,)"), &data)[..]).unwrap();
        assert_eq!((line.values.len(), line.columns), (6, 1));

        assert_eq!(values("<f4", "(1, 1)", &(-1.5f32).to_le_bytes()), [-1.5]);
        assert_eq!(values(">f4", "(1, 1)", &(-1.5f32).to_be_bytes()), [-1.5]);
        assert_eq!(values(">f8", "(1L, 1L)", &(1e300f64).to_be_bytes()), [1e300]);
        assert_eq!(values("|i1", "(2,)", &[0xff, 7]), [-1.0, 7.0]);
        assert_eq!(values("|u1", "(2,)", &[0xff, 7]), [255.0, 7.0]);
        assert_eq!(values("<i2", "(1,)", &(-300i16).to_le_bytes()), [-300.0]);
        assert_eq!(values(">i4", "(1,)", &(-70_000i32).to_be_bytes()), [-70_000.0]);
        assert_eq!(values("<i8", "(1,)", &i64::MIN.to_le_bytes()), [-(2f64.powi(63))]);
        assert_eq!(values("<u8", "(1,)", &u64::MAX.to_le_bytes()), [2f64.powi(64)]);
        assert!(values("<f8", "(0, 3)", &[]).is_empty());
    }

    #[test]
    fn more_numbers_than_one_chunk() {
        let count = CHUNK / 4 + 3;
        let data: Vec<u8> = (0..count).flat_map(|index| (index as f32).to_le_bytes()).collect();
        let values = values("<f4", &format!("({count},)"), &data);
        assert!(values.len() == count && values.iter().enumerate().all(|(index, value)| *value == index as f64));
    }

    #[test]
    fn what_is_no_array_of_numbers_is_said() {
        let of = |descr: &str, shape: &str| message(&file(1, &dictionary(descr, "False", shape), &[0; 16]));
        assert_eq!(message(b""), "not an npy file");
        assert_eq!(message(b"PK\x03\x04 an npz"), "not an npy file");
        assert_eq!(message(b"\x93NUMPY\x01"), "the file ends within its header");
        assert_eq!(message(b"\x93NUMPY\x09\x00\x00\x00"), "npy format 9.0, want 1.0, 2.0 or 3.0");
        assert_eq!(of("<f8", "()"), "an array of 0 dimensions, want 1 or 2");
        assert_eq!(of("<f8", "(1, 1, 2)"), "an array of 3 dimensions, want 1 or 2");
        for descr in ["|O", "<U8", "<c16", "<f2", "|b1", "<f16", "", "é"] {
            assert!(of(descr, "(2,)").starts_with(&format!("numbers of type `{descr}`, want")), "{descr}");
        }
        assert_eq!(of("<f8", "(3,)"), "cut short: its header says 3 numbers, but there are 2");
        assert_eq!(of("<f8", "(1,)"), "goes on after its array of 1 × 1 numbers");
        let records = "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2,), }";
        assert_eq!(message(&file(1, records, &[0; 8])), "an array of records, want a plain array of numbers");
    }

    #[test]
    fn hostile_headers_neither_panic_nor_allocate() {
        let of = |shape: &str| message(&file(1, &dictionary("<f8", "False", shape), &[0; 16]));
        assert!(of("(4611686018427387904, 2)").contains("which is no array"));
        assert!(of("(2305843009213693952,)").contains("which is no array"), "eight bytes each are too many");
        assert_eq!(of("(1000000000000, 1000)"), "cut short: its header says 1000000000000000 numbers, but there are 2");
        for shape in ["(-1, 2)", "(1.5,)", "(99999999999999999999999,)", "(a)", "(,)", "(1 2)", "((1,),)"] {
            of(shape);
        }
        let mut long = file(2, "", &[]);
        long[8..12].copy_from_slice(&u32::MAX.to_le_bytes());
        assert_eq!(message(&long), "a header of 4294967295 bytes, want at most 65536");
        for header in
            ["", "{", "{'", "{'descr", "{'descr':", "{'descr': '<f8'", "{'x': 1}", "[]", "{}", "{'shape': (", "{é"]
        {
            message(&file(1, header, &[]));
        }
        // Every cut of a good file is a fault, never a panic.
        let good = file(1, &dictionary("<f8", "False", "(1, 2)"), &[0; 16]);
        assert!(parse(&good[..]).is_ok());
        (0..good.len()).for_each(|length| drop(message(&good[..length])));
    }
}
