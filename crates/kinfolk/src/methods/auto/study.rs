//! What is asked of clients, and what is learned from their answers.

use crate::error::{Error, ErrorKind, Result};
use crate::families::{Evidence, HeldOut, Histogram, Learned, Options, Role, Wanted, learn};
use crate::federation::work::{FoldProducts, Folds, Residuals, TargetScale};
use crate::federation::{Ask, Gather, Phase, Recipients};
use crate::methods::DataFacts;
use crate::methods::room::{Room, nobody_answered};
use crate::models::Model;
use serde::{Deserialize, Serialize};

/// Parts of every client's rows for cross-validation.
const FOLDS: u32 = 5;

/// The share of rows that intervals shall cover.
pub(crate) const COVERAGE: f64 = 0.9;

/// How clients are asked.
pub(crate) struct Study {
    folds: Folds,
    target: TargetScale,
    columns: Vec<Role>,
    seed: u64,
}

/// What was learned, and from whom.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct FamilyModel {
    /// In units of the target's scale.
    pub(crate) learned: Learned,
    pub(crate) target: TargetScale,
    /// The clients that answered, by their number; `learned.clients` are in this order.
    pub(crate) clients: Vec<u32>,
    pub(crate) intervals: Intervals,
}

/// By how many standard deviations intervals reach to either side.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct Intervals {
    /// Of clients that took part.
    pub(crate) reach: f64,
    /// Of clients of which nothing is known.
    pub(crate) newcomer_reach: f64,
    /// The share of held-out rows inside, where each half of the clients has its reach from the other half.
    pub(crate) coverage: Option<f64>,
}

impl Study {
    /// What to ask of clients with this model.
    pub(crate) fn new(model: &dyn Model, facts: &DataFacts, seed: u64) -> Result<Self> {
        if !model.is_quadratic() {
            let message = "method.auto: it is for linear models so far";
            return Err(Error::new(ErrorKind::Unsupported, message).hint("use model.kind = \"linear\""));
        }
        let tensors = &model.layout().tensors;
        let slopes = tensors.first().map_or(0, |tensor| tensor.range().len());
        let intercept = model.layout().len() > slopes;
        let role = |column| facts.columns.get(column).copied().unwrap_or(Role::Linear);
        let columns = (0..slopes).map(role).chain(intercept.then_some(Role::Intercept)).collect();
        let plain = TargetScale { mean: 0.0, deviation: 1.0 };
        // Without an intercept nothing can stand for the mean.
        let centred = |target: TargetScale| if intercept { target } else { TargetScale { mean: 0.0, ..target } };
        let target = facts.target.filter(|target| target.deviation > 0.0).map_or(plain, centred);
        let folds = Folds { count: FOLDS, seed: (!facts.ordered).then_some(seed) };
        Ok(Self { folds, target, columns, seed })
    }

    /// Asks for products, learns from them, and asks for residuals.
    pub(crate) fn carry_out(&self, room: &mut Room, wanted: &Wanted, quick: bool) -> Result<FamilyModel> {
        let (folds, target) = (self.folds, self.target);
        let mut ask = Ask::new(Phase::Train, Vec::new(), Gather::Each);
        let products = ask.order(Recipients::All, FoldProducts { folds, target });
        let answers = room.ask(&ask)?;
        let (clients, products): (Vec<u32>, Vec<_>) =
            answers.of(products).each().map(|(client, by)| (client, by.0)).unzip();
        if clients.is_empty() {
            return Err(nobody_answered());
        }
        let families = match wanted {
            Wanted::Known(of) => Wanted::Known(clients.iter().map(|&client| of[client as usize]).collect()),
            other => other.clone(),
        };
        let evidence = Evidence { columns: self.columns.clone(), clients: products, rolling: folds.seed.is_none() };
        let options = Options { seed: self.seed, families, covariance: None, quick };
        let mut learned = learn(&evidence, &options)?;
        let intervals = self.intervals(room, &clients, &learned)?;
        learned.held_out.clear();
        Ok(FamilyModel { learned, target, clients, intervals })
    }

    fn intervals(&self, room: &mut Room, clients: &[u32], learned: &Learned) -> Result<Intervals> {
        let (folds, target) = (self.folds, self.target);
        let mut ask = Ask::new(Phase::Train, Vec::new(), Gather::Each);
        let held_out = |of: &dyn Fn(&HeldOut) -> Vec<f64>| {
            learned.held_out.iter().map(|held| (held.fold as u32, of(held))).collect::<Vec<_>>()
        };
        let coefficients = held_out(&|held| held.newcomer.clone());
        let work = Residuals { folds, target, predictor: learned.unknown_predictor(), coefficients };
        let unknown = ask.order(Recipients::list(clients.to_vec()), work);
        let mut own = Vec::new();
        for (place, &client) in clients.iter().enumerate() {
            let coefficients = held_out(&|held| held.served[place].clone());
            let work = Residuals { folds, target, predictor: learned.predictor(place), coefficients };
            own.push(ask.order(Recipients::list(vec![client]), work));
        }
        let answers = room.ask_for_any(&ask)?;
        let mut halves = [Histogram::default(), Histogram::default()];
        for (place, order) in own.into_iter().enumerate() {
            answers.of(order).each().for_each(|(_, histogram)| halves[place % 2].merge(&histogram));
        }
        let mut newcomers = Histogram::default();
        answers.of(unknown).each().for_each(|(_, histogram)| newcomers.merge(&histogram));
        let mut all = halves[0].clone();
        all.merge(&halves[1]);
        let inside = |half: usize| Some(halves[half].share_below(halves[1 - half].quantile(COVERAGE)?));
        let share = |half: usize| halves[half].total() as f64 / all.total().max(1) as f64;
        // What a normal distribution has, where no row was held out.
        let usual = 1.645;
        Ok(Intervals {
            reach: all.quantile(COVERAGE).unwrap_or(usual),
            newcomer_reach: newcomers.quantile(COVERAGE).unwrap_or(usual),
            coverage: inside(0).zip(inside(1)).map(|(first, second)| share(0) * first + share(1) * second),
        })
    }
}

impl FamilyModel {
    /// The parameters of the model that serves a client, in the target's own units.
    pub(crate) fn serving(&self, client: u32) -> Vec<f64> {
        let place = self.clients.binary_search(&client).ok();
        self.in_units(&place.map_or_else(|| self.learned.unknown(), |place| self.learned.clients[place].served.clone()))
    }

    /// Coefficients in the target's own units.
    pub(crate) fn in_units(&self, coefficients: &[f64]) -> Vec<f64> {
        let mut params: Vec<f64> = coefficients.iter().map(|value| value * self.target.deviation).collect();
        if let (Some(last), true) = (params.last_mut(), self.target.mean != 0.0) {
            *last += self.target.mean;
        }
        params
    }
}
