//! How many components a mixture needs: the number with the best BIC over all clients.

use super::*;
use crate::models::most_components;

/// A number of components, and what it was chosen by.
#[derive(Debug)]
struct Components {
    /// The best.
    count: usize,
    /// The criterion of 1, 2, … components; smaller is better.
    criteria: Vec<f64>,
    /// Clients with too few rows to have a say.
    too_small: usize,
    /// Whether more components would have been tried, had clients more rows.
    limited: bool,
}

impl Components {
    fn note(&self) -> String {
        let tried = self.criteria.len();
        let best = self.criteria[self.count - 1];
        let others = (1..).zip(&self.criteria).filter(|(count, _)| *count != self.count);
        let mut note = match others.min_by(|a, b| a.1.total_cmp(b.1)) {
            Some((next, other)) => format!(
                "components: {} of 1 to {tried}, by BIC over all clients; next comes {next}, by {:.1} more",
                self.count,
                other - best
            ),
            None => "components: 1; there was no other number to try".to_string(),
        };
        if self.limited {
            note += &format!("; most clients have too few rows for more than {tried}");
        }
        if self.too_small > 0 {
            note += &format!("; {} had too few rows to have a say", counted(self.too_small, "client"));
        }
        note
    }
}

/// The most components that this number of rows can tell apart: a few rows for each, and enough to estimate their scatter.
fn capacity(shape: &Shape, rows: usize) -> usize {
    /// Rows for a component.
    const FEWEST: usize = 5;
    let columns = shape.columns;
    let most = match shape.family {
        Family::Gaussian(Covariance::Full) => rows / (2 * (columns + 1)).max(FEWEST),
        Family::Gaussian(Covariance::Tied | Covariance::Identity) => {
            (rows / FEWEST).min(rows.saturating_sub(2 * columns))
        }
        Family::Gaussian(_) => rows / FEWEST,
        Family::Regression { .. } => rows / (2 * (shape.width() + 1)),
    };
    most.max(1)
}

/// Starts of a fit that only has to be compared with others.
const STARTS_TO_COMPARE: usize = 5;
const ITERATIONS_TO_COMPARE: usize = 100;

/// The settings of a mixture whose number of components is to be chosen from the data, with that number, and a note on how
/// it was chosen. The clients have the model already. `None` for all other models.
pub(crate) fn choose_components(
    federation: &mut dyn Federation,
    model: &dyn Model,
    settings: &Settings,
    rows: &[usize],
    key: &Key,
) -> Result<Option<(Settings, String)>> {
    let (Some(most), Some(shape)) = (most_components(settings), model.mixture()) else { return Ok(None) };
    // Every client fits 1 to `most` components and says how likely its rows are then: Σ_k ( −2·log L_k + p·log n_k ).
    // Where the scatter is not estimated, more components would make up for it.
    let family = match shape.family {
        Family::Gaussian(Covariance::Identity) => Family::Gaussian(Covariance::Tied),
        Family::Regression { intercept, .. } => Family::Regression { intercept, noise: Noise::Common },
        family => family,
    };
    // Every client that is asked must be able to fit every number: sums over different clients do not compare.
    let capacities: Vec<usize> = rows.iter().map(|&rows| capacity(&Shape { family, ..*shape }, rows)).collect();
    let mut sorted = capacities.clone();
    sorted.sort_unstable();
    let usual = sorted.get(sorted.len().saturating_sub(1) / 2).copied().unwrap_or(1);
    let (limited, most) = (usual < most, most.min(usual));
    let able: Vec<u32> = (0u32..).zip(&capacities).filter(|(_, can)| **can >= most).map(|(client, _)| client).collect();
    let too_small = rows.len() - able.len();
    let to = Recipients::list(able);
    let tried: Vec<Shape> = (1..=most).map(|components| Shape { family, components, ..*shape }).collect();
    let fitting = Fitting {
        begin: Begin::Auto,
        starts: STARTS_TO_COMPARE,
        iterations: ITERATIONS_TO_COMPARE,
        tolerance: FIT_TOLERANCE,
    };
    let mut ask = Ask::new(Phase::Start, Vec::new(), Gather::Each);
    let order = |shape: &Shape| {
        let seed = key.clone().word("components").number(shape.components as u64).seed();
        ask.order(to.clone(), FitMixture { shape: *shape, fitting, seed, keep: false, send: Parts::Nothing })
    };
    let orders: Vec<_> = tried.iter().map(order).collect();
    let answers = federation.ask(&ask)?;
    let criterion = |(order, shape): (&Handle<Fitted>, &Shape)| -> f64 {
        let order = answers.of(*order);
        let of_client = |(loss, &rows): (f64, &u32)| {
            2.0 * f64::from(rows) * loss + shape.free_parameters() as f64 * f64::from(rows).ln()
        };
        order.losses().into_iter().zip(&order.rows).map(of_client).sum()
    };
    let criteria: Vec<f64> = orders.iter().zip(&tried).map(criterion).collect();
    let count = crate::models::first_smallest(criteria.iter().copied()).position + 1;
    let note = Components { count, criteria, too_small, limited }.note();
    Ok(Some((settings.with("components", count as i64), note)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_limit_what_can_be_told_apart() {
        let most = |family, columns, rows| capacity(&Shape { family, components: 1, columns }, rows);
        let tied = Family::Gaussian(Covariance::Tied);
        assert_eq!((most(tied, 16, 200), most(tied, 2, 14), most(tied, 10, 30), most(tied, 10, 21)), (40, 2, 6, 1));
        assert_eq!(most(Family::Gaussian(Covariance::Full), 10, 100), 4);
        assert_eq!(most(Family::Regression { intercept: true, noise: Noise::Common }, 10, 200), 8);
        assert_eq!(most(tied, 3, 2), 1);
    }

    #[test]
    fn a_note_says_what_limited_the_choice() {
        let found = Components { count: 2, criteria: vec![9.0, 4.0, 5.5], too_small: 1, limited: true };
        assert_eq!(
            found.note(),
            "components: 2 of 1 to 3, by BIC over all clients; next comes 3, by 1.5 more; most clients have too few rows \
             for more than 3; 1 client had too few rows to have a say"
        );
    }
}
