//! What becomes of predictions where columns are changed: the effects of columns, of any model.

use super::*;
use crate::data::numbers::convert;
use crate::data::{Features, Shard, Targets};
use std::ops::Range;

/// By how much predictions change where a column does, summed over some of a client's rows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MoveColumns {
    /// Models of the ask.
    pub of: Vec<usize>,
    /// What is changed, one thing at a time.
    pub moves: Vec<Move>,
    /// Rows that are looked at, at most; they are picked evenly.
    pub most_rows: u32,
    /// How many numbers are predicted of a row: one, or the probabilities of classes.
    pub outputs: u32,
}

/// A change of a row.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Move {
    /// A column up by half of this, beside down by as much.
    Shift {
        /// The column.
        column: u32,
        /// By how much in all.
        by: f64,
    },
    /// One of some columns is 1 and the others are 0, beside the row as it is.
    Set {
        /// The columns.
        among: Range<u32>,
        /// The one, if any.
        to: Option<u32>,
    },
}

/// Of every model, change and output: the sum of the changes of predictions, and that of their squares.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Moved {
    /// Rows that were looked at.
    pub rows: u32,
    /// Model by model, change by change, output by output.
    pub sums: Vec<[f64; 2]>,
}

impl Answer for Moved {
    fn read(counts: &[u32], numbers: &[f64]) -> Self {
        let sums = numbers.chunks_exact(2).map(|pair| [pair[0], pair[1]]).collect();
        Self { rows: counts.first().copied().unwrap_or(0), sums }
    }

    fn write(self, counts: &mut Vec<u32>, numbers: &mut Vec<f64>) {
        counts.push(self.rows);
        numbers.extend(self.sums.into_iter().flatten());
    }
}

impl Move {
    fn fits(&self, columns: usize) -> bool {
        match self {
            Self::Shift { column, by } => (*column as usize) < columns && by.is_finite(),
            Self::Set { among, to } => {
                among.start <= among.end
                    && among.end as usize <= columns
                    && to.as_ref().is_none_or(|to| among.contains(to))
            }
        }
    }

    /// A row after the change, and beside it.
    fn change(&self, row: &[f64], after: &mut Vec<f64>, beside: &mut Vec<f64>) {
        let (new, old) = (after.len(), beside.len());
        after.extend_from_slice(row);
        beside.extend_from_slice(row);
        match self {
            Self::Shift { column, by } => {
                after[new + *column as usize] += 0.5 * by;
                beside[old + *column as usize] -= 0.5 * by;
            }
            Self::Set { among, to } => {
                after[new + among.start as usize..new + among.end as usize].fill(0.0);
                if let Some(to) = to {
                    after[new + *to as usize] = 1.0;
                }
            }
        }
    }
}

impl Telling for MoveColumns {
    const TELLS: Tells =
        Tells::numbers("by how much predictions for its rows change where a column is changed, summed")
            .with_counts("how many rows were looked at");
}

impl Kind for MoveColumns {
    fn needs(&self) -> Needs<'_> {
        Needs::new(&self.of[..], Capability::Descent)
    }

    fn sends(&self, _: usize) -> Sends {
        Sends::numbers(2 * self.of.len() * self.moves.len() * self.outputs as usize).with_counts(1)
    }

    fn cost(&self, load: &Load) -> Cost {
        let changes = self.of.len() * self.moves.len();
        load.looks(2.0 * changes as f64, 2 * changes * self.outputs as usize)
    }

    fn carry_out(&self, context: &mut ClientContext) -> Result<Reply> {
        let all = &context.client().train;
        let columns = all.columns();
        if !self.moves.iter().all(|change| change.fits(columns)) {
            return Err(context.naming()(Error::federation("changes of columns that the client does not have")));
        }
        let count = all.len().min(self.most_rows as usize);
        context.guard.enough("rows that are looked at", count as f64)?;
        let rows = all.pick(&(0..count).map(|row| row * all.len() / count.max(1)).collect::<Vec<_>>());
        let mut buffer = Vec::new();
        let x = convert::<f64>(&rows, &mut buffer);
        let mut sums = Vec::new();
        let changed = |change: &Move| -> Result<[Shard; 2]> {
            let (mut after, mut beside) = (Vec::with_capacity(x.len()), Vec::with_capacity(x.len()));
            x.chunks_exact(columns.max(1)).for_each(|row| change.change(row, &mut after, &mut beside));
            let shard = |values| Shard::new(Features::F64 { columns, values }, Targets::None);
            Ok([shard(after)?, shard(beside)?])
        };
        let moves = self.moves.iter().map(changed).collect::<Result<Vec<_>>>()?;
        for &model in &self.of {
            let params = &context.models[model];
            for [after, beside] in &moves {
                let after = context.model().expectations(params, after)?;
                let beside = context.model().expectations(params, beside)?;
                let width = self.outputs as usize;
                if after.len() != count * width {
                    return Err(context.naming()(Error::federation("another number of outputs than the model has")));
                }
                let mut own = vec![[0.0; 2]; width];
                for (place, (after, beside)) in after.iter().zip(beside).enumerate() {
                    let moved = after - beside;
                    let sum = &mut own[place % width];
                    *sum = [sum[0] + moved, sum[1] + moved * moved];
                }
                sums.extend(own);
            }
        }
        Ok(context.reply(Moved { rows: count as u32, sums }, None))
    }

    fn fault(&self) -> Option<&'static str> {
        (self.of.is_empty() || self.moves.is_empty() || self.outputs == 0)
            .then_some("has no model or no change to look at")
    }

    fn implausible(&self, reply: &Reply, _: f64) -> Option<String> {
        let Moved { rows, sums } = Moved::read(&reply.counts, &reply.numbers);
        if rows > reply.rows {
            return Some(format!("changes of {rows} rows where there are {}", reply.rows));
        }
        sums.iter().find(|sum| sum[1] < 0.0).map(|sum| format!("{:.1e} for a sum of squares, which cannot be", sum[1]))
    }

    fn loss(&self, _: &Reply) -> Option<f64> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compute::threads;
    use crate::data::{Client, DataShape};
    use crate::federation::engines::local::LocalFederation;
    use crate::federation::{Ask, Federation, Gather, Phase, Recipients};
    use crate::models::Model;
    use crate::settings::Settings;
    use std::sync::Arc;

    /// y = 2a + 3b − c: shifting a by 1 is worth 2; b = 1 and c = 0 is worth 3 where both were 0, and 4 where c was 1.
    #[test]
    fn changes_of_a_linear_model_by_hand() {
        let kind = crate::models::kind("linear").unwrap();
        let settings =
            Settings::check("m", kind.settings, toml::from_str("intercept = false").unwrap(), &mut Vec::new());
        let model: Arc<dyn Model> = Arc::from(kind.make(&settings, DataShape::numbers(3, 0)).unwrap());
        let features = Features::F64 { columns: 3, values: vec![5.0, 0.0, 0.0, -1.0, 0.0, 1.0] };
        let client = Client::new("it", Shard::new(features, Targets::Values(vec![0.0; 2])).unwrap());
        let mut federation = LocalFederation::new(vec![client], threads(1).unwrap());
        federation.set_model(model).unwrap();
        let mut ask = Ask::new(Phase::Train, vec![Arc::new(vec![2.0, 3.0, -1.0])], Gather::Each);
        let moves = |by: f64, end: u32| {
            vec![
                Move::Shift { column: 0, by },
                Move::Set { among: 1..end, to: Some(1) },
                Move::Set { among: 1..end, to: None },
            ]
        };
        let work = |moves| MoveColumns { of: vec![0], moves, most_rows: 10, outputs: 1 };
        let order = ask.order(Recipients::All, work(moves(0.5, 3)));
        let found = federation.ask(&ask).unwrap().of(order).at(0);
        assert_eq!(found, Moved { rows: 2, sums: vec![[2.0, 2.0], [7.0, 25.0], [1.0, 1.0]] });
        let mut ask = Ask::new(Phase::Train, vec![Arc::new(vec![2.0, 3.0, -1.0])], Gather::Each);
        ask.order(Recipients::All, work(moves(0.5, 4)));
        assert!(federation.ask(&ask).is_err(), "there is no fourth column");
    }
}
