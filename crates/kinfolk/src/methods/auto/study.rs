//! What is asked of clients, and what is learned from their answers.

use super::classes;
use crate::error::{Error, ErrorKind, Result};
use crate::families::{
    Evidence, HeldOut, Histogram, Learned, LeftOut, Options, Products, Reliability, Response, Role, Shape, Wanted,
    choose, choose_interactions, learn_with, newton_step,
};
use crate::federation::work::{FoldProducts, Folds, Residuals, TargetScale};
use crate::federation::{Ask, Gather, Phase, Recipients};
use crate::methods::DataFacts;
use crate::methods::room::{Room, nobody_answered};
use crate::models::{LinearForm, Model};
use serde::{Deserialize, Serialize};

/// Parts of every client's rows for cross-validation.
const FOLDS: u32 = 5;

/// The share of rows that intervals shall cover.
pub(crate) const COVERAGE: f64 = 0.9;

/// Numbers that are sent at once.
const MOST_NUMBERS: usize = 1 << 23;

/// How clients are asked.
pub(crate) struct Study {
    pub(super) folds: Folds,
    pub(super) form: LinearForm,
    target: TargetScale,
    columns: Vec<Role>,
    options: Options,
}

/// What was learned, and from whom.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct FamilyModel {
    /// In units of the target's scale.
    pub(crate) learned: Learned,
    pub(crate) target: TargetScale,
    /// The coefficients of predicting the same for every row.
    pub(crate) constant: Vec<f64>,
    /// The model that the coefficients are of.
    pub(crate) form: LinearForm,
    /// The clients that answered, by their number; `learned.clients` are in this order.
    pub(crate) clients: Vec<u32>,
    /// Of numbers.
    pub(crate) intervals: Option<Intervals>,
    /// Of classes.
    pub(crate) reliability: Option<Reliability>,
}

/// By how many standard deviations intervals reach to either side.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Intervals {
    /// Of clients that took part.
    pub(crate) reach: f64,
    /// Of clients of which nothing is known.
    pub(crate) newcomer_reach: f64,
    /// The share of held-out rows inside, where each half of the clients has its reach from the other half.
    pub(crate) coverage: Option<f64>,
    /// Shares of held-out residuals, over their expected deviation, between multiples of [`Intervals::STEP`]; the last without an end.
    #[serde(default)]
    pub(crate) residuals: Vec<f64>,
}

impl Intervals {
    pub(crate) const STEP: f64 = 0.25;
    const STEPS: usize = 17;

    /// The shares of residuals between multiples of the step; none where there are no residuals.
    pub(crate) fn shares(residuals: &Histogram) -> Vec<f64> {
        let below = |step: usize| match step {
            Self::STEPS => 1.0,
            _ => residuals.share_below(step as f64 * Self::STEP),
        };
        let steps = if residuals.total() > 0 { Self::STEPS } else { 0 };
        (0..steps).map(|step| below(step + 1) - below(step)).collect()
    }
}

/// The clients that have answered so far and what they said, and what was chosen by that.
#[derive(Clone)]
pub(crate) struct Begun {
    pub(super) clients: Vec<u32>,
    /// The coefficients of predicting the same for every row.
    pub(super) constant: Vec<f64>,
    /// Of classes, the model for everybody,
    pub(super) at: Vec<f64>,
    /// and likelihoods expanded at it.
    pub(super) common: Evidence,
    pub(super) shape: Shape,
}

impl Begun {
    fn chosen(self, study: &Study) -> Result<Self> {
        let shape = choose(&self.common, &study.options(&self.clients))?;
        Ok(Self { shape, ..self })
    }

    /// The groups of products that were chosen.
    pub(crate) fn interactions(&self) -> &[usize] {
        self.shape.interactions()
    }
}

impl Study {
    /// What to ask of clients with this model.
    pub(crate) fn new(model: &dyn Model, facts: &DataFacts, options: Options) -> Result<Self> {
        let Some(form) = model.linear_form() else {
            let message = "method.auto: want a linear, logistic or softmax model here";
            return Err(Error::new(ErrorKind::Unsupported, message).hint("use model.kind = \"auto\""));
        };
        let role = |column| facts.columns.get(column).copied().unwrap_or(Role::Linear);
        // Curves and products of the log-odds would be so many columns for every class.
        let bent = |role| matches!(role, Role::Curve(_) | Role::Interaction(_));
        let allowed = |role| form.response.equations() == 1 || !bent(role);
        let role = |column| Some(role(column)).filter(|role| allowed(*role)).unwrap_or(Role::Unused);
        let equation: Vec<Role> = (0..form.slopes).map(role).chain(form.intercept.then_some(Role::Intercept)).collect();
        let columns = equation.repeat(form.response.equations());
        // Without an intercept nothing can stand for the mean.
        let centred = |target: TargetScale| if form.intercept { target } else { TargetScale { mean: 0.0, ..target } };
        let target = facts.target.filter(|target| target.deviation > 0.0).map_or(TargetScale::PLAIN, centred);
        let folds = Folds { count: FOLDS, seed: (!facts.ordered).then_some(options.seed) };
        Ok(Self { folds, form, target, columns, options })
    }

    /// Whether products of columns may stand behind the others.
    pub(crate) fn may_widen(&self) -> bool {
        self.form.intercept && self.form.response.equations() == 1
    }

    /// Whether folds are in the order of time.
    pub(super) fn is_rolling(&self) -> bool {
        self.folds.seed.is_none()
    }

    pub(super) fn evidence(&self, clients: Vec<Vec<Products>>) -> Evidence {
        let (response, columns) = (self.form.response, self.columns.clone());
        Evidence { response, columns, clients, rolling: self.is_rolling() }
    }

    /// What is asked of the clients that answered.
    pub(super) fn options(&self, clients: &[u32]) -> Options {
        let families = match &self.options.families {
            Wanted::Known(of) => Wanted::Known(clients.iter().map(|&client| of[client as usize]).collect()),
            other => other.clone(),
        };
        Options { families, ..self.options.clone() }
    }

    /// Asks clients, and learns from their answers.
    pub(crate) fn carry_out(&self, room: &mut Room) -> Result<FamilyModel> {
        let begun = self.begin(room)?;
        let mut found = self.finish(room, begun)?;
        found.learned.held_out.clear();
        Ok(found)
    }

    /// How every client's rows are cut.
    pub(crate) fn folds(&self) -> Folds {
        self.folds
    }

    /// Asks for products, and chooses columns and covariance by them.
    pub(crate) fn begin(&self, room: &mut Room) -> Result<Begun> {
        match self.form.response {
            Response::Numbers => self.ask_all(room, &[])?.chosen(self),
            Response::Classes { .. } => {
                classes::at_common_model(self, room, vec![0.0; self.form.coefficients()])?.chosen(self)
            }
        }
    }

    /// Of each of these sets of columns, how strongly it acts in the model for everybody.
    pub(crate) fn strengths(&self, begun: &Begun, sets: &[std::ops::Range<usize>]) -> Result<Vec<f64>> {
        Ok(begun.common.strengths(sets, &newton_step(&begun.common)?))
    }

    /// Asks for the products of further columns, and chooses among their groups; the others are as they were. `None` where none is chosen.
    pub(crate) fn begin_wider(&self, room: &mut Room, narrow: &Begun) -> Result<Option<Begun>> {
        let mut begun = self.ask_all(room, &self.wider(&narrow.at))?;
        let shape = choose_interactions(&begun.common, narrow.shape.clone())?;
        begun.constant = self.wider(&narrow.constant);
        Ok((!shape.interactions().is_empty()).then_some(Begun { shape, ..begun }))
    }

    /// What was chosen, where this study's columns are only some of those it was chosen from.
    pub(crate) fn begin_chosen(&self, room: &mut Room, wide: &Begun, columns: &[usize]) -> Result<Begun> {
        let all: Vec<usize> = columns.iter().copied().chain([wide.common.columns.len() - 1]).collect();
        let of = |coefficients: &[f64]| all.iter().filter_map(|&at| coefficients.get(at).copied()).collect();
        match self.form.response {
            Response::Numbers => {
                Ok(Begun { common: wide.common.of_columns(&all), constant: of(&wide.constant), ..wide.clone() })
            }
            // With further columns the model for everybody is another, and likelihoods are expanded there.
            Response::Classes { .. } => {
                let begun = classes::at_common_model(self, room, of(&wide.at))?;
                Ok(Begun { shape: wide.shape.clone(), constant: of(&wide.constant), ..begun })
            }
        }
    }

    /// Coefficients with those of further columns, which are 0, before the intercept.
    fn wider(&self, coefficients: &[f64]) -> Vec<f64> {
        let [slopes @ .., intercept] = coefficients else { return Vec::new() };
        let further = self.form.coefficients().saturating_sub(coefficients.len());
        [slopes, &vec![0.0; further], &[*intercept]].concat()
    }

    /// Learns all the rest.
    pub(crate) fn finish(&self, room: &mut Room, begun: Begun) -> Result<FamilyModel> {
        match self.form.response {
            Response::Numbers => self.numbers(room, begun),
            Response::Classes { .. } => classes::finish(self, room, begun),
        }
    }

    /// The products of all clients' rows; of classes, with likelihoods expanded at a model.
    pub(super) fn ask_all(&self, room: &mut Room, at: &[f64]) -> Result<Begun> {
        let mut ask = Ask::new(Phase::Train, Vec::new(), Gather::Each);
        let work = FoldProducts { folds: self.folds, target: self.target, at: at.to_vec() };
        let products = ask.order(Recipients::All, work);
        let answers = room.ask(&ask)?;
        let (clients, products): (Vec<u32>, Vec<_>) =
            answers.of(products).each().map(|(client, by)| (client, by.0)).unzip();
        if clients.is_empty() {
            return Err(nobody_answered());
        }
        let constant = vec![0.0; self.form.coefficients()];
        Ok(Begun {
            clients,
            constant,
            at: at.to_vec(),
            common: self.evidence(products),
            shape: Shape::plain(&self.options),
        })
    }

    /// Learns from products, and asks for residuals.
    fn numbers(&self, room: &mut Room, begun: Begun) -> Result<FamilyModel> {
        let Begun { clients, constant, common, shape, .. } = begun;
        let mut learned = learn_with(&common, shape, &self.options(&clients))?;
        let intervals = self.intervals(room, &clients, &learned)?;
        learned.left_out.clear();
        let (form, target, intervals) = (self.form, self.target, Some(intervals));
        Ok(FamilyModel { learned, constant, form, target, clients, intervals, reliability: None })
    }

    fn intervals(&self, room: &mut Room, clients: &[u32], learned: &Learned) -> Result<Intervals> {
        let (folds, target) = (self.folds, self.target);
        let residuals = |predictor, coefficients| Residuals { folds, target, predictor, coefficients };
        // Predictors of many columns are large: so many clients are asked at once as fit.
        let width = learned.global.len();
        let at_once = (MOST_NUMBERS / (width * (width + folds.count as usize))).max(1);
        let mut halves = [Histogram::default(), Histogram::default()];
        for (block, members) in clients.chunks(at_once).enumerate() {
            let mut ask = Ask::new(Phase::Train, Vec::new(), Gather::Each);
            let mut orders = Vec::new();
            for (at, &client) in members.iter().enumerate() {
                let place = block * at_once + at;
                let served = |held: &HeldOut| (held.fold as u32, held.served[place].clone());
                let work = residuals(
                    learned.predictor(&learned.clients[place]),
                    learned.held_out.iter().map(served).collect(),
                );
                orders.push((place, ask.order(Recipients::list(vec![client]), work)));
            }
            let answers = room.ask_for_any(&ask)?;
            for (place, order) in orders {
                answers.of(order).each().for_each(|(_, histogram)| halves[place % 2].merge(&histogram));
            }
        }
        let mut newcomers = Histogram::default();
        let unknown = learned.unknown_predictor();
        for members in learned.left_out.chunks(at_once) {
            let mut ask = Ask::new(Phase::Train, Vec::new(), Gather::Each);
            let mut orders = Vec::new();
            for LeftOut { client, coefficients } in members {
                let by_fold = (0..folds.count).map(|fold| (fold, coefficients.clone())).collect();
                let work = residuals(unknown.clone(), by_fold);
                orders.push(ask.order(Recipients::list(vec![clients[*client]]), work));
            }
            let answers = room.ask_for_any(&ask)?;
            for order in orders {
                answers.of(order).each().for_each(|(_, histogram)| newcomers.merge(&histogram));
            }
        }
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
            residuals: Intervals::shares(&all),
        })
    }
}

impl FamilyModel {
    /// The parameters of the model that serves a client, in the target's own units.
    pub(crate) fn serving(&self, client: u32) -> Vec<f64> {
        let place = self.clients.binary_search(&client).ok();
        self.in_units(&place.map_or_else(|| self.learned.unknown(), |place| self.learned.clients[place].served.clone()))
    }

    /// The model's parameters with these coefficients, in the target's own units.
    pub(crate) fn in_units(&self, coefficients: &[f64]) -> Vec<f64> {
        let mut coefficients: Vec<f64> = coefficients.iter().map(|value| value * self.target.deviation).collect();
        if let (Some(last), true) = (coefficients.last_mut(), self.target.mean != 0.0) {
            *last += self.target.mean;
        }
        self.form.parameters(&coefficients)
    }
}
