//! Clients on a device, and whole orders for them.

use crate::device::Device;
use crate::engine::{Look, Model, Recipe, Training};
use crate::gram::Steps;
use crate::meeting::{Shared, first_smallest, narrowed, training};
use kinfolk::aggregate::{By, Sum, Weight};
use kinfolk::compute::{Batch, Computed, Job, Roster, Sums, Threads};
use kinfolk::models::{Choice, Choosing, Course, Found, Packed, Reduced, Score, Step, course_of};
use kinfolk::training::{Amount, Portion, Split, Then};
use kinfolk::{Client, Result, Shard};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Clients on a device. What they keep lies in this computer's memory.
pub(crate) struct CudaRoster {
    threads: Arc<Threads>,
    shared: Arc<Shared>,
    device: Arc<Device>,
    kept: Vec<Mutex<Option<Packed>>>,
}

impl CudaRoster {
    pub(crate) fn new(threads: Arc<Threads>, shared: Arc<Shared>, device: Arc<Device>) -> Self {
        let kept = threads.clients().iter().map(|_| Mutex::default()).collect();
        Self { threads, shared, device, kept }
    }

    fn kept(&self, client: u32) -> MutexGuard<'_, Option<Packed>> {
        self.kept[client as usize].lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn client(&self, client: u32) -> &Client {
        &self.threads.clients()[client as usize]
    }

    /// The mean losses of these models on some rows of each of these clients, which all have some.
    fn losses(&self, models: &Models, of: &[usize], rows: &[(u32, Vec<u32>)], batch: &Batch) -> Result<Vec<Vec<f64>>> {
        let look = |rows: &Vec<u32>, &model: &usize| Look { model: models.get(model), rows: rows.clone() };
        let looks: Vec<Look> =
            rows.iter().flat_map(|(_, rows)| of.iter().map(move |model| look(rows, model))).collect();
        let seen = self.shared.engine().look(&looks, false, batch.stop)?;
        let mean = |(seen, look): (&crate::engine::Seen, &Look)| seen.loss / look.rows.len() as f64;
        let means: Vec<f64> = seen.iter().zip(&looks).map(mean).collect();
        Ok(means.chunks(of.len().max(1)).map(<[f64]>::to_vec).collect())
    }

    /// Rows of a portion of a client's training rows on the device.
    fn portion(&self, client: u32, on: Portion) -> Vec<u32> {
        let seat = self.threads.seat_of(client);
        let begin = self.shared.engine().rows().begin(&seat.client.train);
        begin.map_or_else(Vec::new, |begin| seat.places(on).into_iter().map(|row| begin + row).collect())
    }

    fn shard(&self, rows: &Shard) -> Vec<u32> {
        self.shared.engine().rows().of(rows).unwrap_or_default()
    }

    /// Those of a job's clients that have rows to compute on; the others answer from a thread.
    fn with_rows(
        &self,
        batch: &Batch,
        (index, job): (usize, &Job),
        rows: impl Fn(u32) -> Vec<u32>,
        found: &mut Vec<(u32, Found)>,
    ) -> Vec<(u32, Vec<u32>)> {
        let _ = index;
        let mut all = Vec::with_capacity(job.to.len());
        for &client in &job.to {
            let own = rows(client);
            if own.is_empty() {
                found.push((client, self.threads.find(batch.models, &job.step, client)));
            } else {
                all.push((client, own));
            }
        }
        all
    }

    fn run_losses(&self, batch: &Batch, models: &Models, job: (usize, &Job), take: Take) -> Result<()> {
        let Step::Losses { of, on } = &job.1.step else { return Ok(()) };
        let mut found = Vec::new();
        let rows = self.with_rows(batch, job, |client| self.portion(client, *on), &mut found);
        let losses = self.losses(models, of, &rows, batch)?;
        found.extend(rows.iter().zip(losses).map(|((client, _), losses)| (*client, Found::Losses(losses))));
        give(job.0, found, take);
        Ok(())
    }

    fn run_score(&self, batch: &Batch, models: &Models, job: (usize, &Job), take: Take) -> Result<()> {
        let Step::Score { among, assign_on, compare } = &job.1.step else { return Ok(()) };
        let deciding = |client: u32| {
            let Client { train, test, .. } = self.client(client);
            self.shard(if *assign_on == Split::Test && !test.is_empty() { test } else { train })
        };
        let mut found = Vec::new();
        let rows = self.with_rows(batch, job, deciding, &mut found);
        let losses = self.losses(models, among, &rows, batch)?;
        let choices: Vec<Choice> = losses.iter().map(|losses| first_smallest(losses)).collect();
        let scored: Vec<usize> = (0..rows.len()).filter(|&i| !self.client(rows[i].0).test.is_empty()).collect();
        let look = |&i: &usize| Look {
            model: models.get(among[choices[i].position]),
            rows: self.shard(&self.client(rows[i].0).test),
        };
        let looks: Vec<Look> = scored.iter().map(look).collect();
        let seen = self.shared.engine().look(&looks, false, batch.stop)?;
        let mut scores = vec![Score::default(); rows.len()];
        for ((i, seen), look) in scored.into_iter().zip(seen).zip(&looks) {
            scores[i] = Score { rows: look.rows.len() as u32, loss: seen.loss, hits: Some(seen.hits) };
        }
        for (((client, _), choice), (losses, score)) in rows.iter().zip(&choices).zip(losses.into_iter().zip(scores)) {
            let told = if *compare { losses } else { vec![choice.loss] };
            found.push((*client, Found::Score(choice.position, told, score)));
        }
        give(job.0, found, take);
        Ok(())
    }

    fn run_choose(&self, batch: &Batch, models: &Models, job: (usize, &Job), take: Take) -> Result<()> {
        let Step::Choose(step) = &job.1.step else { return Ok(()) };
        let mut found = Vec::new();
        let on = match &*step.then {
            Then::Nothing => step.on,
            Then::Gradient(sample) => sample.on,
            Then::Train(plan) => plan.sample.on,
        };
        // Both the rows that decide and those of the steps must be there.
        let decides = step.among.len() > 1 || *step.then == Then::Nothing;
        let rows = |client: u32| {
            let own = self.portion(client, step.on);
            if own.is_empty() || (on != step.on && self.portion(client, on).is_empty()) { Vec::new() } else { own }
        };
        let rows = self.with_rows(batch, job, rows, &mut found);
        if let Some(reduced) = self.run_by_gram(batch, models, (job.0, step), &rows)? {
            give(job.0, found, take);
            let clients = rows.iter().map(|(client, _)| *client).collect();
            take(job.0, Computed::Sums(clients, reduced));
            return Ok(());
        }
        let choices: Vec<Choice> = if decides {
            self.losses(models, step.among, &rows, batch)?.iter().map(|losses| first_smallest(losses)).collect()
        } else {
            vec![Choice { position: 0, loss: f64::NAN }; rows.len()]
        };
        let sums = batch.sums.as_ref().filter(|_| *step.then != Then::Nothing);
        if *step.then == Then::Nothing {
            found.extend(rows.iter().zip(choices).map(|((client, _), choice)| (*client, Found::Choice(choice, None))));
            give(job.0, found, take);
            return Ok(());
        }
        // Who has no rows here answers alone, before the sums of all others.
        give(job.0, found, take);
        let make =
            |((client, _), choice): (&(u32, Vec<u32>), &Choice)| self.training_of(models, step, *client, *choice);
        let trainings: Vec<Training> = rows.iter().zip(&choices).filter_map(make).collect();
        let clients: Vec<u32> = rows.iter().map(|(client, _)| *client).collect();
        let told = |choice: &Choice, first: f64| {
            if step.among.len() == 1 { Choice { loss: first, ..*choice } } else { *choice }
        };
        let block = self.shared.engine().block(&trainings);
        for (begin, trainings) in (0..).step_by(block).zip(trainings.chunks(block)) {
            let (clients, choices) = (&clients[begin..], &choices[begin..]);
            let mut engine = self.shared.engine();
            let Then::Train(plan) = &*step.then else {
                let (losses, vectors) = engine.gradients(trainings)?;
                let found = losses.into_iter().zip(vectors.each());
                for ((client, choice), (loss, vector)) in clients.iter().zip(choices).zip(found) {
                    let found = Found::Choice(told(choice, loss), Some(vector.iter().collect()));
                    take(job.0, Computed::Single(*client, found));
                }
                continue;
            };
            let Some(recipe) = Recipe::of(plan) else { continue };
            let trained = engine.train(trainings, &recipe, batch.stop)?;
            let clients = &clients[..trainings.len()];
            let choices: Vec<Choice> =
                choices.iter().zip(&trained.losses).map(|(choice, &loss)| told(choice, loss)).collect();
            if let Some(sums) = sums {
                let reduced = self.reduce(&mut engine, &trained, step, (clients, &choices), sums)?;
                if (sums.plausible)(job.0, &reduced) {
                    take(job.0, Computed::Sums(clients.to_vec(), reduced));
                    continue;
                }
            }
            for ((client, choice), vector) in clients.iter().zip(choices).zip(engine.vectors(&trained)?.each()) {
                take(job.0, Computed::Single(*client, Found::Choice(choice, Some(vector.iter().collect()))));
            }
        }
        Ok(())
    }

    /// Choices, training and sums in the space of the rows, where all that is possible: sums of plain steps on all rows, of clients with
    /// as many rows each.
    fn run_by_gram(
        &self,
        batch: &Batch,
        models: &Models,
        (index, step): (usize, &Choosing),
        rows: &[(u32, Vec<u32>)],
    ) -> Result<Option<Reduced>> {
        let (Some(sums), Then::Train(plan)) = (&batch.sums, &*step.then) else { return Ok(None) };
        let count = rows.first().map_or(0, |(_, rows)| rows.len());
        let whole = step.on == Portion::All
            && plan.sample.on == Portion::All
            && plan.sample.batch.is_none_or(|batch| batch as usize >= count)
            && rows.iter().all(|(_, rows)| rows.len() == count)
            && (sums.summing.by == By::Choice || step.among.len() == 1);
        let Some(length) = Recipe::of(plan).and_then(|recipe| recipe.plain_step()).filter(|_| whole) else {
            return Ok(None);
        };
        let mut engine = self.shared.engine();
        let Some(shape) = engine.gram_shape(count, rows.len(), step.among.len()) else { return Ok(None) };
        let (Amount::Steps(steps) | Amount::Epochs(steps)) = plan.amount;
        let among: Vec<Model> = step.among.iter().map(|&model| models.get(model)).collect();
        let weigh = |(client, _): &(u32, Vec<u32>)| match sums.summing.weight {
            Weight::Rows => self.client(*client).train.len() as f64,
            Weight::Uniform => 1.0,
        };
        let weights: Vec<f64> = rows.iter().map(weigh).collect();
        let learned = engine.train_by_gram(shape, rows, &among, Steps { count: steps, length }, &weights)?;
        let of = |model: usize| {
            let chosen = || learned.choices.iter().zip(&weights).filter(move |(choice, _)| **choice as usize == model);
            (chosen().map(|(_, weight)| weight).sum(), chosen().count())
        };
        let counted: Vec<(f64, usize)> = (0..among.len()).map(of).collect();
        let slots = learned.totals.into_iter().zip(counted);
        let sums_of = slots.map(|(total, (weight, count))| Sum { total, weight, count }).collect();
        let reduced = Reduced { sums: sums_of, choices: learned.choices, losses: learned.losses };
        // What is not plausible is computed one by one.
        Ok((sums.plausible)(index, &reduced).then_some(reduced))
    }

    /// What a client does after its choice.
    fn training_of(&self, models: &Models, step: &Choosing, client: u32, choice: Choice) -> Option<Training> {
        let (start, seat) = (models.get(step.among[choice.position]), self.threads.seat_of(client));
        let begin = self.shared.engine().rows().begin(&seat.client.train)?;
        let id = &seat.client.id;
        match &*step.then {
            Then::Nothing => None,
            Then::Gradient(sample) => {
                training(&start, begin, &seat, sample.on, |rows| Course::of_gradient(sample, rows, id))
            }
            Then::Train(plan) => {
                let made = training(&start, begin, &seat, plan.sample.on, |rows| course_of(plan, rows, id))?;
                let centres = plan.terms.pulls.iter().map(|pull| models.get(pull.centre)).collect();
                Some(Training { centres, tilt: plan.terms.tilt().map(|tilt| models.get(tilt)), ..made })
            }
        }
    }

    /// Sums over clients, formed on the device.
    fn reduce(
        &self,
        engine: &mut crate::engine::Engine,
        trained: &crate::engine::Trained,
        step: &Choosing,
        (clients, choices): (&[u32], &[Choice]),
        sums: &Sums,
    ) -> Result<Reduced> {
        let by_choice = sums.summing.by == By::Choice;
        let mut reduced = Reduced {
            choices: choices.iter().map(|choice| choice.position as u32).collect(),
            losses: choices.iter().map(|choice| choice.loss).collect(),
            sums: Vec::new(),
        };
        for slot in 0..if by_choice { step.among.len() } else { 1 } {
            let of: Vec<usize> = (0..clients.len()).filter(|&i| !by_choice || choices[i].position == slot).collect();
            let weigh = |&i: &usize| match sums.summing.weight {
                Weight::Rows => self.client(clients[i]).train.len() as f64,
                Weight::Uniform => 1.0,
            };
            let weights: Vec<f64> = of.iter().map(weigh).collect();
            let total = if of.is_empty() { Vec::new() } else { engine.sum(trained, &of, &weights)? };
            reduced.sums.push(Sum { total, weight: weights.iter().sum(), count: of.len() });
        }
        Ok(reduced)
    }
}

type Take<'t> = &'t mut (dyn FnMut(usize, Computed) + Send);

/// Single findings of a job, by client.
fn give(job: usize, mut found: Vec<(u32, Found)>, take: Take) {
    found.sort_by_key(|(client, _)| *client);
    found.into_iter().for_each(|(client, found)| take(job, Computed::Single(client, found)));
}

/// The models of a batch at the device's precision, each made once.
struct Models<'a> {
    given: &'a [&'a [f64]],
    made: Mutex<HashMap<usize, Model>>,
}

impl Models<'_> {
    fn get(&self, index: usize) -> Model {
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        made.entry(index).or_insert_with(|| narrowed(self.given[index])).clone()
    }
}

impl Roster for CudaRoster {
    fn takes(&self, step: &Step) -> bool {
        match step {
            Step::Losses { .. } | Step::Score { .. } => true,
            Step::Choose(step) => match &*step.then {
                Then::Nothing | Then::Gradient(_) => true,
                Then::Train(plan) => Recipe::of(plan).is_some(),
            },
        }
    }

    fn run(&mut self, batch: &Batch, take: &mut (dyn FnMut(usize, Computed) + Send)) -> Result<()> {
        self.device.bind()?;
        let models = Models { given: batch.models, made: Mutex::default() };
        for job in batch.jobs.iter().enumerate() {
            match job.1.step {
                Step::Losses { .. } => self.run_losses(batch, &models, job, take)?,
                Step::Score { .. } => self.run_score(batch, &models, job, take)?,
                Step::Choose(_) => self.run_choose(batch, &models, job, take)?,
            }
        }
        Ok(())
    }

    fn export(&self, client: u32) -> Option<Packed> {
        self.kept(client).clone()
    }

    fn take(&self, client: u32) -> Option<Packed> {
        self.kept(client).take()
    }

    fn import(&self, client: u32, vectors: Packed) {
        *self.kept(client) = Some(vectors);
    }

    fn afresh(&self) -> Box<dyn Roster> {
        Box::new(Self::new(self.threads.clone(), self.shared.clone(), self.device.clone()))
    }

    fn notes(&self) -> Vec<String> {
        let elsewhere = self.shared.elsewhere();
        elsewhere.iter().map(|what| format!("computed on this computer's threads, not on the device: {what}")).collect()
    }
}
