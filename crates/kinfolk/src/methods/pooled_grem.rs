//! Gradient EM on all rows of all clients as if they lay in one place: `pooled-em` with a step along the gradient instead
//! of the M-step. How rows scatter stays as the clients' fits had it on average.

use super::mixtures::*;
use super::*;

pub(super) static KIND: MethodKind = MethodKind {
    name: "pooled-grem",
    summary: "gradient EM for one mixture on everybody's rows together",
    paper: "baseline",
    settings: mixture_settings!(
        ROUNDS_AT_MOST,
        TOLERANCE,
        Setting::new("step", Kind::Positive, Default::Is("0.1"), "the step size"),
        ORDERS,
    ),
    needs_truth: |_| false,
    has_clusters: false,
    wants: Ability::Mixture,
    check: |_, _, _| {},
    build: |setup| Pooled::ready(&setup, Some(setup.settings.number("step"))),
};
