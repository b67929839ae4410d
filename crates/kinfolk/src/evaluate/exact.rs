//! The distance of an iterative method's models from the exact minimiser of their objective.

use super::{Context, Finding, MethodRecord, OwnModels};
use crate::error::Result;
use crate::methods::Minimises;
use crate::num::{norm, squared_distance};
use crate::record::{Minimiser, RoundRecord};

/// The distance to the minimiser that an earlier method found exactly.
#[derive(Default)]
pub(super) struct DistanceToExact {
    minimisers: Vec<Minimiser>,
}

impl Finding for DistanceToExact {
    fn evaluate(&self, context: &mut Context, round: &mut RoundRecord, found: &mut MethodRecord) -> Result<()> {
        if let Some(Minimises { objective, exactly: false }) = &context.outcome.minimises
            && let Some(exact) = self.minimisers.iter().find(|exact| exact.objective == *objective)
        {
            round.distance_to_exact = relative_distance(&context.own_models("distance_to_exact", found), exact);
            found.numbers([("distance_to_exact", round.distance_to_exact)]);
        }
        Ok(())
    }

    fn conclude(&self, context: &mut Context, found: &mut MethodRecord) -> Result<()> {
        if let Some(Minimises { objective, exactly: true }) = &context.outcome.minimises {
            let own = context.federation.own_models().into_iter().flatten();
            let models = own.map(|(id, model)| (id.to_string(), model)).collect();
            found.minimiser = Some(Minimiser { objective: objective.clone(), models });
        }
        Ok(())
    }

    fn learn(&mut self, found: &mut MethodRecord) {
        self.minimisers.extend(found.minimiser.take());
    }
}

/// √(Σ ‖θ_i − θ*_i‖² / Σ ‖θ*_i‖²) over the clients; `None` where a client has no model.
fn relative_distance(own: &OwnModels, exact: &Minimiser) -> Option<f64> {
    let (mut apart, mut size) = (0.0, 0.0);
    for (id, minimiser) in &exact.models {
        apart += squared_distance(own.get(id.as_str())?, minimiser);
        size += norm(minimiser).powi(2);
    }
    Some((apart / size).sqrt()).filter(|distance| distance.is_finite())
}
