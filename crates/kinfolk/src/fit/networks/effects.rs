//! What sets networks apart: by how much predictions change with each column, averaged over rows, in the table's units.

use crate::data::schema::{Encoding, FeaturesSchema, Schema};
use crate::error::Result;
use crate::federation::engines::Engine;
use crate::federation::work::{Move, MoveColumns};
use crate::federation::{Ask, Gather, Params, Phase, Recipients};
use serde::{Deserialize, Serialize};

/// Rows that are looked at in all, about, and of one client at least.
const ROWS: usize = 4000;
const ROWS_OF_ONE: usize = 20;

/// The effect of a column on what is predicted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Effect {
    /// The column, or `column=word`.
    pub(super) term: String,
    /// By how much the prediction, or the probability of each class, changes in the mean: for one unit more of a number, or if all rows were
    /// of this word.
    pub(super) mean: Vec<f64>,
    /// How much that differs between rows: nothing where the column has a straight effect of its own.
    pub(super) spread: Vec<f64>,
}

/// A change of columns, how it is called, and what makes it that of one unit.
struct Change {
    term: String,
    movement: Move,
    factor: f64,
}

/// One standard deviation: less is noise of a network with rectifiers, more leaves the rows.
const SHIFT: f64 = 1.0;

fn changes(schema: &Schema) -> Vec<Change> {
    let FeaturesSchema::Named(columns) = &schema.features else { return Vec::new() };
    let names = schema.feature_names();
    let mut factors = vec![1.0; names.len()];
    schema.decode_slopes(&mut factors);
    let mut found = Vec::new();
    let mut begin = 0;
    let shift = |found: &mut Vec<Change>, column: usize| {
        let movement = Move::Shift { column: column as u32, by: SHIFT };
        found.push(Change { term: names[column].clone(), movement, factor: factors[column] / SHIFT });
    };
    let set = |found: &mut Vec<Change>, among: std::ops::Range<usize>, base: Option<String>| {
        let range = among.start as u32..among.end as u32;
        if let Some(term) = base {
            found.push(Change { term, movement: Move::Set { among: range.clone(), to: None }, factor: 1.0 });
        }
        for column in among {
            let movement = Move::Set { among: range.clone(), to: Some(column as u32) };
            found.push(Change { term: names[column].clone(), movement, factor: 1.0 });
        }
    };
    for column in columns {
        let end = begin + column.width();
        match &column.encoding {
            Encoding::Number(_) => shift(&mut found, begin),
            Encoding::OneHot { base, .. } => {
                set(&mut found, begin..end, base.as_ref().map(|base| format!("{}={base}", column.name)));
            }
            Encoding::Date { months, weekdays, hours, .. } => {
                shift(&mut found, begin);
                let mut next = begin + 1;
                for kinds in [months, weekdays, hours] {
                    set(&mut found, next..next + kinds.len(), None);
                    next += kinds.len();
                }
            }
            Encoding::LeftOut(_) | Encoding::Nothing => {}
        }
        begin = end;
    }
    found
}

/// The effects of each of these models; `unit` is that of the target.
pub(super) fn effects(
    engine: &mut dyn Engine,
    schema: &Schema,
    models: &[Params],
    unit: f64,
) -> Result<Vec<Vec<Effect>>> {
    let changes = changes(schema);
    let outputs = schema.shape().classes.max(1);
    let none = || models.iter().map(|_| Vec::new()).collect();
    if changes.is_empty() {
        return Ok(none());
    }
    let moves: Vec<Move> = changes.iter().map(|change| change.movement.clone()).collect();
    let most_rows = (ROWS / engine.clients().len().max(1)).max(ROWS_OF_ONE) as u32;
    let mut ask = Ask::new(Phase::Evaluate, models.to_vec(), Gather::Each);
    let of = (0..models.len()).collect();
    let order = ask.order(Recipients::All, MoveColumns { of, moves, most_rows, outputs: outputs as u32 });
    let answers = engine.ask(&ask)?;
    let (mut rows, mut sums) = (0.0, vec![[0.0; 2]; models.len() * changes.len() * outputs]);
    for (_, own) in answers.of(order).each() {
        rows += f64::from(own.rows);
        for (sum, own) in sums.iter_mut().zip(own.sums) {
            *sum = [sum[0] + own[0], sum[1] + own[1]];
        }
    }
    if rows == 0.0 {
        return Ok(none());
    }
    let effect = |(change, sums): (&Change, &[[f64; 2]])| {
        let factor = unit * change.factor;
        let mean = |sum: &[f64; 2]| sum[0] / rows;
        let spread = |sum: &[f64; 2]| (sum[1] / rows - mean(sum).powi(2)).max(0.0).sqrt();
        Effect {
            term: change.term.clone(),
            mean: sums.iter().map(|sum| factor * mean(sum)).collect(),
            spread: sums.iter().map(|sum| factor.abs() * spread(sum)).collect(),
        }
    };
    let of_model = |sums: &[[f64; 2]]| changes.iter().zip(sums.chunks_exact(outputs)).map(effect).collect();
    Ok(sums.chunks_exact(changes.len() * outputs).map(of_model).collect())
}
