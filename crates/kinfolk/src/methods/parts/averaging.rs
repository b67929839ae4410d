//! Means of what clients send: models after local steps, or gradients.

use super::super::*;

choices! {
    /// What clients send.
    pub enum Averaging { Models = "models", Gradients = "gradients" }
}

impl Averaging {
    /// Adds faults of settings that mean nothing to clients that send gradients.
    pub(in crate::methods) fn check(self, check: &mut Check) {
        if self == Averaging::Models {
            return;
        }
        for name in check.changed(&["local_steps", "local_epochs", "momentum", "optimiser", "weight_decay"]) {
            let hint = format!("leave {name} out, or use averaging = \"models\"");
            check.fault_with_hint(name, "averaging = \"gradients\" takes plain steps at the server", hint);
        }
    }
}

/// The mean of models summed up, with `unchanged` clients counting as the old model; the old model if nobody answered.
pub fn mean_model(old: &Params, sum: &Sum, unchanged: usize) -> Params {
    if sum.count == 0 {
        return old.clone();
    }
    let unchanged = unchanged as f64 * sum.weight / sum.count as f64;
    let whole = sum.weight + unchanged;
    Arc::new(sum.total.iter().zip(old.iter()).map(|(total, old)| (total + unchanged * old) / whole).collect())
}

pub fn plain_mean<'a>(models: impl Iterator<Item = &'a Params>) -> Params {
    let models: Vec<&Params> = models.collect();
    let mut mean = vec![0.0; models.first().map_or(0, |model| model.len())];
    models.iter().for_each(|model| add_scaled(&mut mean, 1.0 / models.len() as f64, model));
    Arc::new(mean)
}

/// The vectors that are finite, with their places among the answers.
pub fn finite_vectors(order: &OrderAnswers) -> impl Iterator<Item = (usize, &[f64])> {
    let vectors = (0..order.clients.len()).map(|place| (place, order.vector(place)));
    vectors.filter(|(_, vector)| vector.iter().all(|value| value.is_finite()))
}

/// Number of clients of a cluster whose answers are missing.
pub fn absent_from(cluster: usize, clusters: &Assignment, answers: &Answers) -> usize {
    answers.missing.iter().filter(|missing| clusters.of(missing.client) == Some(cluster)).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mean_with_absent_clients_by_hand() {
        let sum = Sum { total: vec![6.0], weight: 3.0, count: 3 };
        let old = Arc::new(vec![10.0]);
        assert_eq!(*mean_model(&old, &sum, 1), [4.0]);
        assert_eq!(*mean_model(&old, &sum, 0), [2.0]);
        assert_eq!(*mean_model(&old, &Sum::default(), 1), [10.0]);
    }
}
