//! Personal models around one common centre, with no clusters in between: what L2GD, pFedMe and Ditto minimise, found
//! exactly. The baseline that shows what known clusters are worth.
//!
//! ```text
//! minimise Σ_i f_i(θ_i) + strength/2·‖θ_i − θ̄‖², θ̄ the mean of all
//! ```
//!
//! The strength is tuned by cross-validation unless it is given.

use super::hierarchical::exactly;
use super::personal::preparation::Preparation;
use super::personal::{Base, FOLDS, Families, GRID, LOSS, MISSING_AGAIN, Strengths};
use super::*;

pub(super) static KIND: MethodKind = MethodKind {
    name: "single-cluster",
    summary: "personal models around one common centre, exactly",
    paper: "baseline; L2GD, pFedMe, Ditto",
    settings: &[
        Setting::new(
            "strength",
            Kind::Number(0.0, 1e18),
            Default::Absent,
            "the pull to the common centre (default: tuned)",
        ),
        GRID,
        FOLDS,
        LOSS,
        MISSING_AGAIN,
    ],
    needs_truth: |_| false,
    has_clusters: false,
    wants: Ability::Minimiser,
    check: |place, settings, faults| {
        if settings.get("strength").is_some() && settings.get("grid").is_some() {
            faults.push(Error::settings(format!("{place}.grid: the strength is given, there is nothing to tune")));
        }
    },
    build: |setup| {
        let base = Base::new(&setup, Families::one(setup.rows.len()))?;
        let preparation = match setup.settings.optional_number("strength") {
            Some(strength) => {
                let clients = setup.rows.len();
                Preparation::given(Strengths::new(&base.families, vec![strength; clients], vec![f64::INFINITY], 1.0))
            }
            None => Preparation::tuning(&setup, &base)?,
        };
        Ok(exactly(base, preparation))
    },
};
