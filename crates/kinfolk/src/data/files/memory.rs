//! Rows in memory, as Arrow holds them.

use super::arrow::{rows_of, type_of};
use super::batch::{Batch, Batches, Want};
use super::{TableFile, Type};
use crate::error::{Error, Result};
use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;

/// Rows handed on at once.
const ROWS: usize = 8192;

/// A table in memory.
#[derive(Debug, Clone)]
pub struct Records {
    schema: SchemaRef,
    batches: Vec<RecordBatch>,
}

impl Records {
    /// Rows one after the other, all with these columns.
    pub fn new(schema: SchemaRef, batches: Vec<RecordBatch>) -> Result<Self> {
        match batches.iter().find(|batch| batch.schema_ref().fields() != schema.fields()) {
            Some(_) => Err(Error::data("the table: batches with different columns")),
            None => Ok(Self { schema, batches }),
        }
    }

    /// The columns.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// The rows.
    pub fn batches(&self) -> &[RecordBatch] {
        &self.batches
    }
}

impl TableFile for Records {
    fn names(&self) -> Vec<String> {
        self.schema.fields().iter().map(|field| field.name().clone()).collect()
    }

    fn types(&self) -> Vec<Type> {
        self.schema.fields().iter().map(|field| type_of(field.data_type())).collect()
    }

    fn batches(&self, wants: &[Want]) -> Result<Box<dyn Batches>> {
        let wanted = wants.iter().enumerate().filter(|(_, want)| **want != Want::Nothing).map(|(place, _)| place);
        let wanted: Vec<usize> = wanted.collect();
        let project =
            |batch: &RecordBatch| batch.project(&wanted).map_err(|error| Error::data(format!("the table: {error}")));
        let mut batches = self.batches.iter().map(project).collect::<Result<Vec<_>>>()?;
        batches.reverse();
        Ok(Box::new(MemoryRows { batches, begin: 0, wants: wants.to_vec(), passed: 0 }))
    }
}

struct MemoryRows {
    /// Those to come, the next one last.
    batches: Vec<RecordBatch>,
    /// The first row of the next one that is still to come.
    begin: usize,
    wants: Vec<Want>,
    passed: u64,
}

impl Batches for MemoryRows {
    fn next(&mut self) -> Result<Option<Batch>> {
        while let Some(batch) = self.batches.last() {
            let count = ROWS.min(batch.num_rows() - self.begin);
            if count > 0 {
                let rows = rows_of(&batch.slice(self.begin, count), &self.wants, &mut self.passed);
                self.begin += count;
                return Ok(Some(rows));
            }
            self.batches.pop();
            self.begin = 0;
        }
        Ok(None)
    }
}
