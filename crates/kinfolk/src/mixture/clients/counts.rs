//! How often components occur at every client.

use crate::num::Spectrum;

/// Counts of components at every client. Where components overlap, a row tells less about them than a label would: counts are in rows with
/// labels that would tell as much.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Counts {
    pub(crate) components: usize,
    /// Client by client.
    pub(crate) values: Vec<f64>,
}

impl Counts {
    /// From every client's weights and rows, of which each is worth so much of a label.
    pub(crate) fn new<'a>(components: usize, efficiency: f64, clients: impl Iterator<Item = (&'a [f64], f64)>) -> Self {
        let values = clients.flat_map(|(weights, rows)| weights.iter().map(move |weight| weight * rows * efficiency));
        Self { components, values: values.collect() }
    }

    pub(crate) fn len(&self) -> usize {
        self.values.len() / self.components.max(1)
    }

    pub(crate) fn each(&self) -> impl Iterator<Item = &[f64]> {
        self.values.chunks_exact(self.components.max(1))
    }

    /// Those of some clients.
    pub(crate) fn of(&self, clients: impl Iterator<Item = usize>) -> Self {
        let all: Vec<&[f64]> = self.each().collect();
        Self { components: self.components, values: clients.flat_map(|client| all[client].to_vec()).collect() }
    }
}

/// What a row is worth beside one whose component is known: the variances of weights that follow from labels, over those that follow from
/// rows, as a harmonic mean over directions. From the mean of the posteriors' outer products at these weights.
pub(crate) fn efficiency(weights: &[f64], products: &[f64]) -> f64 {
    /// Directions in which hardly anything is told count as such.
    const LEAST: f64 = 0.01;
    let components = weights.len();
    if components < 2 {
        return 1.0;
    }
    let roots: Vec<f64> = weights.iter().map(|weight| weight.max(1e-12).sqrt()).collect();
    // D^-½ E[γγᵀ] D^-½ has the eigenvalue 1 with the direction √w, which is no direction of weights.
    let scaled: Vec<f64> = (0..components * components)
        .map(|place| {
            let (i, j) = (place / components, place % components);
            products[place] / (roots[i] * roots[j]) - roots[i] * roots[j]
        })
        .collect();
    let Some(spectrum) = Spectrum::new(&scaled, components) else { return LEAST };
    let told: Vec<f64> = spectrum.descending().map(|(value, _)| value.clamp(LEAST, 1.0)).take(components - 1).collect();
    let lost = (components - 1 - told.len()) as f64 / LEAST;
    (components - 1) as f64 / (told.iter().map(|value| value.recip()).sum::<f64>() + lost)
}
