//! The clients' mixtures as the server knows them.

use super::*;

#[derive(Default, Serialize, Deserialize)]
pub(in crate::methods) struct ClientFits {
    /// The ask after which each client last kept its mixture; 0 before its first fit.
    pub(in crate::methods) stamps: Vec<u64>,
    /// How each client's components are renamed with its next order; empty for no change.
    pub(super) relabel: Vec<Vec<u32>>,
    /// The centres of each client's fit, in the common order; empty before it.
    pub(in crate::methods) centres: Vec<Vec<f64>>,
    /// How rows scatter in the fits, on average.
    pub(in crate::methods) scatter: Vec<f64>,
    /// The smallest weight of every client's components.
    pub(super) smallest: Vec<f64>,
    /// Fits that were broken off.
    pub(super) unfinished: usize,
    /// Clients that did not answer when the result was delivered.
    pub(super) unserved: usize,
    /// The ids of clients with too few rows for a mixture of their own; empty for the others.
    pub(super) few_rows: Vec<String>,
}

impl ClientFits {
    pub(in crate::methods) fn new(clients: usize) -> Self {
        Self {
            stamps: vec![0; clients],
            relabel: vec![Vec::new(); clients],
            centres: vec![Vec::new(); clients],
            smallest: vec![1.0; clients],
            few_rows: vec![String::new(); clients],
            ..Self::default()
        }
    }

    /// The clients that have a mixture.
    pub(in crate::methods) fn clients(&self) -> impl Iterator<Item = u32> {
        (0u32..).zip(&self.stamps).filter(|(_, stamp)| **stamp > 0).map(|(client, _)| client)
    }

    pub(super) fn mean_centres(&self) -> Vec<f64> {
        let fitted: Vec<&Vec<f64>> = self.centres.iter().filter(|centres| !centres.is_empty()).collect();
        let mut mean = vec![0.0; fitted.first().map_or(0, |centres| centres.len())];
        fitted.iter().for_each(|centres| add_scaled(&mut mean, 1.0 / fitted.len() as f64, centres));
        mean
    }

    /// Notes who did what an ask wanted. One whose answer was garbage has done it all the same.
    pub(super) fn settle(&mut self, answers: &Answers, orders: &[Handle<Fitted>]) {
        for (client, stamp) in stamps_after(answers) {
            self.stamps[client as usize] = stamp;
            self.relabel[client as usize].clear();
        }
        for (client, fitted) in orders.iter().flat_map(|order| answers.of(*order).each().collect::<Vec<_>>()) {
            self.smallest[client as usize] = fitted.smallest_weight;
        }
    }

    /// Whether everybody has a mixture and answered: only then does it mean something that nothing moves.
    pub(in crate::methods) fn is_complete(&self, answers: &Answers) -> bool {
        let has = |(stamp, few_rows): (&u64, &String)| *stamp > 0 || !few_rows.is_empty();
        answers.missing.is_empty() && self.stamps.iter().zip(&self.few_rows).all(has)
    }

    pub(super) fn notes(&self, training: &MixtureTraining) -> Vec<String> {
        let mut notes = Vec::new();
        let few: Vec<&str> = self.few_rows.iter().map(String::as_str).filter(|id| !id.is_empty()).collect();
        if !few.is_empty() {
            notes.push(format!(
                "{} with fewer rows than the {} that a mixture of its own needs, left out: {}",
                counted(few.len(), "client"),
                training.least_rows,
                names(&few)
            ));
        }
        let unfitted = self.stamps.iter().filter(|stamp| **stamp == 0).count() - few.len();
        let empty = self.smallest.iter().zip(&training.rows).filter(|(weight, rows)| **weight * **rows < 0.5).count();
        let unserved = " did not answer when the result was handed over: what they last had serves them";
        for (count, before, after) in [
            (unfitted, "", " never fitted a mixture"),
            (self.unserved, "", unserved),
            (self.unfinished, "the own fit of ", " was broken off; start_iterations gives it more time"),
            (empty, "", EMPTY_COMPONENT),
        ] {
            notes.extend((count > 0).then(|| format!("{before}{}{after}", counted(count, "client"))));
        }
        notes.extend(whitening::notes(&training.fit.shape, &self.scatter, &training.shape));
        notes
    }
}

/// What a note says of those that have a component without rows.
pub(super) const EMPTY_COMPONENT: &str =
    " with a component that none of the rows is in: is the number of components right, and the scale of the data?";
