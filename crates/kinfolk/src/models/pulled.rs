//! The minimiser of a client's loss under the pull of a centre, ½·strength·‖θ − centre‖².

use super::*;
use crate::num::newton::{self, Step};
use crate::num::squared_distance;
use crate::training::Scale;

/// The mean loss on some rows, 0 on none.
pub(crate) fn mean_loss(worker: &mut dyn Worker, params: &[f64], rows: &Shard) -> f64 {
    if rows.is_empty() {
        return 0.0;
    }
    let model = worker.load(params);
    worker.loss(model, rows)
}

/// A client's loss in an objective, as a quadratic at one point; nothing on no rows.
pub(crate) fn quadratic(model: &dyn Model, rows: &Shard, at: &[f64], scale: Scale) -> Result<Quadratic> {
    if rows.is_empty() {
        return Ok(Quadratic { curvature: vec![0.0; at.len() * at.len()], moment: vec![0.0; at.len()], energy: 0.0 });
    }
    Ok(model.want_convex()?.quadratic(rows, at, scale.of(rows.len())))
}

/// The quadratic of a loss that is one everywhere, found once for whatever is asked of it.
pub(crate) fn quadratic_everywhere(model: &dyn Model, rows: &Shard, scale: Scale) -> Result<Option<Quadratic>> {
    let zero = || vec![0.0; model.layout().len()];
    model.is_quadratic().then(|| quadratic(model, rows, &zero(), scale)).transpose()
}

/// The minimiser of a client's loss under a pull: at once for a `known` quadratic, else by damped Newton steps.
pub(crate) fn minimise_near(
    model: &dyn Model,
    worker: &mut dyn Worker,
    rows: &Shard,
    scale: Scale,
    (strength, centre): (f64, &[f64]),
    known: Option<&Quadratic>,
) -> Result<Vec<f64>> {
    if strength == f64::INFINITY || rows.is_empty() {
        return Ok(centre.to_vec());
    }
    if strength == 0.0 {
        return model.want_convex()?.minimise(rows, 0.0);
    }
    if let Some(quadratic) = known {
        return quadratic.minimiser(strength, centre).ok_or_else(no_minimiser);
    }
    // A gain this small, relatively, is lost in rounding.
    let below_rounding = if model.precision() == Precision::F32 { 1e-6 } else { 1e-12 };
    let pull = |own: &[f64]| 0.5 * strength * squared_distance(own, centre);
    let objective = |own: &[f64]| scale.of(rows.len()) * mean_loss(worker, own, rows) + pull(own);
    newton::minimise(centre.to_vec(), below_rounding, objective, |own, value| {
        let quadratic = quadratic(model, rows, own, scale)?;
        let target = quadratic.minimiser(strength, centre).ok_or_else(no_minimiser)?;
        let promised = value - quadratic.value(&target) - pull(&target);
        Ok(Some(Step { target, promised }))
    })
}

pub(crate) fn no_minimiser() -> Error {
    Error::data("its loss and the pull of its centre have no minimiser")
        .hint("are there numbers in the data that are not finite, or far too large?")
}
