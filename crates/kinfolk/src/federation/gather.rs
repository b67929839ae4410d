//! The server's side: single replies, in the order of the clients, into answers.

use super::wire::Reply;
use super::{Absence, Answers, Ask, By, Gather, Missing, OrderAnswers, Sum, Weight, Work};

/// Collects replies. They must come in ascending order of the clients.
pub(super) struct Gatherer<'a> {
    ask: &'a Ask,
    /// Parameters of a model.
    width: usize,
    answers: Answers,
}

/// How many slots the sum of an order has.
pub(super) fn slots(gather: Gather, work: &Work) -> usize {
    match gather {
        Gather::Sum { by: By::Choice, .. } => work.models().len(),
        _ => 1,
    }
}

impl<'a> Gatherer<'a> {
    pub(super) fn new(ask: &'a Ask, width: usize) -> Self {
        let orders = ask.orders.iter().map(|order| {
            let sums = match ask.gather {
                Gather::Sum { .. } if order.work.sends_vector() => slots(ask.gather, &order.work),
                _ => 0,
            };
            OrderAnswers { sums: vec![Sum::default(); sums], ..OrderAnswers::default() }
        });
        Self { ask, width, answers: Answers { orders: orders.collect(), ..Answers::default() } }
    }

    pub(super) fn missing(&mut self, client: u32, reason: Absence) {
        if self.answers.missing.last().is_none_or(|last| last.client != client) {
            self.answers.missing.push(Missing { client, reason });
        }
    }

    /// Takes one reply, or notes it as garbage.
    pub(super) fn take(&mut self, order: usize, client: u32, reply: Reply) {
        if !self.is_sound(order, &reply) {
            return self.missing(client, Absence::Garbage);
        }
        let answers = &mut self.answers.orders[order];
        answers.clients.push(client);
        answers.rows.push(reply.rows);
        answers.choices.extend(reply.choice);
        answers.losses.extend(reply.losses);
        answers.scores.extend(reply.score);
        answers.descriptions.extend(reply.description);
        let Some(vector) = reply.vector else { return };
        match self.ask.gather {
            Gather::Each => answers.vectors.extend(vector),
            Gather::Sum { by, weight } => {
                let slot = if by == By::Choice { reply.choice.unwrap_or(0) as usize } else { 0 };
                answers.sums[slot].add(weight.of(reply.rows as usize), &vector);
            }
        }
    }

    /// A reply that claims less or more than was asked, or is not finite, must not reach a method. Losses may be
    /// infinite: that is how a diverged model looks.
    fn is_sound(&self, order: usize, reply: &Reply) -> bool {
        let work = &self.ask.orders[order].work;
        let vector = reply.vector.as_ref().map_or(0, Vec::len) == work.sends(self.width);
        let finite = reply.vector.as_ref().is_none_or(|vector| vector.iter().all(|value| value.is_finite()));
        // A model that has blown up sends what it has; the method sees the loss and says so.
        let diverged = reply.losses.iter().any(|loss| !loss.is_finite());
        let has = match work {
            Work::Choose { .. } => reply.choice.is_some(),
            Work::Score { .. } => reply.choice.is_some() && reply.score.is_some(),
            Work::Describe { .. } => reply.description.is_some(),
            _ => true,
        };
        vector
            && (finite || diverged)
            && has
            && reply.losses.len() == work.losses()
            && reply.choice.is_none_or(|choice| choice < work.models().len().max(1) as u32)
            && reply.score.is_none_or(|score| score.hits.is_none_or(|hits| hits <= score.rows))
    }

    pub(super) fn finish(self, stamp: u64) -> Answers {
        Answers { stamp, ..self.answers }
    }

    /// Room for an engine that reduces while it computes.
    pub(super) fn order(&mut self, order: usize) -> &mut OrderAnswers {
        &mut self.answers.orders[order]
    }
}

impl Sum {
    /// Adds one vector.
    pub fn add(&mut self, weight: f64, vector: &[f64]) {
        self.total.resize(vector.len(), 0.0);
        crate::linalg::add_scaled(&mut self.total, weight, vector);
        self.weight += weight;
        self.count += 1;
    }

    /// Adds another sum.
    pub(crate) fn merge(&mut self, other: &Sum) {
        if other.count > 0 {
            self.total.resize(other.total.len(), 0.0);
            crate::linalg::add_scaled(&mut self.total, 1.0, &other.total);
            self.weight += other.weight;
            self.count += other.count;
        }
    }
}

/// What each answer of this ask counts.
pub(super) fn weight_of(gather: Gather) -> Weight {
    match gather {
        Gather::Sum { weight, .. } => weight,
        Gather::Each => Weight::Uniform,
    }
}
