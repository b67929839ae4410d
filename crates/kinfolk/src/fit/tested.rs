//! Errors on rows that were kept for testing.

use crate::error::Result;
use crate::federation::engines::Engine;
use crate::federation::work::{Evaluate, Subject};
use crate::federation::{Ask, Gather, Params, Phase, Recipients};
use crate::methods::FamilyModel;
use crate::training::Split;
use serde::{Deserialize, Serialize};

/// Mean squared errors, or log losses, on rows kept for testing, averaged over clients.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Tested {
    /// Clients with such rows.
    pub clients: usize,
    /// The rows.
    pub rows: u64,
    /// Of predicting the mean of all training rows, or how often each class occurs in them.
    pub mean: f64,
    /// Of one model for everybody.
    pub global: f64,
    /// Of the families' models.
    pub family: f64,
    /// Of personal models.
    pub personal: f64,
    /// Of every client's own model alone.
    pub alone: f64,
    /// Of what serves each client.
    pub served: f64,
}

/// The errors, `None` where no client has such rows.
pub(super) fn test_errors(engine: &mut dyn Engine, model: &FamilyModel) -> Result<Option<Tested>> {
    let learned = &model.learned;
    let mut models = vec![Params::new(model.in_units(&model.constant))];
    models.push(Params::new(model.in_units(&learned.global)));
    models.extend(learned.families.iter().map(|family| Params::new(model.in_units(&family.centre))));
    let mut ask = Ask::new(Phase::Evaluate, Vec::new(), Gather::Each);
    let mut orders = Vec::new();
    for (place, &client) in model.clients.iter().enumerate() {
        let own = &learned.clients[place];
        let first = models.len();
        models.extend([&own.personal, &own.alone, &own.served].map(|own| Params::new(model.in_units(own))));
        let with = [0, 1, 2 + own.family, first, first + 1, first + 2];
        orders.push(with.map(|with| {
            let work = Evaluate { with: Subject::Models(vec![with]), assign_on: Split::Train, compare: false };
            ask.order(Recipients::list(vec![client]), work)
        }));
    }
    ask.models = models;
    let answers = engine.ask(&ask)?;
    let (mut sums, mut clients, mut rows) = ([0.0; 6], 0, 0);
    for orders in orders {
        let scores = orders.map(|order| answers.of(order).each().next().map(|(_, evaluated)| evaluated.score));
        let Some(tested) = scores[0].as_ref().map(|score| score.rows).filter(|rows| *rows > 0) else { continue };
        clients += 1;
        rows += u64::from(tested);
        for (sum, score) in sums.iter_mut().zip(scores) {
            *sum += score.map_or(f64::NAN, |score| score.loss / f64::from(score.rows.max(1)));
        }
    }
    let [mean, global, family, personal, alone, served] = sums.map(|sum| sum / f64::from(clients.max(1)));
    let clients = clients as usize;
    Ok((clients > 0).then_some(Tested { clients, rows, mean, global, family, personal, alone, served }))
}
