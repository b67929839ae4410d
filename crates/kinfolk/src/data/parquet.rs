//! Columns of a Parquet file.

use super::columns::{ChooseRoles, Role, Source, Table, is_missing, keep};
use super::{Cells, pages};
use crate::error::{Error, ErrorKind, Result};
use crate::panics::contained;
use ::parquet::errors::ParquetError;
use ::parquet::file::reader::{FileReader, SerializedFileReader};
use ::parquet::record::Field;
use std::fs::File;

impl Source<'_> {
    pub fn read_parquet(&self, roles: ChooseRoles) -> Result<Table> {
        // The library panics on some malformed files.
        contained(|| self.read_rows(roles)).map_err(|error| match error.kind() {
            ErrorKind::Internal => Error::data(format!("{}: a malformed Parquet file", self.path.display())),
            _ => error,
        })
    }

    fn read_rows(&self, roles: ChooseRoles) -> Result<Table> {
        let path = self.path;
        let broken = |error: ParquetError| Error::data(format!("{}: {error}", path.display()));
        let file = File::open(path).map_err(|error| Error::io("reading", path, error))?;
        let reader = SerializedFileReader::new(pages::Bounded(file)).map_err(broken)?;
        pages::check(&reader).map_err(broken)?;
        let fields = reader.metadata().file_metadata().schema().get_fields();
        let names: Vec<String> = fields.iter().map(|field| field.name().to_string()).collect();
        self.check_names(&names)?;
        let roles = roles(&names)?;
        let mut cells: Vec<Option<Cells>> = vec![None; names.len()];
        let mut lines = Vec::new();
        for row in reader.get_row_iter(None).map_err(broken)? {
            let line = lines.len() as u64 + 1;
            lines.push(line);
            let row = row.map_err(broken)?;
            for (index, (name, field)) in row.get_column_iter().enumerate() {
                let cell = match roles[index] {
                    Role::Dropped => continue,
                    Role::Name => text(field).map(Cell::Word),
                    Role::NameIfAny if matches!(field, Field::Null) => Some(Cell::Word(String::new())),
                    Role::NameIfAny => text(field).map(Cell::Word),
                    Role::Value => value(field),
                };
                let Some(cell) = cell else {
                    if matches!(field, Field::Null) {
                        return Err(self.missing(line, name, roles[index]));
                    }
                    let message = format!("{} row {line}: column `{name}` holds {field}", path.display());
                    return Err(Error::data(format!("{message}, want a number or a text"))
                        .hint(format!("leave the column out with {}, or turn it into numbers", (self.drop)(name))));
                };
                match (cell, &mut cells[index]) {
                    (Cell::Word(word), _) if is_missing(&word) && roles[index] != Role::NameIfAny => {
                        return Err(self.missing(line, name, roles[index]));
                    }
                    (Cell::Number(number), _) if number.is_nan() => return Err(self.missing(line, name, roles[index])),
                    (Cell::Number(number), _) if !number.is_finite() => return Err(self.infinite(line, name)),
                    (Cell::Word(word), Some(Cells::Words(words))) => words.push(word),
                    (Cell::Number(number), Some(Cells::Numbers(numbers))) => numbers.push(number),
                    (Cell::Word(word), empty) => *empty = Some(Cells::Words(vec![word])),
                    (Cell::Number(number), empty) => *empty = Some(Cells::Numbers(vec![number])),
                }
            }
        }
        let cells = cells.into_iter().map(|cells| cells.unwrap_or(Cells::Numbers(Vec::new()))).collect();
        Ok(Table { columns: keep(names, cells, &roles), lines })
    }
}

enum Cell {
    Number(f64),
    Word(String),
}

fn value(field: &Field) -> Option<Cell> {
    Some(Cell::Number(match field {
        Field::Byte(number) => f64::from(*number),
        Field::Short(number) => f64::from(*number),
        Field::Int(number) => f64::from(*number),
        Field::Long(number) => *number as f64,
        Field::UByte(number) => f64::from(*number),
        Field::UShort(number) => f64::from(*number),
        Field::UInt(number) => f64::from(*number),
        Field::ULong(number) => *number as f64,
        Field::Float16(number) => number.to_f64(),
        Field::Float(number) => f64::from(*number),
        Field::Double(number) => *number,
        Field::Decimal(_) => field.to_string().parse().ok()?,
        Field::Bool(_) | Field::Str(_) | Field::Bytes(_) => return text(field).map(Cell::Word),
        _ => return None,
    }))
}

fn text(field: &Field) -> Option<String> {
    match field {
        Field::Str(text) => Some(text.clone()),
        Field::Bytes(bytes) => std::str::from_utf8(bytes.data()).ok().map(str::to_string),
        Field::Null | Field::Group(_) | Field::ListInternal(_) | Field::MapInternal(_) => None,
        Field::Float(number) => Some(number.to_string()),
        Field::Double(number) => Some(number.to_string()),
        other => Some(other.to_string()),
    }
}
