//! Workers that let a device compute: requests wait until every thread has one, and are carried out together.
//!
//! Work that an engine knows nothing of (a client's own model, several trainings one after another) runs on a thread for every
//! client; wherever it trains or looks at losses, its worker puts a request here. The last one to come carries all out.

use crate::engine::{Engine, Look, Model, Recipe, Seen, Training, Vector};
use kinfolk::compute::Helper;
use kinfolk::models::{Choice, Course, Model as AnyModel, Score, Seat, Worker, course_of};
use kinfolk::panics::contained;
use kinfolk::training::{Plan, Portion, Sample};
use kinfolk::{Error, Result, Shard};
use std::collections::BTreeSet;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// The device as all that compute with it share it.
pub(crate) struct Shared {
    engine: Mutex<Engine>,
    /// What ran on this computer's threads.
    elsewhere: Mutex<BTreeSet<&'static str>>,
}

impl Shared {
    pub(crate) fn new(engine: Engine) -> Self {
        Self { engine: Mutex::new(engine), elsewhere: Mutex::default() }
    }

    pub(crate) fn engine(&self) -> MutexGuard<'_, Engine> {
        self.engine.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Remembers that some work ran on this computer's threads.
    pub(crate) fn ran_elsewhere(&self, what: &'static str) {
        self.elsewhere.lock().unwrap_or_else(PoisonError::into_inner).insert(what);
    }

    pub(crate) fn elsewhere(&self) -> Vec<&'static str> {
        self.elsewhere.lock().unwrap_or_else(PoisonError::into_inner).iter().copied().collect()
    }
}

/// What a worker asks for.
enum Request {
    Train(Training, Recipe),
    Look(Vec<Look>, bool),
    Gradient(Training),
}

/// What it gets.
enum Answer {
    Trained(f64, Vector),
    Seen(Vec<Seen>),
}

#[derive(Default)]
struct Waiting {
    /// Threads that work or wait.
    present: usize,
    /// Of those that wait their requests, and then the answers to them.
    requests: Vec<Option<Request>>,
    answers: Vec<Option<Result<Answer>>>,
    /// Whether answers are being found.
    busy: bool,
    /// Answers that nobody has taken yet.
    left: usize,
}

/// Where workers meet.
pub(crate) struct Meeting {
    shared: Arc<Shared>,
    waiting: Mutex<Waiting>,
    changed: Condvar,
    /// Itself, for its workers.
    own: std::sync::Weak<Meeting>,
}

impl Meeting {
    pub(crate) fn new(shared: Arc<Shared>) -> Arc<Self> {
        Arc::new_cyclic(|own| Self { shared, waiting: Mutex::default(), changed: Condvar::new(), own: own.clone() })
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ask(&self, request: Request) -> Result<Answer> {
        let mut waiting = self.waiting();
        // Who comes late waits until all have their answers.
        while waiting.left > 0 || waiting.busy {
            waiting = self.changed.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
        let place = waiting.requests.len();
        waiting.requests.push(Some(request));
        loop {
            if waiting.left > 0
                && let Some(answer) = waiting.answers.get_mut(place).and_then(Option::take)
            {
                waiting.left -= 1;
                if waiting.left == 0 {
                    waiting.answers.clear();
                    self.changed.notify_all();
                }
                return answer;
            }
            if !waiting.busy && waiting.left == 0 && waiting.requests.len() >= waiting.present {
                waiting.busy = true;
                let requests: Vec<Request> = std::mem::take(&mut waiting.requests).into_iter().flatten().collect();
                drop(waiting);
                // A bug must not leave the others waiting.
                let count = requests.len();
                let answers = contained(|| Ok(self.carry_out(requests))).unwrap_or_else(|error| {
                    (0..count).map(|_| Err(Error::new(error.kind(), error.to_string()))).collect()
                });
                waiting = self.waiting();
                waiting.busy = false;
                waiting.left = answers.len();
                waiting.answers = answers.into_iter().map(Some).collect();
                self.changed.notify_all();
                continue;
            }
            waiting = self.changed.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// The answers to requests, in their order. What is alike is done at once.
    fn carry_out(&self, requests: Vec<Request>) -> Vec<Result<Answer>> {
        let stop = AtomicBool::new(false);
        let mut engine = self.shared.engine();
        let mut answers: Vec<Option<Result<Answer>>> = requests.iter().map(|_| None).collect();
        let mut trainings: Vec<(Recipe, Vec<(usize, Training)>)> = Vec::new();
        let mut gradients: Vec<(usize, Training)> = Vec::new();
        let mut looks: [Vec<(usize, Vec<Look>)>; 2] = Default::default();
        for (place, request) in requests.into_iter().enumerate() {
            match request {
                Request::Train(training, recipe) => match trainings.iter_mut().find(|(known, _)| *known == recipe) {
                    Some((_, all)) => all.push((place, training)),
                    None => trainings.push((recipe, vec![(place, training)])),
                },
                Request::Look(wanted, each) => looks[usize::from(each)].push((place, wanted)),
                Request::Gradient(training) => gradients.push((place, training)),
            }
        }
        for (recipe, all) in trainings {
            let (places, trainings): (Vec<usize>, Vec<Training>) = all.into_iter().unzip();
            let block = engine.block(&trainings);
            for (places, trainings) in places.chunks(block).zip(trainings.chunks(block)) {
                let found = engine
                    .train(trainings, &recipe, &stop)
                    .and_then(|trained| Ok((engine.vectors(&trained)?, trained.losses)));
                share(
                    &mut answers,
                    places,
                    found.map(|(vectors, losses)| {
                        losses
                            .into_iter()
                            .zip(vectors.each())
                            .map(|(loss, vector)| Answer::Trained(loss, vector))
                            .collect()
                    }),
                );
            }
        }
        let (places, trainings): (Vec<usize>, Vec<Training>) = gradients.into_iter().unzip();
        let block = engine.block(&trainings);
        for (places, trainings) in places.chunks(block).zip(trainings.chunks(block)) {
            let found = engine.gradients(trainings);
            share(
                &mut answers,
                places,
                found.map(|(losses, vectors)| {
                    losses.into_iter().zip(vectors.each()).map(|(loss, vector)| Answer::Trained(loss, vector)).collect()
                }),
            );
        }
        for (each, looks) in [false, true].into_iter().zip(looks).filter(|(_, looks)| !looks.is_empty()) {
            let (places, looks): (Vec<usize>, Vec<Vec<Look>>) = looks.into_iter().unzip();
            let counts: Vec<usize> = looks.iter().map(Vec::len).collect();
            let found = engine.look(&looks.into_iter().flatten().collect::<Vec<_>>(), each, &stop).map(|seen| {
                let mut seen = seen.into_iter();
                counts.iter().map(|&count| Answer::Seen(seen.by_ref().take(count).collect())).collect()
            });
            share(&mut answers, &places, found);
        }
        let none = || Err(Error::new(kinfolk::ErrorKind::Internal, "a request to the device was forgotten"));
        answers.into_iter().map(|answer| answer.unwrap_or_else(none)).collect()
    }
}

/// Gives everybody the own answer, or the same error.
fn share(answers: &mut [Option<Result<Answer>>], places: &[usize], found: Result<Vec<Answer>>) {
    match found {
        Ok(found) => places.iter().zip(found).for_each(|(&place, answer)| answers[place] = Some(Ok(answer))),
        Err(error) => {
            let message = error.to_string();
            places.iter().for_each(|&place| answers[place] = Some(Err(Error::new(error.kind(), message.clone()))));
        }
    }
}

impl Helper for Meeting {
    fn worker(&self, model: &Arc<dyn AnyModel>, models: &[&[f64]]) -> Box<dyn Worker> {
        let plain = model.worker(&[]);
        let meeting = self.own.upgrade().expect("whoever asks for a worker holds the meeting");
        let mut worker = DeviceWorker { meeting, plain, fresh: false, given: 0, models: Vec::new(), failure: None };
        worker.begin(models);
        Box::new(worker)
    }

    fn expect(&self, threads: usize) {
        self.waiting().present += threads;
    }

    fn leave(&self) {
        let mut waiting = self.waiting();
        waiting.present = waiting.present.saturating_sub(1);
        self.changed.notify_all();
    }
}

/// A worker that asks a device for what it can do, and this thread for everything else.
struct DeviceWorker {
    meeting: Arc<Meeting>,
    plain: Box<dyn Worker>,
    /// Whether `plain` has the models of the ask.
    fresh: bool,
    given: usize,
    models: Vec<Model>,
    failure: Option<Error>,
}

impl DeviceWorker {
    /// The worker of this thread, with all models.
    fn on_thread(&mut self, what: &'static str) -> &mut dyn Worker {
        self.meeting.shared.ran_elsewhere(what);
        if !self.fresh {
            let wide: Vec<Vec<f64>> = self.models[..self.given].iter().map(|model| widened(model)).collect();
            self.plain.begin(&wide.iter().map(Vec::as_slice).collect::<Vec<_>>());
            if let Some(own) = self.models.get(self.given) {
                self.plain.load(&widened(own));
            }
            self.fresh = true;
        }
        &mut *self.plain
    }

    /// Asks; an error is kept for whoever asks for failures.
    fn ask(&mut self, request: Request) -> Option<Answer> {
        let answer = self.meeting.ask(request);
        answer.map_err(|error| self.failure = Some(error)).ok()
    }

    fn seen(&mut self, looks: Vec<Look>, each_row: bool) -> Option<Vec<Seen>> {
        match self.ask(Request::Look(looks, each_row))? {
            Answer::Seen(seen) => Some(seen),
            Answer::Trained(..) => None,
        }
    }

    /// Where some rows are on the device, if they are there.
    fn rows(&self, rows: &Shard) -> Option<Vec<u32>> {
        if rows.is_empty() { None } else { self.meeting.shared.engine().rows().of(rows) }
    }

    /// The training of a client by these steps, if its rows are on the device.
    fn training(&self, model: usize, seat: &Seat, on: Portion, course: impl Fn(usize) -> Course) -> Option<Training> {
        let begin = self.meeting.shared.engine().rows().begin(&seat.client.train)?;
        training(&self.models[model], begin, seat, on, course)
    }
}

/// The steps of a client whose rows begin at this place of the device; none without rows.
pub(crate) fn training(
    start: &Model,
    begin: u32,
    seat: &Seat,
    on: Portion,
    course: impl Fn(usize) -> Course,
) -> Option<Training> {
    let places = seat.places(on);
    if places.is_empty() {
        return None;
    }
    let Course { rows, steps } = course(places.len());
    let rows = rows.into_iter().map(|row| begin + places[row as usize]).collect();
    Some(Training { start: start.clone(), rows, steps, centres: Vec::new(), tilt: None })
}

fn widened(model: &[f32]) -> Vec<f64> {
    model.iter().map(|&value| f64::from(value)).collect()
}

/// A model at the device's precision.
pub(crate) fn narrowed(model: &[f64]) -> Model {
    Arc::new(model.iter().map(|&value| value as f32).collect())
}

const FEW_ROWS: &str = "rows that were put together for one question, and clients without rows";
const SLOPES: &str = "gradients outside of plain training (inner and outer steps, mixtures of models)";
const PLANS: &str = "training that ends at a tolerance or hides single rows";

impl Worker for DeviceWorker {
    fn begin(&mut self, models: &[&[f64]]) {
        self.given = models.len();
        self.models = models.iter().map(|model| narrowed(model)).collect();
        self.fresh = false;
        self.failure = None;
    }

    fn load(&mut self, params: &[f64]) -> usize {
        self.models.truncate(self.given);
        self.models.push(narrowed(params));
        if self.fresh {
            self.plain.load(params);
        }
        self.given
    }

    fn width(&self) -> usize {
        self.plain.width()
    }

    fn loss(&mut self, model: usize, rows: &Shard) -> f64 {
        self.losses(&[model], rows)[0]
    }

    fn losses(&mut self, of: &[usize], rows: &Shard) -> Vec<f64> {
        let Some(places) = self.rows(rows) else { return self.on_thread(FEW_ROWS).losses(of, rows) };
        let look = |&model: &usize| Look { model: self.models[model].clone(), rows: places.clone() };
        let looks = of.iter().map(look).collect();
        let seen = self.seen(looks, false);
        seen.map_or_else(
            || vec![f64::NAN; of.len()],
            |seen| seen.iter().map(|seen| seen.loss / rows.len() as f64).collect(),
        )
    }

    fn row_losses(&mut self, model: usize, rows: &Shard) -> Vec<f64> {
        let Some(places) = self.rows(rows) else { return self.on_thread(FEW_ROWS).row_losses(model, rows) };
        let look = Look { model: self.models[model].clone(), rows: places };
        let seen = self.seen(vec![look], true).and_then(|mut seen| seen.pop());
        seen.map_or_else(|| vec![f64::NAN; rows.len()], |seen| seen.losses)
    }

    fn score(&mut self, model: usize, rows: &Shard) -> Score {
        let Some(places) = self.rows(rows) else { return self.plain_score(model, rows) };
        let look = Look { model: self.models[model].clone(), rows: places };
        let seen = self.seen(vec![look], false).and_then(|mut seen| seen.pop());
        seen.map_or_else(Score::default, |Seen { loss, hits, .. }| Score {
            rows: rows.len() as u32,
            loss,
            hits: Some(hits),
        })
    }

    fn gradient(&mut self, model: usize, seat: &Seat, sample: &Sample, out: &mut [f64]) -> f64 {
        let course = |rows: usize| Course::of_gradient(sample, rows, &seat.client.id);
        let Some(training) = self.training(model, seat, sample.on, course) else {
            return self.on_thread(FEW_ROWS).gradient(model, seat, sample, out);
        };
        self.take(Request::Gradient(training), out)
    }

    fn train(&mut self, model: usize, seat: &Seat, plan: &Plan, out: &mut [f64]) -> f64 {
        let Some(recipe) = Recipe::of(plan) else { return self.on_thread(PLANS).train(model, seat, plan, out) };
        let course = |rows: usize| course_of(plan, rows, &seat.client.id);
        let Some(mut training) = self.training(model, seat, plan.sample.on, course) else {
            return self.on_thread(FEW_ROWS).train(model, seat, plan, out);
        };
        training.centres = plan.terms.pulls.iter().map(|pull| self.models[pull.centre].clone()).collect();
        training.tilt = plan.terms.tilt().map(|tilt| self.models[tilt].clone());
        self.take(Request::Train(training, recipe), out)
    }

    fn slope(&mut self, params: &[f64], seat: &Seat, rows: Option<&[u32]>, out: &mut [f64]) -> f64 {
        self.on_thread(SLOPES).slope(params, seat, rows, out)
    }

    fn weighted_slope(
        &mut self,
        params: &[f64],
        seat: &Seat,
        rows: Option<&[u32]>,
        weights: &[f64],
        out: &mut [f64],
    ) -> f64 {
        self.on_thread(SLOPES).weighted_slope(params, seat, rows, weights, out)
    }

    fn choose(&mut self, among: &[usize], hint: usize, rows: &Shard) -> Choice {
        if rows.is_empty() {
            return self.on_thread(FEW_ROWS).choose(among, hint, rows);
        }
        first_smallest(&self.losses(among, rows))
    }

    fn failure(&mut self) -> Option<Error> {
        self.failure.take().or_else(|| self.plain.failure())
    }
}

impl DeviceWorker {
    /// Without rows there is nothing to score.
    fn plain_score(&mut self, model: usize, rows: &Shard) -> Score {
        if rows.is_empty() { Score::default() } else { self.on_thread(FEW_ROWS).score(model, rows) }
    }

    fn take(&mut self, request: Request, out: &mut [f64]) -> f64 {
        match self.ask(request) {
            Some(Answer::Trained(loss, vector)) => {
                out.iter_mut().zip(vector.iter()).for_each(|(out, value)| *out = value);
                loss
            }
            _ => {
                out.fill(f64::NAN);
                f64::NAN
            }
        }
    }
}

/// The smallest of some losses; one that is not a number counts as infinite, ties go to the first.
pub(crate) fn first_smallest(losses: &[f64]) -> Choice {
    let mut best = Choice { position: 0, loss: f64::INFINITY };
    for (position, &loss) in losses.iter().enumerate() {
        if loss < best.loss {
            best = Choice { position, loss };
        }
    }
    best
}
