//! The clients' side of `own.rs`: moves of the vectors a client keeps, and answers to centres that pull at it.

use super::host::Host;
use super::own::{Acceleration, Advance, Answer, Blend, Pull, Respond, Run, Scale};
use super::wire::Reply;
use super::{Amount, Course, Optimiser, Plan, Portion, Start};
use crate::data::Shard;
use crate::error::{Error, Result};
use crate::hierarchy::response::Quadratic;
use crate::linalg::{add_scaled, dot, squared_distance};
use crate::models::{Model, Precision, Seat, Worker};
use crate::rng::Key;
use rand::RngExt;

/// Vectors a client may keep.
pub(super) const MOST_VECTORS: usize = 4;
/// Steps of Newton's method for one client's model, and halvings of one of them.
const NEWTON_STEPS: usize = 100;
const HALVINGS: usize = 40;

impl Host {
    /// Moves the vectors of one client and sends what is wanted of them.
    pub(super) fn advance(
        &self,
        worker: &mut dyn Worker,
        models: &[Vec<f64>],
        stamp: u64,
        advance: &Advance,
        client: u32,
    ) -> Result<Reply> {
        let seat = self.seat(client);
        let width = worker.width();
        let scale = advance.scale.of(seat.client.train.len());
        // An order that has been carried out already, or one that moves nothing, is answered from what was kept.
        let done = match advance.from {
            Start::Own { stamp } if advance.moves_nothing() => stamp,
            _ => stamp,
        };
        let (vectors, losses) = match self.kept_by(client, done) {
            Some(losses) => (self.take_vectors(client, done, advance.vectors)?, losses),
            None => {
                let mut vectors = match advance.from {
                    Start::Own { stamp } => self.take_vectors(client, stamp, advance.vectors)?,
                    Start::Model(model) => models[model].repeat(advance.vectors as usize),
                    Start::Fresh { .. } => return Err(Error::federation("vectors begin at a model, not afresh")),
                };
                if let Some(blend) = &advance.blend {
                    apply(blend, models, &mut vectors, width);
                }
                let steepness = vectors.chunks_exact(width).nth(3).map(|whole| dot(whole, whole));
                let loss = match &advance.run {
                    Some(run @ Run { acceleration: Some(pace), .. }) => {
                        accelerate(worker, &seat, run, pace, scale, &mut vectors)
                    }
                    Some(run) => descend(worker, &seat, run, scale, &mut vectors[..width]),
                    None => {
                        let own = worker.load(&vectors[..width]);
                        worker.loss(own, &seat.client.train)
                    }
                };
                if advance.anchor {
                    let (first, rest) = vectors.split_at_mut(2 * width);
                    let (anchor, gradient) = rest.split_at_mut(width);
                    anchor.copy_from_slice(&first[..width]);
                    worker.slope(anchor, &seat, None, gradient);
                    gradient.iter_mut().for_each(|value| *value *= scale);
                }
                // As they are kept: a repeated order must get the same answer.
                self.model()?.precision().round(&mut vectors);
                (vectors, std::iter::once(loss).chain(steepness).collect())
            }
        };
        let mut sent = Vec::with_capacity(advance.send.len() * width);
        for shares in &advance.send {
            let begin = sent.len();
            sent.resize(begin + width, 0.0);
            for (&share, vector) in shares.iter().zip(vectors.chunks_exact(width)).filter(|(share, _)| **share != 0.0) {
                add_scaled(&mut sent[begin..], share, vector);
            }
        }
        self.keep(client, stamp, &losses, vectors)?;
        let vector = (!advance.send.is_empty()).then_some(sent);
        Ok(Reply { rows: seat.client.train.len() as u32, losses, vector, ..Reply::default() })
    }

    /// Finds a client's best model under the pull of a centre, and says how the client answers to centres.
    pub(super) fn respond(
        &self,
        worker: &mut dyn Worker,
        models: &[Vec<f64>],
        stamp: u64,
        respond: &Respond,
        client: u32,
    ) -> Result<Reply> {
        let seat = self.seat(client);
        let rows = seat.rows(respond.on);
        let model = &**self.model()?;
        let at = |error: Error| error.at(format!("client {}", seat.client.id));
        let Respond { pull, send, scale, .. } = *respond;
        let centre = models[pull.centre].as_slice();
        let known = everywhere(model, &rows, scale).map_err(at)?;
        let own = match send {
            Answer::Quadratic => centre.to_vec(),
            _ => minimise_near(model, worker, &rows, scale, (pull.strength, centre), known.as_ref()).map_err(at)?,
        };
        let loss = mean_loss(worker, &own, &rows);
        let mut sent = Vec::new();
        if send != Answer::Nothing {
            let quadratic = match known {
                Some(quadratic) => quadratic,
                None => quadratic(model, &rows, &own, scale).map_err(at)?,
            };
            let singular = || at(no_minimiser());
            match send {
                Answer::Response => quadratic.respond(pull.strength).ok_or_else(singular)?.pack(&mut sent),
                Answer::ResponseAndSlope => {
                    let (mut response, mut slope) = quadratic.respond_with_slope(pull.strength).ok_or_else(singular)?;
                    if !model.is_quadratic() && !rows.is_empty() {
                        // The volume is of the curvature at the client's model, which follows the centre and the strength.
                        let spread = quadratic.covariance(pull.strength).ok_or_else(singular)?;
                        let towards = |vector: &[f64]| -> Vec<f64> {
                            spread.chunks_exact(own.len()).map(|row| dot(row, vector)).collect()
                        };
                        let scale = scale.of(rows.len());
                        let gradient = model.curvature_gradient(&rows, &own, scale, &spread).map_err(at)?;
                        let away: Vec<f64> = centre.iter().zip(&own).map(|(centre, own)| centre - own).collect();
                        slope.volume += 0.5 * dot(&gradient, &towards(&away));
                        let with_centre = towards(&gradient);
                        add_scaled(&mut response.moment, -0.5 * pull.strength, &with_centre);
                        response.energy -= 0.5 * pull.strength * dot(&with_centre, centre);
                    }
                    response.pack(&mut sent);
                    slope.pack(&mut sent);
                }
                Answer::Quadratic => quadratic.respond(f64::INFINITY).ok_or_else(singular)?.pack(&mut sent),
                Answer::Nothing => {}
            }
        }
        let losses = vec![loss, squared_distance(&own, centre)];
        if respond.keep {
            self.keep(client, stamp, &losses, own)?;
        }
        let vector = (!sent.is_empty()).then_some(sent);
        Ok(Reply { rows: seat.client.train.len() as u32, losses, vector, ..Reply::default() })
    }

    /// Losses on one fold of models learnt from the other folds; summed over the fold's rows and divided by all rows, so
    /// that the folds' answers add up to a mean.
    pub(super) fn validate(
        &self,
        worker: &mut dyn Worker,
        models: &[Vec<f64>],
        (trials, fold, of, scale): (&[Pull], u32, u32, Scale),
        client: u32,
    ) -> Result<Reply> {
        let seat = self.seat(client);
        let (learnt, held_out) =
            (seat.rows(Portion::Others { index: fold, of }), seat.rows(Portion::Fold { index: fold, of }));
        let share = held_out.len() as f64 / seat.client.train.len() as f64;
        let model = &**self.model()?;
        let at = |error: Error| error.at(format!("client {}", seat.client.id));
        let known = everywhere(model, &learnt, scale).map_err(at)?;
        let mut losses = Vec::with_capacity(trials.len());
        for trial in trials {
            let pull = (trial.strength, models[trial.centre].as_slice());
            let own = minimise_near(model, worker, &learnt, scale, pull, known.as_ref()).map_err(at)?;
            losses.push(share * mean_loss(worker, &own, &held_out));
        }
        Ok(Reply { rows: seat.client.train.len() as u32, losses, ..Reply::default() })
    }
}

/// vectors ← matrix · vectors + models.
fn apply(blend: &Blend, models: &[Vec<f64>], vectors: &mut [f64], width: usize) {
    let count = vectors.len() / width;
    for place in 0..width {
        let mut old = [0.0; MOST_VECTORS];
        (0..count).for_each(|vector| old[vector] = vectors[vector * width + place]);
        for (vector, shares) in blend.matrix.chunks_exact(count).enumerate() {
            vectors[vector * width + place] = shares.iter().zip(&old).map(|(share, old)| share * old).sum();
        }
    }
    for addend in &blend.add {
        let vector = &mut vectors[addend.to as usize * width..][..width];
        add_scaled(vector, addend.times, &models[addend.model]);
    }
}

/// Plain descent of the first vector. Returns the loss before the first step.
fn descend(worker: &mut dyn Worker, seat: &Seat, run: &Run, scale: f64, own: &mut [f64]) -> f64 {
    let plan = Plan {
        sample: run.sample.clone(),
        amount: Amount::Steps(run.steps),
        step: run.step * scale,
        optimiser: Optimiser::Descent { momentum: 0.0, weight_decay: 0.0 },
        pulls: Vec::new(),
        course: Course::PLAIN,
    };
    let start = worker.load(own);
    worker.train(start, seat, &plan, own)
}

/// Accelerated steps on (y, z, x, h). Returns the loss at the first point looked at.
fn accelerate(
    worker: &mut dyn Worker,
    seat: &Seat,
    run: &Run,
    pace: &Acceleration,
    scale: f64,
    vectors: &mut [f64],
) -> f64 {
    let width = worker.width();
    let rows = seat.client.train.len();
    let batch = run.sample.batch.map(|batch| batch as usize).filter(|&batch| batch < rows);
    let mut rng = batch.map(|_| Key::new(run.sample.seed).word("rows").word(&seat.client.id).rng());
    let mut picked: Vec<u32> = Vec::new();
    let [mut point, mut at_point, mut at_anchor] = [(); 3].map(|()| vec![0.0; width]);
    let (moving, fixed) = vectors.split_at_mut(2 * width);
    let (y, z) = moving.split_at_mut(width);
    let (anchor, whole) = fixed.split_at(width);
    if batch.is_none() {
        worker.slope(anchor, seat, None, &mut at_anchor);
    }
    let [a1, a2] = pace.a;
    let [b1, b2] = pace.b;
    let mut first_loss = f64::NAN;
    for step in 0..run.steps {
        for (((point, y), z), x) in point.iter_mut().zip(&*y).zip(&*z).zip(anchor) {
            *point = a1 * z + a2 * x + (1.0 - a1 - a2) * y;
        }
        let chosen = match (&mut rng, batch) {
            (Some(rng), Some(batch)) => {
                picked.clear();
                picked.extend((0..batch).map(|_| rng.random_range(0..rows as u32)));
                worker.slope(anchor, seat, Some(&picked), &mut at_anchor);
                Some(picked.as_slice())
            }
            _ => None,
        };
        let loss = worker.slope(&point, seat, chosen, &mut at_point);
        if step == 0 {
            first_loss = loss;
        }
        let factor = scale / pace.chance;
        for place in 0..width {
            let gradient = whole[place] + factor * (at_point[place] - at_anchor[place]);
            y[place] = point[place] - run.step * gradient;
            z[place] = b1 * z[place] + (1.0 - b1) * point[place] - b2 * gradient;
        }
    }
    first_loss
}

/// The mean loss on some rows, 0 on none.
fn mean_loss(worker: &mut dyn Worker, params: &[f64], rows: &Shard) -> f64 {
    if rows.is_empty() {
        return 0.0;
    }
    let model = worker.load(params);
    worker.loss(model, rows)
}

/// A client's loss in an objective, as a quadratic at one point; nothing on no rows.
fn quadratic(model: &dyn Model, rows: &Shard, at: &[f64], scale: Scale) -> Result<Quadratic> {
    if rows.is_empty() {
        return Ok(Quadratic { curvature: vec![0.0; at.len() * at.len()], moment: vec![0.0; at.len()], energy: 0.0 });
    }
    model.quadratic(rows, at, scale.of(rows.len()))
}

/// The quadratic of a loss that is one everywhere, found once for whatever is asked of it.
fn everywhere(model: &dyn Model, rows: &Shard, scale: Scale) -> Result<Option<Quadratic>> {
    let zero = || vec![0.0; model.layout().len()];
    model.is_quadratic().then(|| quadratic(model, rows, &zero(), scale)).transpose()
}

/// The minimiser of a client's loss under the pull of a centre: at once where the loss is a `known` quadratic, else by
/// Newton's method, halved where it overshoots.
fn minimise_near(
    model: &dyn Model,
    worker: &mut dyn Worker,
    rows: &Shard,
    scale: Scale,
    (strength, centre): (f64, &[f64]),
    known: Option<&Quadratic>,
) -> Result<Vec<f64>> {
    if strength == f64::INFINITY || rows.is_empty() {
        return Ok(centre.to_vec());
    }
    if strength == 0.0 {
        return model.minimise(rows, 0.0);
    }
    if let Some(quadratic) = known {
        return quadratic.minimiser(strength, centre).ok_or_else(no_minimiser);
    }
    // A gain this small, relatively, is lost in rounding.
    let below_rounding = if model.precision() == Precision::F32 { 1e-6 } else { 1e-12 };
    let mut own = centre.to_vec();
    let pull = |own: &[f64]| 0.5 * strength * squared_distance(own, centre);
    let mut objective = |own: &[f64]| scale.of(rows.len()) * mean_loss(worker, own, rows) + pull(own);
    let mut value = objective(&own);
    for _ in 0..NEWTON_STEPS {
        let quadratic = quadratic(model, rows, &own, scale)?;
        let target = quadratic.minimiser(strength, centre).ok_or_else(no_minimiser)?;
        let promised = value - quadratic.value(&target) - pull(&target);
        // What is promised below rounding cannot be seen to come true, but it is true all the same.
        if promised <= below_rounding * value.abs() {
            return Ok(target);
        }
        let mut share = 1.0;
        let lower = (0..HALVINGS).find_map(|_| {
            let next: Vec<f64> = own.iter().zip(&target).map(|(own, target)| own + share * (target - own)).collect();
            share *= 0.5;
            let now = objective(&next);
            (now < value).then_some((next, now))
        });
        match lower {
            Some(lower) => (own, value) = lower,
            None => break,
        }
    }
    Ok(own)
}

fn no_minimiser() -> Error {
    Error::data("its loss and the pull of its centre have no minimiser")
        .hint("are there numbers in the data that are not finite, or far too large?")
}
