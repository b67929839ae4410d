//! How often the components of mixtures occur among a client's rows.

use super::sum_mixtures::{FoldMixture, folded, malformed};
use super::*;

/// The weights that components have among a client's rows, and sums by which they are compared with other clients'.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WeighComponents {
    pub(crate) folds: Folds,
    pub(crate) mixtures: Vec<FoldMixture>,
}

/// How often the components of a mixture occur among the rows it sees.
#[derive(Debug, Clone, PartialEq)]
pub struct Weighed {
    pub(crate) rows: u32,
    /// The weights under which the rows are likeliest,
    pub(crate) weights: Vec<f64>,
    /// and the log-likelihood of the rows then.
    pub(crate) log_likelihood: f64,
    /// Of every fold the rows, and the sums of posteriors with the mixture's own weights.
    pub(crate) by_fold: Vec<(u32, Vec<f64>)>,
    /// The sum of the posteriors' outer products, row-major.
    pub(crate) products: Vec<f64>,
}

impl Weighed {
    /// Zeroes components with so few rows that their sums would reveal them.
    fn withhold(&mut self, least: f64) {
        let components = self.weights.len();
        for component in 0..components {
            let members: f64 = self.by_fold.iter().map(|(_, sums)| sums[component]).sum();
            if members >= least && self.weights[component] * f64::from(self.rows) >= least {
                continue;
            }
            self.weights[component] = 0.0;
            self.by_fold.iter_mut().for_each(|(_, sums)| sums[component] = 0.0);
            self.products[component * components..][..components].fill(0.0);
            self.products.iter_mut().skip(component).step_by(components).for_each(|product| *product = 0.0);
        }
        let all: f64 = self.weights.iter().sum();
        self.weights.iter_mut().filter(|_| all > 0.0).for_each(|weight| *weight /= all);
    }
}

impl Answer for Vec<Weighed> {
    fn read(counts: &[u32], numbers: &[f64]) -> Self {
        // The number of mixtures, rows of folds of each, and its components.
        let mixtures = counts.first().copied().unwrap_or(0) as usize;
        let each = counts.len().saturating_sub(1) / mixtures.max(1);
        let mut numbers = numbers.iter().copied();
        let mut found = Vec::new();
        for counts in counts.get(1..).unwrap_or_default().chunks_exact(each.max(2)) {
            let (components, folds) = (counts[0] as usize, &counts[1..]);
            let mut take = |length: usize| numbers.by_ref().take(length).collect::<Vec<f64>>();
            let weights = take(components);
            let log_likelihood = take(1).first().copied().unwrap_or(f64::NAN);
            let by_fold = folds.iter().map(|&rows| (rows, take(components))).collect();
            let products = take(components * components);
            found.push(Weighed { rows: folds.iter().sum(), weights, log_likelihood, by_fold, products });
        }
        found
    }

    fn write(self, counts: &mut Vec<u32>, numbers: &mut Vec<f64>) {
        counts.push(self.len() as u32);
        for Weighed { weights, log_likelihood, by_fold, products, .. } in self {
            counts.push(weights.len() as u32);
            numbers.extend(weights);
            numbers.push(log_likelihood);
            for (rows, sums) in by_fold {
                counts.push(rows);
                numbers.extend(sums);
            }
            numbers.extend(products);
        }
    }
}

impl Telling for WeighComponents {
    const TELLS: Tells =
        Tells::numbers("how often each component of each mixture occurs among its rows, in all and by fold")
            .with_counts("the rows of each fold");
}

impl Kind for WeighComponents {
    fn needs(&self) -> Needs<'_> {
        Needs::new(&[][..], Capability::Mixture)
    }

    fn sends(&self, _: usize) -> Sends {
        let folds = self.folds.count as usize;
        let numbers = |mixture: &FoldMixture| {
            let components = mixture.shape.components;
            components + 1 + folds * components + components * components
        };
        let numbers = self.mixtures.iter().map(numbers).sum();
        Sends::numbers(numbers).with_counts(1 + self.mixtures.len() * (1 + folds))
    }

    fn cost(&self, load: &Load) -> Cost {
        let costs = self.mixtures.iter().map(|mixture| load.mixes(&mixture.shape, 2.0));
        costs.fold(Cost::default(), |all, one| Cost {
            steps: all.steps + one.steps,
            work: all.work + one.work,
            numbers: all.numbers + one.numbers,
        })
    }

    fn carry_out(&self, context: &mut ClientContext) -> Result<Reply> {
        let seat = context.seat();
        let rows = folded(context, &seat, self.folds, &self.mixtures)?;
        let mut found = Vec::new();
        for mixture in &self.mixtures {
            let components = mixture.shape.components;
            let densities = rows.densities(mixture, context)?;
            let seen = || (0..densities.len()).filter(|&row| mixture.sees(rows.fold[row]));
            let weights = densities.weigh(seen(), &[]);
            let log_likelihood = seen().map(|row| densities.log_density(row, &weights)).sum();
            let mut by_fold = vec![(0, vec![0.0; components]); self.folds.count as usize];
            let mut products = vec![0.0; components * components];
            let mut posteriors = vec![0.0; components];
            for row in seen() {
                densities.posteriors(row, &mixture.params[mixture.shape.weights()], &mut posteriors);
                let (count, sums) = &mut by_fold[rows.fold[row]];
                *count += 1;
                crate::num::add_scaled(sums, 1.0, &posteriors);
                for (line, &posterior) in products.chunks_exact_mut(components).zip(&posteriors) {
                    crate::num::add_scaled(line, posterior, &posteriors);
                }
            }
            let mut weighed = Weighed { rows: seen().count() as u32, weights, log_likelihood, by_fold, products };
            // Components must not reveal fewer rows than an answer may be about.
            context.guard.minimum().into_iter().for_each(|least| weighed.withhold(least as f64));
            found.push(weighed);
        }
        Ok(context.reply(found, None))
    }

    fn fault(&self) -> Option<&'static str> {
        malformed(self.folds, self.mixtures.len())
    }

    fn implausible(&self, reply: &Reply, _: f64) -> Option<String> {
        reply.numbers.iter().any(|number| !number.is_finite()).then(|| "a weight that is not a number".to_string())
    }

    fn loss(&self, _: &Reply) -> Option<f64> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_rows_do_not_show() {
        let mut weighed = Weighed {
            rows: 20,
            weights: vec![0.9, 0.1],
            log_likelihood: -3.5,
            by_fold: vec![(10, vec![9.0, 1.0]), (10, vec![9.0, 1.0])],
            products: vec![18.0, 0.0, 0.0, 2.0],
        };
        weighed.withhold(2.0);
        assert_eq!(weighed.weights, [0.9, 0.1]);
        weighed.withhold(3.0);
        assert_eq!((&weighed.weights[..], &weighed.products[..]), (&[1.0, 0.0][..], &[18.0, 0.0, 0.0, 0.0][..]));
        assert_eq!(weighed.by_fold, [(10, vec![9.0, 0.0]), (10, vec![9.0, 0.0])]);
    }

    #[test]
    fn weights_travel_as_they_are() {
        let weighed = |rows: u32| Weighed {
            rows: 2 * rows,
            weights: vec![0.25, 0.75],
            log_likelihood: -3.5,
            by_fold: vec![(rows, vec![1.0, 2.0]), (rows, vec![3.0, 4.0])],
            products: vec![1.0, 2.0, 3.0, f64::from(rows)],
        };
        let sent = vec![weighed(3), weighed(7)];
        let (mut counts, mut numbers) = (Vec::new(), Vec::new());
        sent.clone().write(&mut counts, &mut numbers);
        assert_eq!(Vec::<Weighed>::read(&counts, &numbers), sent);
    }
}
