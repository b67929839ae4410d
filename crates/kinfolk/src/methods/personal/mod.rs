//! What methods share that give every client of a known cluster a model of its own.
//!
//! They minimise Σ_j Σ_i f_i(θ_i) + γ_i/2·‖θ_i − w_j‖² + λ_j/2·‖w_j − w̄‖² over the clients' models θ_i, the clusters'
//! centres w_j and the global centre w̄; or the same without centres, with the share α_j of every γ_i pulling at the mean
//! of all and the rest at the mean of the cluster. The two agree for α_j = λ_j/(λ_j + Σ_i γ_i).
//!
//! | file | what it is |
//! |---|---|
//! | `strengths.rs` | γ, λ and α as they are given, and who is pulled alike |
//! | `preparation.rs` | strengths that are not given: estimated from the data, or tuned on a grid |
//! | `fit.rs` | the exact minimiser |
//! | `coins.rs` | chances, and the coins drawn by them |
//! | `asynchronous.rs` | what follows from the coins: local steps, steps towards means, and when somebody must be asked |
//! | `complete.rs` | asks that are repeated until everybody has answered |

pub mod asynchronous;
pub mod coins;
pub mod complete;
pub mod fit;
pub mod preparation;
pub mod strengths;
#[cfg(test)]
mod tests;

use super::*;
use crate::federation::Phase;
use crate::federation::work::ResponseParts;
use crate::groups::Origin;
use crate::hierarchy::response::Response;
use crate::linalg::{Matrix, Spectrum, add_scaled, extreme_eigenvalues, multiply, solve_positive};
use crate::models::Precision;
use crate::training::Scale;
pub use strengths::{Class, Families, Strengths};

/// Settings of what is minimised, the same for all personal methods.
macro_rules! personal_settings {
    ($($more:expr),* $(,)?) => {
        &[
            $($more,)*
            $crate::groups::GROUPS,
            $crate::methods::personal::GAMMA,
            Setting::new("lambda", Kind::Strengths, Default::Absent, "λ, the pull of a cluster to the global centre: a number, or one for every cluster"),
            Setting::new("alpha", Kind::Strengths, Default::Absent, "α instead of λ: the share of γ that pulls to everybody's mean, 0 to 1"),
            $crate::methods::personal::LOSS,
            $crate::methods::personal::NOISE,
            $crate::methods::personal::SPREAD,
            $crate::methods::personal::TUNE,
            $crate::methods::personal::GRID,
            $crate::methods::personal::FOLDS,
        ]
    };
}
pub(super) use personal_settings;

pub(super) const GAMMA: Setting = Setting::new(
    "gamma",
    Kind::Strengths,
    Default::Absent,
    "γ, the pull of a client to its cluster: a number; one for every cluster (a list in the order of their names, or a \
     table by name); or a list with one for every client",
);
/// What a missing answer means where everybody's is needed.
pub(super) const MISSING_AGAIN: Setting = Setting::new(
    "missing",
    Kind::OneOf(&["again", "fail"]),
    Default::Is("\"again\""),
    "a missing answer is asked for again, or ends the run",
);
pub(super) const LOSS: Setting = Setting::new(
    "loss",
    Kind::OneOf(&["sum", "mean"]),
    Default::Is("\"sum\""),
    "a client's loss: over its rows the sum, as in a likelihood, or the mean",
);
pub(super) const NOISE: Setting = Setting::new(
    "noise",
    Kind::Positive,
    Default::Absent,
    "variance of the noise of a linear model where strengths are given (default 1)",
);
pub(super) const SPREAD: Setting = Setting::new(
    "spread",
    Kind::OneOf(&["common", "per-cluster"]),
    Default::Is("\"common\""),
    "where strengths are estimated: whether clients differ alike in all clusters",
);
pub(super) const TUNE: Setting = Setting::new(
    "tune",
    Kind::Flag,
    Default::Is("false"),
    "choose strengths by cross-validation over a grid instead of estimating them",
);
pub(super) const GRID: Setting =
    Setting::new("grid", Kind::Positives, Default::Absent, "values to try when tuning (default: 17 from 0.01 to 100)");
pub(super) const FOLDS: Setting =
    Setting::new("folds", Kind::Integer(2, 1000), Default::Is("5"), "parts of a client's rows when tuning");

/// The settings above, which say what is minimised.
const OBJECTIVE: [&str; 10] =
    ["groups", "gamma", "lambda", "alpha", "loss", "noise", "spread", "tune", "grid", "folds"];

/// Faults in the settings above that need more than one of them to see.
pub(super) fn check_personal(place: &str, settings: &Settings, faults: &mut Vec<Error>) {
    let given = |name: &str| settings.get(name).is_some();
    let mut fault = |name: &str, why: &str, hint: &str| {
        let fault = Error::settings(format!("{place}.{name}: {why}"));
        faults.push(if hint.is_empty() { fault } else { fault.hint(hint) });
    };
    let tuned = is_tuned(settings);
    let ties = given("lambda") || given("alpha");
    if given("lambda") && given("alpha") {
        fault("alpha", "lambda is given too, want one of them", "alpha is lambda / (lambda + the sum of gamma)");
    }
    if ties && !given("gamma") {
        let name = if given("alpha") { "alpha" } else { "lambda" };
        fault(name, "is of no use without gamma", "give gamma too, or neither: then both are estimated");
    }
    if given("gamma") && !ties {
        fault("gamma", "is given without lambda or alpha", "give one of them too, or none: then they are estimated");
    }
    if tuned {
        for name in ["gamma", "lambda", "alpha"].into_iter().filter(|name| given(name)) {
            fault(name, "is given, but tune = true looks for it", "leave it or tune out");
        }
    }
    if given("grid") && !tuned {
        fault("grid", "is for tune = true", "");
    }
    if settings.text("spread") == "per-cluster" && (given("gamma") || tuned) {
        fault("spread", "is for strengths that are estimated", "");
    }
    if given("noise") && !given("gamma") {
        fault("noise", "is for given strengths; it is estimated with them otherwise", "");
    }
    if settings.text("loss") == "mean" && !given("gamma") && !tuned {
        fault("loss", "estimated strengths are about the likelihood, want \"sum\"", "give gamma, or set tune = true");
    }
}

/// Whether strengths are to be tuned.
fn is_tuned(settings: &Settings) -> bool {
    settings.get("tune").and_then(toml::Value::as_bool).unwrap_or(false)
}

/// What every personal method is made of.
pub struct Base {
    pub families: Families,
    pub model: Arc<dyn Model>,
    pub key: Key,
    pub rows: Vec<usize>,
    /// Whether a client's loss is the sum over its rows.
    by: Weight,
    /// Where everybody begins.
    pub start: Params,
    /// What says which objective this is, among methods that share its settings.
    objective: Option<String>,
}

impl Base {
    /// Of a method whose clients are in these clusters.
    pub fn new(setup: &Setup, families: Families) -> Result<Self> {
        let by = if setup.settings.text("loss") == "mean" { Weight::Uniform } else { Weight::Rows };
        // A convex loss has one minimiser wherever one begins; networks need a start at which units differ.
        let start = match setup.model.has_minimiser() {
            true => Arc::new(vec![0.0; setup.model.layout().len()]),
            false => odcl::common_start(setup)?,
        };
        Ok(Self {
            families,
            model: setup.model.clone(),
            key: setup.key.clone(),
            rows: setup.rows.to_vec(),
            by,
            start,
            objective: None,
        })
    }

    /// Of a method with a `groups` setting.
    pub fn with_groups(setup: &Setup) -> Result<Self> {
        let groups = setup
            .groups
            .as_ref()
            .ok_or_else(|| Error::settings(format!("{}.groups: the clients' groups are not known", setup.place)))?;
        let settings = OBJECTIVE.map(|name| format!("{name} = {:?}", setup.settings.get(name)));
        Ok(Self { objective: Some(settings.join(", ")), ..Self::new(setup, Families::of(groups))? })
    }

    /// What is minimised, and whether the models are its minimiser.
    pub fn minimises(&self, exactly: bool) -> Option<Minimises> {
        self.objective.clone().map(|objective| Minimises { objective, exactly })
    }

    /// A client's loss in the objective: its likelihood, or the mean of that over its rows.
    pub fn scale(&self, noise: f64) -> Scale {
        Scale { factor: self.model.likelihood() / noise, by: self.by }
    }

    /// Rounds with everybody.
    pub fn circle(&self, phase: Phase, noise: f64) -> fit::Circle<'_> {
        fit::Circle {
            families: &self.families,
            scale: self.scale(noise),
            phase,
            on: Portion::All,
            exact: self.model.is_quadratic(),
            settled: if self.model.precision() == Precision::F32 { 1e-5 } else { 1e-10 },
        }
    }

    /// How clients are served that hold models of these asks.
    pub fn serving(&self, stamps: &[u64]) -> Serving {
        Serving::Own { stamps: stamps.to_vec(), clusters: Some(self.families.of.clone()) }
    }

    /// Clients in every cluster.
    pub fn sizes(&self) -> Vec<usize> {
        self.families.members.iter().map(Vec::len).collect()
    }
}

/// Clients that never took part, said out loud.
pub(super) fn note_untrained(stamps: &[u64]) -> Option<String> {
    let untrained = stamps.iter().filter(|&&stamp| stamp == 0).count();
    (untrained > 0).then(|| format!("{untrained} clients never took part and have no model"))
}

/// The fault of a model without quadratics, where they are needed.
pub(super) fn want_quadratic(setup: &Setup, what: &str) -> Result<()> {
    if setup.model.has_minimiser() {
        return Ok(());
    }
    Err(Error::settings(format!("{}: {what} wants a linear or logistic model", setup.place)))
}

/// Whether the groups are to be the truth's.
pub(super) fn needs_truth(settings: &Settings) -> bool {
    Origin::of(settings) == Some(Origin::Truth)
}

/// μ, how much the whole objective curves at least, within a fifth: at least as much as the losses do by themselves, and
/// beyond that as much as can be taken from every client before it stops being convex. `least` is what the losses do.
pub(super) fn convexity(base: &Base, strengths: &Strengths, least: f64, room: &mut Room) -> Result<f64> {
    const NEAR: f64 = 1.2;
    const NOTHING: f64 = 1e-6;
    let families = &base.families;
    // Clients that are pulled more only make it curve more.
    let weakest = |classes: &Vec<Class>| classes.iter().map(|class| class.gamma).fold(f64::INFINITY, f64::min);
    let weakest: Vec<f64> = strengths.classes.iter().map(weakest).collect();
    let bound = weakest.iter().copied().fold(f64::INFINITY, f64::min);
    if least >= bound || bound == 0.0 {
        return Ok(least.max(NOTHING * strengths.gamma.iter().copied().fold(0.0, f64::max)));
    }
    let circle = base.circle(Phase::Start, strengths.noise);
    let centres = vec![base.start.clone(); families.count()];
    let size = base.start.len();
    let mut respond = |left: &[f64]| -> Result<Vec<Response>> {
        let gamma = families.of.iter().map(|&cluster| left[cluster]).collect();
        let asked = Strengths::new(families, gamma, strengths.lambda.clone(), strengths.noise);
        Ok(circle.consult(&centres, &asked, (ResponseParts::Response, false), room)?.responses)
    };
    // Directions that show nowhere in the data are never left nor entered, however flat they are.
    let mut everything = vec![0.0; size * size];
    respond(&weakest)?.iter().for_each(|response| add_scaled(&mut everything, 1.0, &response.curvature));
    let Some(shown) = Spectrum::new(&everything, size) else { return Ok(least) };
    let shown = shown.map(|_| 1.0);
    let mut is_convex_without = |taken: f64| -> Result<bool> {
        let left: Vec<f64> = weakest.iter().map(|gamma| gamma - taken).collect();
        let mut of_all = vec![0.0; size * size];
        for (cluster, response) in respond(&left)?.iter().enumerate() {
            // Σ γI − γ²(A − taken + γ)⁻¹, from the responses at γ − taken.
            let ratio = (weakest[cluster] / left[cluster]).powi(2);
            let mut curvature: Vec<f64> = response.curvature.iter().map(|value| ratio * value).collect();
            let clients = families.members[cluster].len() as f64;
            (0..size).for_each(|i| curvature[i * (size + 1)] += clients * (weakest[cluster] - ratio * left[cluster]));
            curvature = where_shown(&shown, &curvature, size);
            let lambda = strengths.lambda[cluster];
            if lambda.is_infinite() {
                add_scaled(&mut of_all, 1.0, &curvature);
                continue;
            }
            let mut held = curvature.clone();
            (0..size).for_each(|i| held[i * (size + 1)] += lambda);
            curvature.iter_mut().for_each(|value| *value *= lambda);
            match solve_positive(&held, &curvature, size, size) {
                Some(upward) => add_scaled(&mut of_all, 1.0, &upward),
                None => return Ok(false),
            }
        }
        let tied = strengths.lambda.iter().any(|&lambda| lambda > 0.0);
        Ok(!tied || extreme_eigenvalues(&of_all, size).0 > 0.0)
    };
    let (mut low, mut high) = (least.max(NOTHING * bound), bound);
    if !is_convex_without(low)? {
        return Ok(low);
    }
    while high > NEAR * low {
        let middle = (low * high).sqrt();
        match is_convex_without(middle)? {
            true => low = middle,
            false => high = middle,
        }
    }
    Ok(low)
}

/// A matrix along the directions of a projection, and 1 along the others.
fn where_shown(projection: &[f64], matrix: &[f64], size: usize) -> Vec<f64> {
    let square = |values| Matrix::new(values, size, size);
    let (mut half, mut whole) = (vec![0.0; size * size], vec![0.0; size * size]);
    multiply(&mut half, 1.0, square(projection), square(matrix));
    multiply(&mut whole, 1.0, square(&half), square(projection));
    add_scaled(&mut whole, -1.0, projection);
    (0..size).for_each(|i| whole[i * (size + 1)] += 1.0);
    whole
}
