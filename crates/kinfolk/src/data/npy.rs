//! Arrays as numpy saves them: the magic word, the format's version, a dictionary as Python writes it, then the numbers.
//!
//! Nothing in the header is trusted before the bytes are there.

use super::*;

/// Real headers are about a hundred bytes; those of structured arrays may be longer.
const LONGEST_HEADER: usize = 1 << 16;

/// A table of numbers, row-major.
#[derive(Debug, PartialEq)]
pub(super) struct Array {
    pub values: Vec<f64>,
    pub columns: usize,
}

/// Reads an array of one or two dimensions; one dimension is one column.
pub(super) fn read(path: &Path) -> Result<Array> {
    let bytes = fs::read(path).map_err(|error| Error::io("reading", path, error))?;
    parse(&bytes).map_err(|error| error.at(path.display()))
}

fn fault<T>(message: impl Into<String>) -> Result<T> {
    Err(Error::data(message))
}

/// Takes bytes of the header off the front.
fn take<const COUNT: usize>(rest: &mut &[u8]) -> Result<[u8; COUNT]> {
    match rest.split_first_chunk() {
        Some((taken, others)) => {
            *rest = others;
            Ok(*taken)
        }
        None => fault("the file ends within its header"),
    }
}

fn parse(file: &[u8]) -> Result<Array> {
    let Some(mut rest) = file.strip_prefix(b"\x93NUMPY") else { return fault("not an npy file") };
    let length = match take(&mut rest)? {
        [1, _] => usize::from(u16::from_le_bytes(take(&mut rest)?)),
        [2 | 3, _] => u32::from_le_bytes(take(&mut rest)?) as usize,
        [major, minor] => return fault(format!("npy format {major}.{minor}, want 1.0, 2.0 or 3.0")),
    };
    if length > LONGEST_HEADER {
        return fault(format!("a header of {length} bytes, want at most {LONGEST_HEADER}"));
    }
    let Some((header, data)) = rest.split_at_checked(length) else { return fault("the file ends within its header") };
    let Header { descr, fortran_order, shape } = Header::parse(header)?;
    let Some(descr) = descr.as_str() else {
        return Err(Error::data("an array of records, want a plain array of numbers")
            .hint("pick its columns of numbers and save them as one array"));
    };
    let number = Number::parse(descr)?;
    let (rows, columns) = match shape.as_slice() {
        [rows] => (*rows, 1),
        [rows, columns] => (*rows, *columns),
        other => {
            let error = Error::data(format!("an array of {} dimensions, want 1 or 2", other.len()));
            return Err(error.hint("one row a point, one column a coordinate: numpy's reshape makes it so"));
        }
    };
    let count = rows.checked_mul(columns).filter(|count| count.checked_mul(8).is_some());
    let Some(count) = count else {
        return fault(format!("an array of {rows} × {columns} numbers, which is no array"));
    };
    let found = data.len() / number.size;
    if found < count {
        return fault(format!("cut short: its header says {count} numbers, but there are {found}"));
    }
    if data.len() > count * number.size {
        return fault(format!("goes on after its array of {rows} × {columns} numbers"));
    }
    let values: Vec<f64> = data.chunks_exact(number.size).map(|bytes| number.decode(bytes)).collect();
    Ok(Array { values: if fortran_order { transposed(&values, rows, columns) } else { values }, columns })
}

/// Row-major values of a column-major matrix.
fn transposed(values: &[f64], rows: usize, columns: usize) -> Vec<f64> {
    (0..rows).flat_map(|row| (0..columns).map(move |column| values[column * rows + row])).collect()
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct Number {
    kind: u8,
    size: usize,
    big_endian: bool,
}

impl Number {
    fn parse(descr: &str) -> Result<Self> {
        let bytes = descr.as_bytes();
        match bytes {
            [order @ (b'<' | b'>' | b'|' | b'='), kind @ (b'f' | b'i' | b'u'), size @ (b'1' | b'2' | b'4' | b'8')]
                if *kind != b'f' || matches!(size, b'4' | b'8') =>
            {
                let big_endian = *order == b'>' || (*order == b'=' && cfg!(target_endian = "big"));
                Ok(Self { kind: *kind, size: usize::from(size - b'0'), big_endian })
            }
            _ => Err(Error::data(format!("numbers of type `{descr}`, want floats of 4 or 8 bytes or integers"))
                .hint("save it with .astype(\"float64\")")),
        }
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

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Header {
    descr: serde_json::Value,
    fortran_order: bool,
    shape: Vec<usize>,
}

/// Python's literals as JSON has them. Python 2 wrote long integers with an L.
const AS_JSON: [(&str, &str); 11] = [
    ("'", "\""),
    ("(", "["),
    (")", "]"),
    ("True", "true"),
    ("False", "false"),
    ("L,", ","),
    ("L]", "]"),
    (",]", "]"),
    (", ]", "]"),
    (",}", "}"),
    (", }", "}"),
];

impl Header {
    fn parse(bytes: &[u8]) -> Result<Self> {
        let text = std::str::from_utf8(bytes).or_else(|_| fault("its header is not text"))?;
        let json = AS_JSON.iter().fold(text.to_string(), |text, (python, json)| text.replace(python, json));
        serde_json::from_str(&json).or_else(|_| fault("its header is not a dictionary as numpy writes it"))
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
        let text = parse(bytes).unwrap_err().to_string();
        text.split("\n  hint:").next().unwrap().to_string()
    }

    #[test]
    fn every_version_type_and_order() {
        let data: Vec<u8> = [1.0f64, -2.5, 3.0, 4.0, 5.0, 6.0].iter().flat_map(|value| value.to_le_bytes()).collect();
        for version in [1, 2, 3] {
            let plain = parse(&file(version, &dictionary("<f8", "False", "(3, 2)"), &data)[..]).unwrap();
            assert_eq!(plain, Array { values: vec![1.0, -2.5, 3.0, 4.0, 5.0, 6.0], columns: 2 });
        }
        let transposed = parse(&file(1, &dictionary("<f8", "True", "(3, 2)"), &data)[..]).unwrap();
        assert_eq!(transposed, Array { values: vec![1.0, 4.0, -2.5, 5.0, 3.0, 6.0], columns: 2 });
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
