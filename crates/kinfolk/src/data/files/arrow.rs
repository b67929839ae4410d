//! Arrow files, which are also Feather's second version, and rows as Arrow holds them.

use super::batch::{Batch, Batches, Strip, Texts, Want};
use super::{TableFile, Type};
use crate::data::describe::calendar::Moment;
use crate::error::{Error, ErrorKind, Result};
use crate::panics::contained;
use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowPrimitiveType, Date32Type, Date64Type, Decimal32Type, Decimal64Type, Decimal128Type, Float16Type, Float32Type,
    Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, TimestampMicrosecondType, TimestampMillisecondType,
    TimestampNanosecondType, TimestampSecondType, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{Array, RecordBatch};
use arrow_ipc::reader::{FileReader, FileReaderBuilder, read_footer_length};
use arrow_ipc::{Block, root_as_footer, root_as_message};
use arrow_schema::{DataType, SchemaRef, TimeUnit};
use std::fs::File;
use std::io::{BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

pub(super) struct ArrowFile {
    path: PathBuf,
    schema: SchemaRef,
}

impl ArrowFile {
    pub fn new(path: &Path) -> Result<Self> {
        sound(path, || {
            check_sizes(path)?;
            let reader = FileReaderBuilder::new().build(open(path)?).map_err(|error| broken(path, error))?;
            Ok(Self { path: path.to_path_buf(), schema: reader.schema() })
        })
    }
}

fn open(path: &Path) -> Result<BufReader<File>> {
    File::open(path).map(BufReader::new).map_err(|error| Error::io("reading", path, error))
}

fn broken(path: &Path, error: impl std::fmt::Display) -> Error {
    Error::data(format!("{}: {error}", path.display())).hint("want an Arrow file (Feather version 2), not a stream")
}

/// The library panics on some malformed files.
fn sound<T>(path: &Path, work: impl FnOnce() -> Result<T>) -> Result<T> {
    contained(work).map_err(|error| match error.kind() {
        ErrorKind::Internal => Error::data(format!("{}: a malformed Arrow file", path.display())),
        _ => error,
    })
}

impl TableFile for ArrowFile {
    fn names(&self) -> Vec<String> {
        self.schema.fields().iter().map(|field| field.name().clone()).collect()
    }

    fn types(&self) -> Vec<Type> {
        self.schema.fields().iter().map(|field| type_of(field.data_type())).collect()
    }

    fn batches(&self, wants: &[Want]) -> Result<Box<dyn Batches>> {
        let wanted = wants.iter().enumerate().filter(|(_, want)| **want != Want::Nothing).map(|(place, _)| place);
        let rows = sound(&self.path, || {
            let builder = FileReaderBuilder::new().with_projection(wanted.collect());
            builder.build(open(&self.path)?).map_err(|error| broken(&self.path, error))
        })?;
        Ok(Box::new(ArrowRows { path: self.path.clone(), rows, wants: wants.to_vec(), passed: 0 }))
    }
}

struct ArrowRows {
    path: PathBuf,
    rows: FileReader<BufReader<File>>,
    wants: Vec<Want>,
    passed: u64,
}

impl Batches for ArrowRows {
    fn next(&mut self) -> Result<Option<Batch>> {
        let Self { path, rows, wants, passed } = self;
        sound(path, || {
            let next = rows.next().transpose().map_err(|error| broken(path, error))?;
            Ok(next.map(|record| rows_of(&record, wants, passed)))
        })
    }
}

/// Checks the sizes that a file claims: the reader allocates them, and running out of memory cannot be handled.
fn check_sizes(path: &Path) -> Result<()> {
    /// Bytes that may be claimed without having them.
    const ALLOWED: u64 = 1 << 30;
    /// What compression can save beyond that.
    const MOST_SAVED: u64 = 256;
    const MOST_ROWS: i64 = 1 << 28;
    let io = |error| Error::io("reading", path, error);
    let false_claim = || Error::data(format!("{}: claims bytes that it does not have", path.display()));
    let mut file = open(path)?;
    let there = file.seek(SeekFrom::End(0)).map_err(io)?;
    let mut read = |begin: u64, length: u64| {
        if begin.checked_add(length).is_none_or(|end| end > there) {
            return Err(false_claim());
        }
        file.seek(SeekFrom::Start(begin)).map_err(io)?;
        let mut bytes = vec![0; length as usize];
        file.read_exact(&mut bytes).map_err(io)?;
        Ok(bytes)
    };
    let end = read(there.checked_sub(10).ok_or_else(false_claim)?, 10)?;
    let end: [u8; 10] = end.try_into().map_err(|_| false_claim())?;
    let length = read_footer_length(end).map_err(|error| broken(path, error))? as u64;
    let footer = read((there - 10).checked_sub(length).ok_or_else(false_claim)?, length)?;
    let footer = root_as_footer(&footer).map_err(|error| broken(path, error))?;
    let blocks = footer.dictionaries().into_iter().flatten().chain(footer.recordBatches().into_iter().flatten());
    for block in blocks {
        let block: &Block = block;
        let size = |claimed: i64| u64::try_from(claimed).map_err(|_| false_claim());
        let (begin, metadata) = (size(block.offset())?, size(block.metaDataLength().into())?);
        let (body, length) = (begin.checked_add(metadata).ok_or_else(false_claim)?, size(block.bodyLength())?);
        if body.checked_add(length).is_none_or(|end| end > there) {
            return Err(false_claim());
        }
        let message = read(begin, metadata)?;
        // A length precedes the message, and a mark precedes that since version 5.
        let skipped = if message.starts_with(&[0xff; 4]) { 8 } else { 4 };
        let message =
            root_as_message(message.get(skipped..).unwrap_or_default()).map_err(|error| broken(path, error))?;
        let in_dictionary = message.header_as_dictionary_batch().and_then(|dictionary| dictionary.data());
        let Some(rows) = message.header_as_record_batch().or(in_dictionary) else { continue };
        if !(0..=MOST_ROWS).contains(&rows.length()) {
            return Err(false_claim());
        }
        for buffer in rows.buffers().into_iter().flatten().filter(|_| rows.compression().is_some()) {
            let (offset, packed) = (size(buffer.offset())?, size(buffer.length())?);
            if packed < 8 {
                continue;
            }
            let begin = body.checked_add(offset).ok_or_else(false_claim)?;
            let unpacked = i64::from_le_bytes(read(begin, 8)?.try_into().map_err(|_| false_claim())?);
            // Minus one stands for a buffer that is not compressed.
            if unpacked > 0 && unpacked as u64 > ALLOWED.max(packed.saturating_mul(MOST_SAVED)) {
                return Err(false_claim());
            }
        }
    }
    Ok(())
}

/// What can be made of cells of a type.
pub(super) fn type_of(kind: &DataType) -> Type {
    use DataType::*;
    match kind {
        Boolean | Utf8 | LargeUtf8 | Utf8View | Binary | LargeBinary | BinaryView => Type::Words,
        Null | Int8 | Int16 | Int32 | Int64 | UInt8 | UInt16 | UInt32 | UInt64 | Float16 | Float32 | Float64 => {
            Type::Numbers
        }
        Decimal32(..) | Decimal64(..) | Decimal128(..) => Type::Numbers,
        Date32 | Date64 | Timestamp(..) => Type::Dates,
        Dictionary(_, values) => type_of(values),
        Time32(_) | Time64(_) => Type::Other("times of day".into()),
        List(_) | LargeList(_) | FixedSizeList(..) | ListView(_) | LargeListView(_) => Type::Other("lists".into()),
        Struct(_) | Map(..) => Type::Other("groups of values".into()),
        other => Type::Other(format!("values of type {other}")),
    }
}

/// Rows as they are wanted, of a record with the wanted columns alone.
pub(super) fn rows_of(record: &RecordBatch, wants: &[Want], passed: &mut u64) -> Batch {
    let lines = (*passed + 1..=*passed + record.num_rows() as u64).collect();
    *passed += record.num_rows() as u64;
    let mut arrays = record.columns().iter();
    let strip = |want: &Want| match want {
        Want::Nothing => Strip::Nothing,
        Want::Texts => arrays.next().map_or(Strip::Nothing, |array| Strip::Texts(texts(array))),
        Want::Cells => arrays.next().map_or(Strip::Nothing, |array| cells(array)),
    };
    Batch { lines, columns: wants.iter().map(strip).collect() }
}

fn cells(array: &dyn Array) -> Strip {
    match type_of(array.data_type()) {
        Type::Numbers => Strip::Numbers(numbers(array)),
        Type::Dates => Strip::Dates(dates(array)),
        _ => Strip::Texts(texts(array)),
    }
}

fn numbers(array: &dyn Array) -> Vec<f64> {
    fn all<T: ArrowPrimitiveType>(array: &dyn Array, number: impl Fn(T::Native) -> f64) -> Vec<f64> {
        array.as_primitive::<T>().iter().map(|cell| cell.map_or(f64::NAN, &number)).collect()
    }
    let places = |scale: i8| 10f64.powi(scale.into());
    match array.data_type() {
        DataType::Int8 => all::<Int8Type>(array, f64::from),
        DataType::Int16 => all::<Int16Type>(array, f64::from),
        DataType::Int32 => all::<Int32Type>(array, f64::from),
        DataType::Int64 => all::<Int64Type>(array, |cell| cell as f64),
        DataType::UInt8 => all::<UInt8Type>(array, f64::from),
        DataType::UInt16 => all::<UInt16Type>(array, f64::from),
        DataType::UInt32 => all::<UInt32Type>(array, f64::from),
        DataType::UInt64 => all::<UInt64Type>(array, |cell| cell as f64),
        DataType::Float16 => all::<Float16Type>(array, f64::from),
        DataType::Float32 => all::<Float32Type>(array, f64::from),
        DataType::Float64 => all::<Float64Type>(array, |cell| cell),
        DataType::Decimal32(_, scale) => all::<Decimal32Type>(array, |cell| f64::from(cell) / places(*scale)),
        DataType::Decimal64(_, scale) => all::<Decimal64Type>(array, |cell| cell as f64 / places(*scale)),
        DataType::Decimal128(_, scale) => all::<Decimal128Type>(array, |cell| cell as f64 / places(*scale)),
        DataType::Dictionary(..) => looked_up(array, numbers, f64::NAN),
        _ => vec![f64::NAN; array.len()],
    }
}

/// Times in seconds since 1970.
fn dates(array: &dyn Array) -> Vec<f64> {
    fn all<T: ArrowPrimitiveType>(array: &dyn Array, seconds: impl Fn(T::Native) -> f64) -> Vec<f64> {
        array.as_primitive::<T>().iter().map(|cell| cell.map_or(f64::NAN, &seconds)).collect()
    }
    match array.data_type() {
        DataType::Date32 => all::<Date32Type>(array, |days| f64::from(days) * 86_400.0),
        DataType::Date64 => all::<Date64Type>(array, |cell| cell as f64 / 1e3),
        DataType::Timestamp(TimeUnit::Second, _) => all::<TimestampSecondType>(array, |cell| cell as f64),
        DataType::Timestamp(TimeUnit::Millisecond, _) => {
            all::<TimestampMillisecondType>(array, |cell| cell as f64 / 1e3)
        }
        DataType::Timestamp(TimeUnit::Microsecond, _) => {
            all::<TimestampMicrosecondType>(array, |cell| cell as f64 / 1e6)
        }
        DataType::Timestamp(TimeUnit::Nanosecond, _) => all::<TimestampNanosecondType>(array, |cell| cell as f64 / 1e9),
        DataType::Dictionary(..) => looked_up(array, dates, f64::NAN),
        _ => vec![f64::NAN; array.len()],
    }
}

/// Cells of a dictionary, each of whose values is converted once.
fn looked_up<T: Clone>(array: &dyn Array, convert: impl Fn(&dyn Array) -> Vec<T>, missing: T) -> Vec<T> {
    let dictionary = array.as_any_dictionary();
    if dictionary.values().is_empty() {
        return vec![missing; array.len()];
    }
    let values = convert(dictionary.values());
    let keys = dictionary.normalized_keys().into_iter().enumerate();
    keys.map(|(row, key)| if array.is_null(row) { missing.clone() } else { values[key].clone() }).collect()
}

fn texts(array: &dyn Array) -> Texts {
    fn all<'a, T: AsRef<str>>(cells: impl Iterator<Item = Option<T>> + 'a) -> Texts {
        let mut texts = Texts::default();
        cells.for_each(|cell| texts.push(cell.as_ref().map_or("", AsRef::as_ref)));
        texts
    }
    fn of_bytes<'a>(cells: impl Iterator<Item = Option<&'a [u8]>> + 'a) -> Texts {
        all(cells.map(|cell| cell.map(String::from_utf8_lossy)))
    }
    fn wholes<T: ArrowPrimitiveType<Native: ToString>>(array: &dyn Array) -> Texts {
        all(array.as_primitive::<T>().iter().map(|cell| cell.map(|cell| cell.to_string())))
    }
    match array.data_type() {
        DataType::Utf8 => all(array.as_string::<i32>().iter()),
        DataType::LargeUtf8 => all(array.as_string::<i64>().iter()),
        DataType::Utf8View => all(array.as_string_view().iter()),
        DataType::Binary => of_bytes(array.as_binary::<i32>().iter()),
        DataType::LargeBinary => of_bytes(array.as_binary::<i64>().iter()),
        DataType::BinaryView => of_bytes(array.as_binary_view().iter()),
        DataType::Boolean => {
            all(array.as_boolean().iter().map(|cell| cell.map(|cell| if cell { "true" } else { "false" })))
        }
        // Long names that are numbers must not be rounded.
        DataType::Int64 => wholes::<Int64Type>(array),
        DataType::UInt64 => wholes::<UInt64Type>(array),
        DataType::Dictionary(..) => {
            let words = |values: &dyn Array| texts(values).iter().map(str::to_string).collect();
            all(looked_up(array, words, String::new()).into_iter().map(Some))
        }
        kind => {
            let values = if type_of(kind) == Type::Dates { dates(array) } else { numbers(array) };
            let text = |value: f64| match type_of(kind) {
                Type::Dates => Moment::of(value).text(),
                _ => value.to_string(),
            };
            all(values.into_iter().map(|value| (!value.is_nan()).then(|| text(value))))
        }
    }
}
