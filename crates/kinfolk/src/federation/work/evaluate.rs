//! How well a client is served, on held-out rows.

use super::*;
use crate::data::Shard;
use crate::federation::Slot;
use crate::models::{Score, Step, first_smallest};
use crate::num::add_scaled;
use crate::training::Split;

/// The metric on held-out rows of the model with the smallest loss.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Evaluate {
    /// Candidates, or the client's own model.
    pub with: Subject,
    /// Which rows decide between candidates.
    pub assign_on: Split,
    /// Whether the loss of every candidate is wanted, not only that of the best.
    pub compare: bool,
}

impl Evaluate {
    fn as_step<'s>(&self, among: &'s [usize]) -> Step<'s> {
        Step::Score { among, assign_on: self.assign_on, compare: self.compare }
    }

    /// Number of losses in the answer.
    fn losses(&self) -> usize {
        if self.compare { self.with.count() } else { 1 }
    }
}

/// What is evaluated.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Subject {
    /// The best of these models.
    Models(Vec<usize>),
    /// The client's own model with this stamp.
    Own {
        /// The stamp the client's state must carry.
        stamp: u64,
    },
    /// The same with a model of the ask in place of its first parameters.
    Completed {
        /// The model.
        model: usize,
        /// The stamp the client's state must carry.
        stamp: u64,
    },
    /// A mixture of these models, as they predict.
    Mixture {
        /// The models.
        models: Vec<usize>,
        /// How much of each; they sum to 1.
        shares: Vec<f64>,
    },
    /// The minimiser of the client's own loss.
    Alone,
}

impl Subject {
    pub(super) fn models(&self) -> &[usize] {
        match self {
            Subject::Models(models) | Subject::Mixture { models, .. } => models,
            Subject::Completed { model, .. } => std::slice::from_ref(model),
            Subject::Own { .. } | Subject::Alone => &[],
        }
    }

    pub(super) fn stamp(&self) -> Option<u64> {
        match self {
            Subject::Own { stamp } | Subject::Completed { stamp, .. } => Some(*stamp),
            Subject::Models(_) | Subject::Mixture { .. } | Subject::Alone => None,
        }
    }

    fn count(&self) -> usize {
        if let Subject::Models(models) = self { models.len() } else { 1 }
    }
}

/// How well a client is served.
#[derive(Debug, Clone, PartialEq)]
pub struct Evaluated {
    /// The place of the best candidate.
    pub choice: u32,
    /// The loss of every candidate on the rows that decide, or that of the best alone.
    pub losses: Vec<f64>,
    /// The best candidate's score on held-out rows.
    pub score: Score,
}

impl Evaluated {
    /// The loss of the best candidate.
    pub(crate) fn loss(&self) -> f64 {
        if let [best] = self.losses[..] { best } else { self.losses[self.choice as usize] }
    }
}

/// Numbers of an answer that are added up where nothing of a single client leaves.
const SCORES: usize = 8;

/// The scores of several clients, added up.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Scored {
    /// Number of clients.
    pub clients: usize,
    /// Σ of the loss of each one's best candidate.
    pub loss: f64,
    /// Clients with held-out rows.
    pub scored: f64,
    /// Held-out rows.
    pub rows: f64,
    /// Σ of losses over all held-out rows, and Σ over clients of the mean of theirs.
    pub row_losses: (f64, f64),
    /// Clients that count hits.
    pub counted: f64,
    /// Σ of hits over all held-out rows, and Σ over clients of the share of theirs.
    pub hits: (f64, f64),
}

impl Scored {
    /// From what is known of a slot.
    pub(crate) fn of(slot: &Slot) -> Self {
        let [loss, scored, rows, sum, means, counted, hits, shares] =
            slot.numbers.first_chunk().copied().unwrap_or([0.0; SCORES]);
        Self { clients: slot.count, loss, scored, rows, row_losses: (sum, means), counted, hits: (hits, shares) }
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        self.clients += other.clients;
        self.loss += other.loss;
        self.scored += other.scored;
        self.rows += other.rows;
        self.row_losses = (self.row_losses.0 + other.row_losses.0, self.row_losses.1 + other.row_losses.1);
        self.counted += other.counted;
        self.hits = (self.hits.0 + other.hits.0, self.hits.1 + other.hits.1);
    }
}

impl Answer for Evaluated {
    fn read(counts: &[u32], numbers: &[f64]) -> Self {
        let (&loss, losses) = numbers.split_last().unwrap_or((&0.0, &[]));
        let score = Score { rows: counts[1], loss, hits: counts[2].checked_sub(1) };
        Self { choice: counts[0], losses: losses.to_vec(), score }
    }

    fn write(self, counts: &mut Vec<u32>, numbers: &mut Vec<f64>) {
        counts.extend([self.choice, self.score.rows, self.score.hits.map_or(0, |hits| hits.saturating_add(1))]);
        numbers.extend(self.losses);
        numbers.push(self.score.loss);
    }
}

/// How well a mixture of models predicts: its mean, or its probabilities of the classes.
fn score_mixture(context: &ClientContext, models: &[usize], shares: &[f64], rows: &Shard) -> Result<Score> {
    let mut score = Score { rows: rows.len() as u32, ..Score::default() };
    if rows.is_empty() {
        return Ok(score);
    }
    let mut mixed = Vec::new();
    for (&model, &share) in models.iter().zip(shares) {
        let said = context.model().expectations(&context.models[model], rows)?;
        mixed.resize(said.len(), 0.0);
        add_scaled(&mut mixed, share, &said);
    }
    let width = mixed.len() / rows.len();
    match (rows.classes(), rows.values()) {
        (Some(classes), _) => {
            for (chances, &class) in mixed.chunks_exact(width).zip(classes) {
                let best = first_smallest(chances.iter().map(|chance| -chance)).position;
                let chance = chances.get(class as usize).copied().unwrap_or(0.0);
                score.loss -= chance.max(1e-300).ln();
                *score.hits.get_or_insert(0) += u32::from(best == class as usize);
            }
        }
        (None, Some(values)) => {
            score.loss = mixed.iter().zip(values).map(|(mean, value)| (mean - value) * (mean - value)).sum();
        }
        (None, None) => {}
    }
    Ok(score)
}

impl Telling for Evaluate {
    const TELLS: Tells = Tells::numbers("its losses with the models that are scored, on training and on held-out rows")
        .with_counts("which model suits it best, its held-out rows, and how many of them are predicted right");
}

impl Kind for Evaluate {
    fn needs(&self) -> Needs<'_> {
        Needs::new(self.with.models(), Capability::Any).stamp(self.with.stamp())
    }

    fn sends(&self, _: usize) -> Sends {
        Sends::numbers(self.losses() + 1).with_counts(3)
    }

    fn cost(&self, load: &Load) -> Cost {
        match &self.with {
            Subject::Alone => load.solves(1.0),
            _ => load.looks(self.with.count() as f64, self.losses()),
        }
    }

    fn carry_out(&self, context: &mut ClientContext) -> Result<Reply> {
        let client = context.client();
        let candidates = match &self.with {
            Subject::Mixture { models, shares } => {
                let of = |rows: &Shard| score_mixture(context, models, shares, rows);
                let deciding =
                    if self.assign_on == Split::Test && !client.test.is_empty() { &client.test } else { &client.train };
                let loss = of(deciding)?;
                let score = of(&client.test)?;
                if score.rows > 0 {
                    context.guard.enough("a score", f64::from(score.rows))?;
                }
                let losses = vec![loss.loss / f64::from(loss.rows.max(1))];
                return Ok(context.reply(Evaluated { choice: 0, losses, score }, None));
            }
            Subject::Models(models) => models.clone(),
            Subject::Own { stamp } => vec![context.worker.load(&context.own_model(*stamp)?)],
            Subject::Completed { model, stamp } => vec![context.worker.load(&context.completed_model(*model, *stamp)?)],
            Subject::Alone => {
                let alone = context.model().want_convex()?.minimise(&client.train, 0.0).map_err(context.naming())?;
                vec![context.worker.load(&alone)]
            }
        };
        let found = context.find(self.as_step(&candidates))?;
        // Code of the user's own may hold out fewer rows than it says.
        if let Found::Score(_, _, score) = &found
            && score.rows > 0
        {
            context.guard.enough("a score", f64::from(score.rows))?;
        }
        Ok(Reply::of(client.train.len() as u32, found, false))
    }

    fn step(&self) -> Option<Step<'_>> {
        let Subject::Models(models) = &self.with else { return None };
        Some(self.as_step(models))
    }

    fn fault(&self) -> Option<&'static str> {
        if let Subject::Mixture { models, shares } = &self.with
            && (models.is_empty() || models.len() != shares.len())
        {
            return Some("has no share for every model");
        }
        (self.with.count() == 0).then_some("has no model to work with")
    }

    fn implausible(&self, reply: &Reply, least_loss: f64) -> Option<String> {
        let Evaluated { choice, losses, score } = Evaluated::read(&reply.counts, &reply.numbers);
        if let Some(fault) = reply::below(&losses, least_loss) {
            return Some(fault);
        }
        if choice as usize >= self.with.count() {
            return Some("no choice among the models it was sent".into());
        }
        if score.hits.is_some_and(|hits| hits > score.rows) {
            return Some(format!("a score with more hits than its {} rows", score.rows));
        }
        let impossible = score.loss < (least_loss - reply::ROUNDING) * f64::from(score.rows);
        impossible.then(|| format!("{:.1e} for a score, which cannot be", score.loss))
    }

    fn summable(&self) -> Option<usize> {
        Some(SCORES)
    }

    fn to_sum<'r>(&self, reply: &'r Reply) -> Cow<'r, [f64]> {
        let evaluated = Evaluated::read(&reply.counts, &reply.numbers);
        let (loss, Score { rows, loss: sum, hits }) = (evaluated.loss(), evaluated.score);
        let is_scored = f64::from(u32::from(rows > 0));
        let (count, counted) = (f64::from(rows), f64::from(u32::from(hits.is_some() && rows > 0)));
        let hits = f64::from(hits.unwrap_or(0));
        let of_row = |value: f64| if rows > 0 { value / count } else { 0.0 };
        Cow::from(vec![loss, is_scored, count, sum, of_row(sum), counted, hits, of_row(hits)])
    }

    fn loss(&self, reply: &Reply) -> Option<f64> {
        let Evaluated { losses, score, .. } = Evaluated::read(&reply.counts, &reply.numbers);
        let mean = score.loss / f64::from(score.rows.max(1));
        reply::best(&losses).into_iter().chain([mean]).reduce(reply::larger)
    }

    fn scores(&self) -> bool {
        true
    }
}
