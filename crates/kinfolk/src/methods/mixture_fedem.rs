//! FedEM with mixtures of rows in place of models (Marfoq, Neglia, Bellet, Kameni, Vidal: Federated multi-task learning under a mixture of
//! distributions, 2021): all clients have the same components, each with weights of its own.
//!
//! ```text
//! 1  for t = 1..T:
//! 2      each client: E-step at (its w, the common θ), w ← mean γ, the full M-step, send θ
//! 3      server: θ ← the plain mean of what clients sent
//! ```
//!
//! Difference from the paper: components begin at the mean of the clients' own fits, and the M-step is exact, not local
//! training.

use super::mixtures::*;
use super::*;

pub(super) static KIND: MethodKind = MethodKind {
    name: "mixture-fedem",
    summary: "common components and weights of their own, clients' M-steps averaged",
    paper: "Marfoq, Neglia, Bellet, Kameni, Vidal 2021",
    settings: mixture_settings!(ROUNDS_AT_MOST, TOLERANCE, ORDERS),
    needs_truth: |_| false,
    has_clusters: false,
    wants: Ability::Mixture,
    check: |_, _, _| {},
    build: |setup| SharedComponents::ready(&setup, Place::Clients),
};
