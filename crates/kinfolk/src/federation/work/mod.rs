//! Work: what a client can be asked to do.
//!
//! A kind of work is one file here and one line in the list of [`Work`]: its order, what it needs, what it sends, what the
//! client does, and the type of its answer. Nothing else in the federation knows one kind from another: engines, meter and
//! checks go by what a kind says of itself (`kind.rs`) and by the parts of a [`Reply`].

mod kind;
mod reply;

use super::client::context::ClientContext;
use super::client::guard::{Cost, Load};
pub(super) use super::disclosure::{Telling, Tells};
use crate::error::{Error, Result};
use crate::families::{Histogram, Reliability};
use crate::mixture::{Detail, Rows, Shape, Statistics};
use crate::models::{Choosing, Found};
use crate::rng::Key;
use crate::training::{Plan, Portion, Pull, Sample, Scale, Then};
pub(super) use kind::{Capability, Content, Kind, Needs, Sends};
pub use reply::{Answer, Choice, HasLoss, Loss, PackedReply, Reply};
use serde::de::{Error as _, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::borrow::Cow;

/// The type of the answers to a kind of work. Apart from `Kind`, which must be usable as a trait object.
pub trait TypedWork: Into<Work> {
    /// The name of the kind.
    const NAME: &'static str;
    /// What comes back from every client, apart from a vector.
    type Answer: Answer;
}

/// Declares every kind of work: its permanent number on the wire, its name in messages, and the type of its answers.
macro_rules! kinds {
    ($($number:literal $name:literal $file:ident::$kind:ident -> $answer:ty;)*) => {
        $(mod $file;
        pub use $file::$kind;

        impl From<$kind> for Work {
            fn from(work: $kind) -> Self {
                Work::$kind(work)
            }
        }

        impl TypedWork for $kind {
            const NAME: &'static str = $name;
            type Answer = $answer;
        })*

        /// What a client can be asked to do.
        #[derive(Debug, Clone, PartialEq)]
        #[non_exhaustive]
        pub enum Work {
            $(#[doc = concat!("See [`", stringify!($kind), "`].")]
            $kind($kind),)*
        }

        impl Work {
            /// The names of all kinds.
            pub const NAMES: &[&str] = &[$($name),*];

            /// The name of its kind.
            pub fn name(&self) -> &'static str {
                match self {
                    $(Work::$kind(_) => $name,)*
                }
            }

            /// What an answer to it tells, in words.
            pub fn tells(&self) -> String {
                let tells = match self {
                    $(Work::$kind(_) => <$kind as Telling>::TELLS,)*
                };
                let sends = self.sends(1);
                tells.of([self.sends_vector(), sends.numbers > 0, sends.counts > 0])
            }
        }

        impl std::ops::Deref for Work {
            type Target = dyn Kind;

            fn deref(&self) -> &Self::Target {
                match self {
                    $(Work::$kind(work) => work,)*
                }
            }
        }

        impl Serialize for Work {
            fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
                match self {
                    $(Work::$kind(work) => ($number as u16, work).serialize(serializer),)*
                }
            }
        }

        impl<'de> Visitor<'de> for Numbered {
            type Value = Work;

            fn expecting(&self, formatter: &mut std::fmt::Formatter) -> std::fmt::Result {
                formatter.write_str("the number of a kind of work, and its order")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut pair: A) -> std::result::Result<Work, A::Error> {
                let ended = || A::Error::custom("a kind of work without its order");
                let number: u16 = pair.next_element()?.ok_or_else(ended)?;
                match number {
                    $($number => pair.next_element()?.map(Work::$kind).ok_or_else(ended),)*
                    other => Err(A::Error::custom(format!("work {other} is not known here"))),
                }
            }
        }
    };
}

struct Numbered;

impl<'de> Deserialize<'de> for Work {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        deserializer.deserialize_tuple(2, Numbered)
    }
}

kinds! {
    1 "losses" losses::Losses -> Vec<f64>;
    2 "shares" shares::Shares -> Vec<f64>;
    3 "gradient" gradient::Gradient -> Loss;
    4 "train" train::Train -> Loss;
    5 "choose" choose::Choose -> Choice;
    6 "minimise" minimise::Minimise -> Loss;
    7 "evaluate" evaluate::Evaluate -> Evaluated;
    8 "curvature" curvature::Curvature -> Curvatures;
    9 "respond" respond::Respond -> Responded;
    10 "validate" validate::Validate -> Vec<f64>;
    11 "advance" advance::Advance -> Advanced;
    12 "fit-mixture" fit_mixture::FitMixture -> Fitted;
    13 "step-mixture" step_mixture::StepMixture -> Fitted;
    14 "tally" tally::Tally -> ();
    15 "receive" receive::Receive -> ();
    16 "fold-products" fold_products::FoldProducts -> ByFold;
    17 "residuals" residuals::Residuals -> Histogram;
    18 "held-out-losses" held_out_losses::HeldOutLosses -> LossesByFold;
    19 "count-probabilities" reliability::CountProbabilities -> Reliability;
    20 "try-tuning" fine_tune::FineTune -> Vec<f64>;
    21 "sum-mixtures" sum_mixtures::SumMixtures -> HeldOutSums;
    22 "weigh-components" weigh_components::WeighComponents -> Vec<Weighed>;
    23 "score-mixtures" score_mixtures::ScoreMixtures -> MixtureScores;
    24 "check-predictions" check_predictions::CheckPredictions -> Checked;
    25 "move-columns" move_columns::MoveColumns -> Moved;
    26 "train-parts" train_parts::TrainParts -> Loss;
    27 "train-corrected" train_corrected::TrainCorrected -> Loss;
    28 "meta-train" meta_train::MetaTrain -> Loss;
    29 "train-nearby" train_nearby::TrainNearby -> Loss;
    30 "interpolate" interpolate::Interpolate -> Interpolated;
    31 "subspace" subspace::Subspace -> ();
    32 "train-mixed" train_mixed::TrainMixed -> MixedShares;
}

pub use crate::models::accelerated::Acceleration;
pub use advance::{Addend, Advanced, Blend, Renewal, Run};
pub use check_predictions::Checked;
pub use curvature::Curvatures;
pub use evaluate::{Evaluated, Scored, Subject};
pub use fine_tune::Trial;
pub use fit_mixture::{Fitted, Parts};
pub use fold_products::{ByFold, Folds, TargetScale};
pub use held_out_losses::LossesByFold;
pub use interpolate::Interpolated;
pub use move_columns::{Move, Moved};
pub use respond::{Responded, ResponseParts};
pub use score_mixtures::{Bins, Leaning, MixtureScores};
pub use sum_mixtures::{FoldMixture, HeldOutSums};
pub use train::{Keep, Start};
pub use train_mixed::MixedShares;
pub use train_parts::{Moves, TrainingStage, between};
pub use weigh_components::Weighed;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::aggregate::Weight;
    use crate::data::{DataShape, Form};
    use crate::error::ErrorKind;
    use crate::federation::{Ask, Gather, Phase, Recipients};
    use crate::rng::Key;
    use crate::settings::Settings;
    use crate::training::{Amount, Course, Optimiser, Plan, Portion, Sample, Scale, Terms, Then};
    use std::fmt::Debug;
    use std::sync::Arc;

    fn plan() -> Plan {
        Plan {
            sample: Sample::FULL,
            amount: Amount::Steps(1),
            step: 0.1,
            optimiser: Optimiser::Adam { weight_decay: 0.0 },
            terms: Terms::default(),
            course: Course::PLAIN,
        }
    }

    fn advance() -> Advance {
        Advance {
            from: Start::Model(0),
            vectors: 1,
            blend: None,
            measured: None,
            run: None,
            renewal: None,
            send: Vec::new(),
            scale: Scale { factor: 1.0, by: Weight::Uniform },
        }
    }

    fn choose(then: Then) -> Choose {
        Choose { among: vec![0], on: Portion::All, then }
    }

    #[test]
    fn a_kind_keeps_its_number_on_the_wire() {
        let held_out = Portion::Fold { index: 0, of: 3 };
        let trials = vec![Trial { from: 0, amount: Amount::Steps(2) }];
        let kinds: [(u8, Work); 8] = [
            (1, Losses { of: vec![0], on: Portion::All }.into()),
            (4, Train::from_model(0, plan()).into()),
            (5, choose(Then::Nothing).into()),
            (6, Minimise { ridge: 0.0, keep: false }.into()),
            (8, Curvature.into()),
            (11, advance().into()),
            (15, Receive { models: vec![0], keep: false }.into()),
            (20, FineTune { trials, plan: plan(), held_out, parts: 2 }.into()),
        ];
        for (number, work) in kinds {
            let bytes = postcard::to_stdvec(&work).unwrap();
            assert_eq!(bytes[0], number, "{}", work.name());
            assert_eq!(postcard::from_bytes::<Work>(&bytes).unwrap(), work);
        }
        assert!(postcard::from_bytes::<Work>(&[99, 0]).is_err());
    }

    /// What is said to work on a small network with this normalisation.
    fn suits(norm: &str, work: impl TypedWork) -> Result<()> {
        let kind = crate::models::kind("cnn").unwrap();
        let settings = format!("filters = [2]\nhidden = []\nnorm = \"{norm}\"");
        let settings = Settings::check("model", kind.settings, toml::from_str(&settings).unwrap(), &mut Vec::new());
        let form = Form::Image { channels: 1, height: 2, width: 2, augment: Default::default() };
        let model = kind.make(&settings, DataShape { columns: 4, classes: 2, form }).unwrap();
        let models = vec![Arc::new(model.initialise(&mut Key::new(0).rng()).unwrap())];
        let mut ask = Ask::new(Phase::Train, models, Gather::Each);
        ask.order(Recipients::All, work);
        ask.suits(&*model)
    }

    #[test]
    fn statistics_need_a_training() {
        fn refused(work: impl TypedWork + Clone + Debug) {
            assert!(suits("group", work.clone()).is_ok(), "{work:?}");
            let refused = suits("batch", work).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::Unsupported);
            assert!(refused.to_string().contains("norm = \"group\""), "{refused}");
        }
        refused(Gradient { of: 0, sample: Sample::FULL });
        refused(choose(Then::Gradient(Sample::FULL)));
        refused(advance());
        assert!(suits("batch", choose(Then::Train(plan()))).is_ok());
        assert!(suits("batch", choose(Then::Nothing)).is_ok());
    }
}
