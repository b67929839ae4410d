//! Methods: server-side code that reads like a paper's pseudocode and talks to clients only through a federation.
//!
//! One file a method; adding one is that file and a line in `methods!`. What methods share lies in `parts/`, in `personal/` for
//! those that give every client a model of its own, and in `mixtures/` for those that fit mixtures.

mod mixtures;
mod outcome;
mod parts;
mod personal;
#[doc(hidden)]
pub mod room;
mod setup;

pub(crate) use auto::networks::{NetworkClient, NetworkRung, Networks, NetworksFound};
pub(crate) use auto::{Begun, FamilyModel, Intervals, Study, study_discloses};
pub(crate) use mixtures::components::choose_components;
pub(crate) use mixtures::study::{
    ComponentClient, ComponentModel, MixtureWishes, OwnMixture, covariance_of, study_components,
};
pub use outcome::{Apart, Comparison, Minimises, MixtureOutcome, Outcome, Serving};
pub use setup::{AutoStep, DataFacts, Needs, Setup};
pub(crate) use setup::{auto_step, no_true_clusters};
pub(crate) use single_model::pooled_minimiser;

use crate::aggregate::{Sum, Weight};
use crate::assignment::Assignment;
use crate::error::{Error, ErrorKind, Result};
use crate::federation::disclosure::{Disclosure, Told};
use crate::federation::work::{self, Keep, Run, Start, Train};
use crate::federation::{Answers, Ask, By, Federation, Gather, OrderAnswers, Params, Phase, Recipients};
use crate::groups::Groups;
use crate::models::{Ability, Model};
use crate::num::{add_scaled, dot, median};
use crate::privacy::rows::Exposure;
use crate::rng::Key;
use crate::settings::{Auto, Check, Declared, Field, Kind, Setting, Settings, choices, settings, unknown_name};
use crate::training::{Amount, Course, Optimiser, Plan, Portion, Pull, Sample, Terms};
use parts::aggregating::Aggregating;
use parts::averaging::{absent_from, finite_vectors, mean_model};
use parts::checkpoint::{keep_state, restore, save};
use parts::solving::Solving;
use parts::training::{Trainer, Training};
use personal::preparation::{Preparation, Prepared};
use personal::{Families, LossOver, Objective, Problem, Strengths};
use room::{MissingRule, Room, mean_loss, stamps_after};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A method as users name it.
pub struct MethodKind {
    /// Its `method.name`.
    pub name: &'static str,
    /// One line for users.
    pub summary: &'static str,
    /// Where it comes from.
    pub paper: &'static str,
    /// Its settings.
    pub settings: &'static [Setting],
    /// What it needs of the run.
    pub needs: fn(&Settings) -> Needs,
    /// Whether it puts clients into clusters, which a later method may start from.
    pub has_clusters: bool,
    /// What a model must be able to do for it.
    pub wants: Ability,
    /// Whether it is for some of these models only: with several layers, with normalisation, for classes.
    #[doc(hidden)]
    pub particular: bool,
    /// How much it uses the rows of every client, with so many steps in a pass, for a model with which so much can be done; why that
    /// cannot be hidden row by row, otherwise.
    #[doc(hidden)]
    pub exposure: fn(&Settings, u64, Ability) -> Hidable,
    /// What it has clients tell, of a model with which so much can be done; nothing where it does not say.
    #[doc(hidden)]
    pub discloses: fn(&Settings, Ability) -> Vec<Disclosure>,
    /// What it wants of single clients, if it cannot do with sums over them.
    #[doc(hidden)]
    pub wants_single: fn(&Settings) -> Option<&'static str>,
    /// Adds faults in combinations of settings.
    pub check: fn(&str, &Settings, &mut Vec<Error>),
    /// Makes a method that is ready to run.
    pub build: fn(Setup) -> Result<Box<dyn Method>>,
}

/// A method's settings, and with them all that [`MethodKind`] has.
pub trait MethodSettings: Declared {
    /// Its `method.name`.
    const NAME: &str;
    /// One line for users.
    const SUMMARY: &str;
    /// Where it comes from.
    const PAPER: &str = "baseline";
    /// Whether it puts clients into clusters, which a later method may start from.
    const HAS_CLUSTERS: bool = false;
    /// What a model must be able to do for it.
    const WANTS: Ability = Ability::Descent;
    /// Whether it is for some of these models only: with several layers, with normalisation, for classes.
    #[doc(hidden)]
    const PARTICULAR: bool = false;
    /// Why single rows cannot be hidden in what its clients answer.
    #[doc(hidden)]
    const SHOWS_ROWS: &str = "its clients answer more than what steps with noise on every row's gradient give";
    /// What it wants of single clients, if it cannot do with sums over them: "it clusters the clients' own models".
    #[doc(hidden)]
    const WANTS_SINGLE: Option<&'static str> = None;
    /// The method as users name it.
    const METHOD: &'static MethodKind = &MethodKind::new::<Self>();

    /// What it needs of the run. A setting `missing` says what a missing answer means.
    fn needs(&self) -> Needs {
        let rule = self.to_table().get("missing").and_then(MissingRule::parse);
        Needs::only(rule.unwrap_or(MissingRule::Skip))
    }

    /// How much it uses the rows of every client with these settings, where a pass over the rows has so many steps, for a model with
    /// which so much can be done; why that cannot be hidden row by row, otherwise.
    #[doc(hidden)]
    fn exposure(&self, _pass: u64, _ability: Ability) -> Hidable {
        Err(Self::SHOWS_ROWS)
    }

    /// What it has clients tell, of a model with which so much can be done: the declaration that is shown before anything is
    /// sent, and that tests hold it to. A method that does not say has none.
    #[doc(hidden)]
    fn discloses(&self, ability: Ability) -> Vec<Disclosure> {
        let _ = ability;
        Vec::new()
    }

    /// What it wants of single clients with these settings.
    #[doc(hidden)]
    fn wants_single(&self) -> Option<&'static str> {
        Self::WANTS_SINGLE
    }

    /// Makes a method that is ready to run.
    fn build(self, setup: Setup) -> Result<Box<dyn Method>>;
}

/// How much a method uses the rows of every client, or why that cannot be hidden row by row.
#[doc(hidden)]
pub type Hidable = std::result::Result<Exposure, &'static str>;

impl MethodKind {
    const fn new<S: MethodSettings>() -> Self {
        Self {
            name: S::NAME,
            summary: S::SUMMARY,
            paper: S::PAPER,
            settings: S::SETTINGS,
            needs: |settings| S::read(settings).map_or(Needs::only(MissingRule::Skip), |settings| settings.needs()),
            has_clusters: S::HAS_CLUSTERS,
            wants: S::WANTS,
            particular: S::PARTICULAR,
            exposure: |settings, pass, ability| {
                S::read(settings).map_or(Err(S::SHOWS_ROWS), |settings| settings.exposure(pass, ability))
            },
            discloses: |settings, ability| {
                let mut all = S::read(settings).map_or_else(Vec::new, |settings| settings.discloses(ability));
                // Only means are made of sums.
                if Aggregating::read(settings).is_some_and(|aggregating| !aggregating.is_plain()) {
                    let of_rounds = all.iter_mut().filter(|disclosure| disclosure.phase == Phase::Train);
                    of_rounds.for_each(|disclosure| disclosure.told = Told::Single);
                }
                all
            },
            wants_single: |settings| {
                if Aggregating::read(settings).is_some_and(|aggregating| !aggregating.is_plain()) {
                    return Some(
                        "only a plain mean is made of sums: aggregate, mix_first and most_weight go by single updates",
                    );
                }
                S::read(settings).map_or(S::WANTS_SINGLE, |settings| settings.wants_single())
            },
            check: S::check_section,
            build: |setup| S::of(setup.settings).build(setup),
        }
    }

    /// A method of one's own, without settings, for models that are trained by descent. `build` makes it ready to run.
    pub const fn own(name: &'static str, build: fn(Setup) -> Result<Box<dyn Method>>) -> Self {
        Self {
            name,
            summary: "a method of one's own",
            paper: "own",
            settings: &[],
            needs: |_| Needs::only(MissingRule::Skip),
            has_clusters: false,
            wants: Ability::Descent,
            particular: false,
            exposure: |_, _, _| Err("nothing is known of what a method of one's own asks of its clients"),
            discloses: |_, _| Vec::new(),
            wants_single: |_| None,
            check: |_, _, _| {},
            build,
        }
    }
}

/// Declares every method: its file or folder, and the settings it is built from.
macro_rules! methods {
    ($($file:ident::{$($($settings:ident)::+),+})*) => {
        $(mod $file; pub use $file::{$($($settings)::+),+};)*

        /// All methods.
        pub static METHODS: &[&MethodKind] = &[$($(<$file::$($settings)::+>::METHOD),+),*];
    };
}

methods! {
    auto::{AutoSettings}
    ifca::{IfcaSettings, one_shot_ifca::OneShotIfcaSettings}
    odcl::{OdclSettings, local_kmeans::LocalKmeansSettings}
    sr_fca::{SrFcaSettings}
    cfl::{CflSettings}
    fedsoft::{FedSoftSettings}
    fedavg::{FedAvgSettings}
    local::{LocalSettings}
    oracle::{OracleSettings}
    naive_average::{NaiveAverageSettings}
    oracle_average::{OracleAverageSettings}
    cluster_oracle::{ClusterOracleSettings}
    l2gd::{L2gdSettings}
    al2sgd_plus::{Al2sgdPlusSettings}
    hierarchical::{HierarchicalSettings}
    single_cluster::{SingleClusterSettings}
    james_stein::{JamesSteinSettings}
    single_model::{SingleModelSettings}
    fedgrem::{FedGrEmSettings}
    local_em::{LocalEmSettings}
    local_grem::{LocalGrEmSettings}
    pooled_em::{PooledEmSettings}
    pooled_grem::{PooledGrEmSettings}
    mixture_fedem::{MixtureFedEmSettings}
    mixture_fedgmm::{MixtureFedGmmSettings}
    tgmm::{TgmmSettings}
    fine_tune::{FineTuneSettings}
    ditto::{DittoSettings}
    mr_mtl::{MrMtlSettings}
    fedprox::{FedProxSettings}
    fedopt::{FedOptSettings}
    fedamp::{FedAmpSettings}
    fedfomo::{FedFomoSettings}
    fesem::{FesemSettings}
    fedgroup::{FedGroupSettings}
    stocfl::{StoCflSettings}
    fedclust::{FedClustSettings}
    fedper::{FedPerSettings}
    fedrep::{FedRepSettings}
    fedbabu::{FedBabuSettings}
    lg_fedavg::{LgFedAvgSettings}
    fedbn::{FedBnSettings}
    scaffold::{ScaffoldSettings}
    per_fedavg::{PerFedAvgSettings}
    pfedme::{PfedMeSettings}
    apfl::{ApflSettings}
    pacfl::{PacflSettings}
    cfl_gp::{CflGpSettings}
    fedem_soft::{FedEmSoftSettings}
    fedrc::{FedRcSettings}
    feddrift::{FedDriftSettings}
}

/// All that the author of a method needs: what it is handed, what it may ask, and what it returns.
pub mod prelude {
    pub use super::room::{MissingRule, Room};
    pub use super::{Method, MethodKind, MethodSettings, Needs, Outcome, Progress, Serving, Setup};
    pub use crate::aggregate::{Sum, Weight};
    pub use crate::assignment::Assignment;
    pub use crate::error::{Error, ErrorKind, Result};
    #[doc(hidden)]
    pub use crate::federation::disclosure::Disclosure;
    pub use crate::federation::work::{Choose, Evaluate, Gradient, Losses, Train};
    pub use crate::federation::{Answers, Ask, By, Gather, Params, Phase, Recipients};
    #[doc(hidden)]
    pub use crate::models::Ability;
    pub use crate::rng::Key;
    pub use crate::training::{Amount, Optimiser, Plan, Portion, Sample, Then};
}

/// What the settings of methods are made of: groups that several methods share, and words to choose from.
pub mod options {
    pub use super::al2sgd_plus::RowsInStep;
    pub use super::fedamp::Attention;
    pub use super::fedgrem::{Central, Scatter, Weights};
    pub use super::fedopt::ServerStep;
    pub use super::ifca::{Divisor, StartBy};
    pub use super::l2gd::CoinCount;
    pub use super::mixtures::{CommonOrder, FirstCentres, OwnFits, StartCovariance, StepRule, Until};
    pub use super::odcl::{Lambda, Pulling};
    pub use super::pacfl::Angles;
    pub use super::parts::aggregating::{Aggregating, MixFirst, Rule};
    pub use super::parts::averaging::Averaging;
    pub use super::parts::linkage::JoinUntil;
    pub use super::parts::one_shot::{BottomUp, Compare, DistanceBy, GroupsBy, LambdaRule};
    pub use super::parts::solving::{Iterate, Pace, SolveBy, Solving};
    pub use super::parts::supervised_mixture::Components;
    pub use super::parts::training::{OptimiserKind, Optimising, Schedule, StartModel, Training};
    pub use super::per_fedavg::Hessian;
    pub use super::personal::theory::{Aim, Stepping};
    pub use super::personal::{ClientPull, LossOver, Objective, Spread};
    pub use super::room::MissingRule;
    pub use crate::aggregate::Weight;
    pub use crate::clustering::Algorithm;
    pub use crate::groups::Grouping;
    pub use crate::mixture::Begin;
    pub use crate::settings::{Auto, ForEach};
}

/// The method of this name.
#[doc(hidden)]
pub fn kind(name: &str) -> Option<&'static MethodKind> {
    METHODS.iter().copied().find(|kind| kind.name == name)
}

/// The fault of a name that no method has, with its new name or the nearest known one.
#[doc(hidden)]
pub fn unknown(place: &str, name: &str, known: &[&str]) -> Error {
    let renamed = |published: &str| {
        Error::settings(format!("{place}: got \"{name}\", want \"mixture-{name}\""))
            .hint(format!("{published} proper trains models to predict by; this version of it fits mixtures of rows"))
    };
    match name {
        "fedem" => renamed("FedEM"),
        "fedgmm" => renamed("FedGMM"),
        _ => unknown_name(place, name, known),
    }
}

/// A method during a run.
pub trait Method: Send {
    /// One round.
    fn round(&mut self, room: &mut Room) -> Result<Progress>;

    /// Number of rounds it expects to run.
    fn planned_rounds(&self) -> usize {
        1
    }

    /// The name of the stage that the last round completed, for methods with stages: clients are scored there.
    fn stage(&self) -> Option<String> {
        None
    }

    /// What it has found so far.
    fn outcome(&self) -> Outcome;

    /// Its state as bytes, for a checkpoint; `None` for a method that begins anew where a run is resumed.
    fn save(&self) -> Result<Option<Vec<u8>>> {
        Ok(None)
    }

    /// Its state from the bytes that it saved.
    fn restore(&mut self, bytes: &[u8]) -> Result<()> {
        let _ = bytes;
        Ok(())
    }
}

/// How a round went.
#[derive(Debug, Clone, PartialEq)]
pub struct Progress {
    /// Mean loss of the clients that answered, before the round's step.
    pub loss: Option<f64>,
    /// Number of clients that changed cluster.
    pub switched: Option<usize>,
    /// Number of clients in every cluster; empty for methods without clusters.
    pub sizes: Vec<usize>,
    /// Whether this was the last round.
    pub finished: bool,
}

impl Progress {
    /// The progress of a method without clusters.
    pub fn of(loss: Option<f64>, finished: bool) -> Self {
        Self { loss, switched: None, sizes: Vec::new(), finished }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_is_registered() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/methods");
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                continue;
            }
            let stem = path.file_stem().unwrap().to_str().unwrap().replace("_plus", "+").replace('_', "-");
            assert!(
                ["mod", "outcome", "room", "setup"].contains(&&*stem) || METHODS.iter().any(|kind| kind.name == stem),
                "{stem} is not in METHODS"
            );
        }
    }
}
