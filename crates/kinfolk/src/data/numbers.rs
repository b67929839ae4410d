//! Features as the numbers that models compute with.

use super::{Features, Shard};
use crate::num::Real;
use std::any::Any;

/// The rows of a shard as `T`, converted into `buffer` unless they are stored as `T`.
pub(crate) fn convert<'b, T: Real>(rows: &'b Shard, buffer: &'b mut Vec<T>) -> &'b [T] {
    let columns = rows.columns();
    let range = rows.rows().start * columns..rows.rows().end * columns;
    if let Some(stored) = stored(rows.features()) {
        return &stored[range];
    }
    buffer.resize(range.len(), T::ZERO);
    convert_into(rows, buffer);
    buffer
}

/// The same into a slice of exactly their length.
pub(crate) fn convert_into<T: Real>(rows: &Shard, out: &mut [T]) {
    let columns = rows.columns();
    let range = rows.rows().start * columns..rows.rows().end * columns;
    match &**rows.features() {
        Features::Bytes { values, .. } => {
            let scale = T::ONE / T::of(255.0);
            for (o, &v) in out.iter_mut().zip(&values[range]) {
                *o = T::of(f64::from(v)) * scale;
            }
        }
        Features::Symbols { values, .. } => {
            out.iter_mut().zip(&values[range]).for_each(|(o, &v)| *o = T::of(f64::from(v)));
        }
        Features::F32 { values, .. } => out.iter_mut().zip(&values[range]).for_each(|(o, &v)| *o = T::of(f64::from(v))),
        Features::F64 { values, .. } => out.iter_mut().zip(&values[range]).for_each(|(o, &v)| *o = T::of(v)),
        Features::Columns(_) | Features::Own(_) => unreachable!("a model's check refuses rows that are no numbers"),
    }
}

/// Features stored as `T`, which need no conversion.
fn stored<T: Real>(features: &Features) -> Option<&[T]> {
    let values: &dyn Any = match features {
        Features::F32 { values, .. } => values,
        Features::F64 { values, .. } => values,
        _ => return None,
    };
    values.downcast_ref::<Vec<T>>().map(Vec::as_slice)
}
