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

#[cfg(test)]
mod tests {
    use super::super::batch::Strip;
    use super::*;
    use arrow_array::{ArrayRef, Float64Array, StringArray};
    use std::sync::Arc;

    fn batch(rows: std::ops::Range<u32>) -> RecordBatch {
        let numbers: ArrayRef = Arc::new(rows.clone().map(f64::from).collect::<Float64Array>());
        let words: ArrayRef = Arc::new(rows.map(|row| Some(format!("w{row}"))).collect::<StringArray>());
        RecordBatch::try_from_iter_with_nullable([
            ("x", numbers.clone(), true),
            ("w", words, true),
            ("z", numbers, true),
        ])
        .unwrap()
    }

    #[test]
    fn batches_of_any_size_are_one_table() {
        let bounds = [0, 3, 3, 20_000, 20_001];
        let parts: Vec<RecordBatch> = bounds.windows(2).map(|ends| batch(ends[0]..ends[1])).collect();
        let records = Records::new(parts[0].schema(), parts).unwrap();
        let mut rows = TableFile::batches(&records, &[Want::Nothing, Want::Texts, Want::Cells]).unwrap();
        let (mut lines, mut words, mut numbers) = (Vec::new(), Vec::new(), Vec::new());
        while let Some(batch) = rows.next().unwrap() {
            assert!((1..=ROWS).contains(&batch.lines.len()));
            lines.extend(batch.lines);
            let [Strip::Nothing, Strip::Texts(texts), Strip::Numbers(values)] = &batch.columns[..] else { panic!() };
            words.extend(texts.iter().map(str::to_string));
            numbers.extend_from_slice(values);
        }
        assert!(lines.iter().copied().eq(1..=20_001));
        assert!(numbers.iter().copied().eq((0..20_001).map(f64::from)));
        assert!(words.iter().eq((0..20_001).map(|row| format!("w{row}")).collect::<Vec<_>>().iter()));
    }

    #[test]
    fn batches_of_other_columns_are_refused() {
        let other = batch(0..2).project(&[0]).unwrap();
        let error = Records::new(other.schema(), vec![other, batch(2..4)]).unwrap_err();
        assert_eq!(error.to_string(), "the table: batches with different columns");
    }
}
