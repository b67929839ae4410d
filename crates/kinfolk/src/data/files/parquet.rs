//! Parquet files.

use super::arrow::{rows_of, type_of};
use super::batch::{Batch, Batches, Want};
use super::{TableFile, Type, pages};
use crate::error::{Error, ErrorKind, Result};
use crate::panics::contained;
use ::parquet::arrow::ProjectionMask;
use ::parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder,
};
use ::parquet::file::reader::SerializedFileReader;
use std::fs::File;
use std::path::{Path, PathBuf};

/// Rows read at once.
const ROWS: usize = 8192;

pub(super) struct ParquetFile {
    path: PathBuf,
    metadata: ArrowReaderMetadata,
}

impl ParquetFile {
    pub fn new(path: &Path) -> Result<Self> {
        sound(path, || {
            let reader = SerializedFileReader::new(open(path)?).map_err(|error| broken(path, error))?;
            pages::check(&reader).map_err(|error| broken(path, error))?;
            // What a writer says about Arrow's types besides Parquet's own may contradict those.
            let options = ArrowReaderOptions::new().with_skip_arrow_metadata(true);
            let metadata = ArrowReaderMetadata::load(&open(path)?, options).map_err(|error| broken(path, error))?;
            Ok(Self { path: path.to_path_buf(), metadata })
        })
    }
}

fn open(path: &Path) -> Result<pages::Bounded> {
    File::open(path).map(pages::Bounded).map_err(|error| Error::io("reading", path, error))
}

fn broken(path: &Path, error: impl std::fmt::Display) -> Error {
    Error::data(format!("{}: {error}", path.display()))
}

/// The library panics on some malformed files.
fn sound<T>(path: &Path, work: impl FnOnce() -> Result<T>) -> Result<T> {
    contained(work).map_err(|error| match error.kind() {
        ErrorKind::Internal => Error::data(format!("{}: a malformed Parquet file", path.display())),
        _ => error,
    })
}

impl TableFile for ParquetFile {
    fn names(&self) -> Vec<String> {
        self.metadata.schema().fields().iter().map(|field| field.name().clone()).collect()
    }

    fn types(&self) -> Vec<Type> {
        self.metadata.schema().fields().iter().map(|field| type_of(field.data_type())).collect()
    }

    fn batches(&self, wants: &[Want]) -> Result<Box<dyn Batches>> {
        let wanted = wants.iter().enumerate().filter(|(_, want)| **want != Want::Nothing).map(|(place, _)| place);
        let rows = sound(&self.path, || {
            let mask = ProjectionMask::roots(self.metadata.parquet_schema(), wanted);
            let builder = ParquetRecordBatchReaderBuilder::new_with_metadata(open(&self.path)?, self.metadata.clone());
            builder.with_projection(mask).with_batch_size(ROWS).build().map_err(|error| broken(&self.path, error))
        })?;
        Ok(Box::new(ParquetRows { path: self.path.clone(), rows, wants: wants.to_vec(), passed: 0 }))
    }
}

struct ParquetRows {
    path: PathBuf,
    rows: ParquetRecordBatchReader,
    wants: Vec<Want>,
    passed: u64,
}

impl Batches for ParquetRows {
    fn next(&mut self) -> Result<Option<Batch>> {
        let Self { path, rows, wants, passed } = self;
        sound(path, || {
            let next = rows.next().transpose().map_err(|error| broken(path, error))?;
            Ok(next.map(|record| rows_of(&record, wants, passed)))
        })
    }
}
