//! The directions in which a client's rows lie.

use super::*;
use crate::data::Features;
use crate::num::leading_directions;

/// The first right singular vectors of the matrix of a client's training rows, one after the other; zeros where there are fewer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Subspace {
    /// How many.
    pub directions: u32,
    /// Number of columns of the rows.
    pub columns: u32,
}

impl Telling for Subspace {
    const TELLS: Tells = Tells::NOTHING.with_vector("the first directions in which its rows lie");
}

impl Kind for Subspace {
    fn needs(&self) -> Needs<'_> {
        Needs::new(&[][..], Capability::Any)
    }

    fn sends(&self, _: usize) -> Sends {
        let length = self.directions as usize * self.columns as usize;
        Sends { content: Content::Statistics, length, models: 0, ..Sends::numbers(0) }
    }

    fn cost(&self, load: &Load) -> Cost {
        let columns = f64::from(self.columns);
        let smaller = load.rows.min(columns);
        Cost { steps: 1.0, work: load.rows * columns * smaller, numbers: 2.0 * load.rows * columns }
    }

    fn carry_out(&self, context: &mut ClientContext) -> Result<Reply> {
        let rows = &context.client().train;
        // With as many directions as rows these would be told.
        context.guard.enough("a direction", rows.len() as f64 / f64::from(self.directions.max(1)))?;
        let columns = self.columns as usize;
        let numbers =
            matches!(&**rows.features(), Features::Bytes { .. } | Features::F32 { .. } | Features::F64 { .. });
        if !numbers || rows.columns() != columns {
            return Err(Error::federation(format!(
                "directions of {columns} columns, the client has {}",
                rows.columns()
            )));
        }
        let mut values = Vec::new();
        let matrix: &[f64] = crate::data::numbers::convert(rows, &mut values);
        let mut vectors = leading_directions(matrix, rows.len(), columns, self.directions as usize);
        vectors.resize(self.directions as usize * columns, 0.0);
        Ok(context.reply((), Some(vectors)))
    }

    fn fault(&self) -> Option<&'static str> {
        (self.directions == 0 || self.columns == 0).then_some("asks for no direction")
    }
}
