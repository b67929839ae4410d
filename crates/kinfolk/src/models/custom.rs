//! Whatever the clients' own code trains: a flat vector of parameters, of which only the clients know the meaning.
//!
//! Losses, training, gradients and scores are asked of the clients ([`OwnClient`]). What needs more than that (exact
//! minimisers, curvature, some of the rows) is refused.

use super::*;
use crate::data::own::{self, OwnClient, OwnScore, Point};
use crate::data::scaling::Scale;
use crate::num::Moments;
use rand_distr::{Distribution, StandardNormal};

settings! {
    /// The settings of the model `own`.
    pub struct OwnSettings {
        /// how many numbers it has (Python takes them from the start)
        parameters: usize [1..=MOST_PARAMETERS as i64],
        /// numbers to compute in and to send
        precision: Precision = "f64",
    }
}

impl ModelSettings for OwnSettings {
    const NAME: &str = "own";
    const SUMMARY: &str = "whatever clients of your own train (data.source = \"own\")";
    const NEEDS_TARGET: bool = false;
    const READS: Reads = Reads::Own;
    const ABILITY: Ability = Ability::Descent;

    fn build(self, _: DataShape) -> Result<Box<dyn Model>> {
        let parameters = TensorPlace { name: "parameters".into(), shape: vec![self.parameters], offset: 0 };
        Ok(Box::new(OwnModel { layout: Layout { tensors: vec![parameters] }, precision: self.precision, start: None }))
    }
}

/// How far several starts are moved from one that is given: so much of the spread of its numbers.
const SHIFT: f64 = 0.1;

struct OwnModel {
    layout: Layout,
    precision: Precision,
    start: Option<OwnStart>,
}

impl OwnModel {
    /// Parameters of this model, or what is wrong with them.
    fn checked(&self, start: Vec<f64>) -> Result<Vec<f64>> {
        let (found, want) = (start.len(), self.layout.len());
        if found != want {
            return Err(Error::new(ErrorKind::Shape, format!("got {found} numbers, want {want} (model.parameters)")));
        }
        match start.iter().position(|value| !value.is_finite()) {
            Some(place) => Err(Error::data(format!("got {} at place {place}, want finite numbers", start[place]))),
            None => Ok(start),
        }
    }

    fn drawn(&self, rng: &mut Rng, nearby: bool) -> Result<Vec<f64>> {
        let found = match &self.start {
            Some(OwnStart::At(start)) if nearby => Ok(moved(start, rng)),
            Some(OwnStart::At(start)) => Ok(start.to_vec()),
            Some(OwnStart::Drawn(draw)) => draw(short_seed(rng.random())),
            None => Err(Error::settings("missing, want parameters or a way to draw them")),
        };
        found.and_then(|start| self.checked(start)).map_err(|error| error.at("start").ending_the_run())
    }
}

/// Parameters beside those given: noise of a tenth of the spread of their numbers, and of 0.1 where all are the same.
fn moved(start: &[f64], rng: &mut Rng) -> Vec<f64> {
    let spread = Scale::of(&Moments::of(start.iter().copied())).deviation;
    let noise = |value: &f64| -> f64 {
        let drawn: f64 = StandardNormal.sample(rng);
        value + SHIFT * spread * drawn
    };
    start.iter().map(noise).collect()
}

/// A seed that every generator of random numbers takes: below 2³².
fn short_seed(seed: u64) -> u64 {
    seed >> 32
}

impl Model for OwnModel {
    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn precision(&self) -> Precision {
        self.precision
    }

    fn metrics(&self) -> &'static [Metric] {
        &[Metric::Loss, Metric::Accuracy]
    }

    fn least_loss(&self) -> f64 {
        f64::NEG_INFINITY
    }

    fn initialise(&self, rng: &mut Rng) -> Result<Vec<f64>> {
        self.drawn(rng, true)
    }

    fn common_start(&self, rng: &mut Rng) -> Result<Vec<f64>> {
        self.drawn(rng, false)
    }

    fn begin_at(&mut self, start: OwnStart) -> Result<()> {
        if let OwnStart::At(start) = &start {
            self.checked(start.to_vec()).map_err(|error| error.at("start"))?;
        }
        self.start = Some(start);
        Ok(())
    }

    fn divides_rows(&self) -> bool {
        false
    }

    fn check(&self, client: &Client) -> Result<()> {
        match &**client.train.features() {
            Features::Own(_) => Ok(()),
            _ => Err(Error::data(format!("client {}: rows, want code of its own", client.id))),
        }
    }

    fn worker(&self, models: &[&[f64]]) -> Box<dyn Worker> {
        Box::new(OwnWorker {
            models: models.iter().map(|model| model.to_vec()).collect(),
            loaded: Vec::new(),
            width: self.layout.len(),
            precision: self.precision,
            told: Vec::new(),
            teller: String::new(),
            failure: None,
        })
    }

    fn prepared_numbers(&self, _: usize) -> usize {
        0
    }
}

/// Calls the clients' code, until it fails once.
struct OwnWorker {
    models: Vec<Vec<f64>>,
    loaded: Vec<f64>,
    width: usize,
    precision: Precision,
    /// The losses that the last client told, by model: one that goes on from its choice need not compute it twice.
    told: Vec<(usize, f64)>,
    teller: String,
    failure: Option<Error>,
}

impl OwnWorker {
    /// Has a client do something; `None` once something went wrong.
    fn call<T>(&mut self, verb: &str, rows: &Shard, work: impl FnOnce(&dyn OwnClient) -> Result<T>) -> Option<T> {
        if self.failure.is_some() {
            return None;
        }
        let Features::Own(own) = &**rows.features() else {
            self.failure = Some(Error::federation("rows without a client's own code"));
            return None;
        };
        let client = own.client();
        let done = match rows.len() == rows.features().rows() {
            true => work(client),
            false => Err(Error::new(ErrorKind::Unsupported, "some of the rows wanted, the client's own code has all")),
        };
        self.failure = done.as_ref().err().map(|error| own::at(client, verb, error.clone()));
        done.ok()
    }

    /// Has a client do something with models of the ask, or with the one that was loaded.
    fn at<T>(
        &mut self,
        verb: &str,
        models: &[usize],
        rows: &Shard,
        work: impl FnOnce(&dyn OwnClient, &[Point]) -> Result<T>,
    ) -> Option<T> {
        let (all, loaded) = (std::mem::take(&mut self.models), std::mem::take(&mut self.loaded));
        let point = |&model: &usize| Point { values: all.get(model).unwrap_or(&loaded), precision: self.precision };
        let points: Vec<Point> = models.iter().map(point).collect();
        let done = self.call(verb, rows, |client| work(client, &points));
        (self.models, self.loaded) = (all, loaded);
        done
    }

    /// Work at a model, and the loss there: as the work tells it, as the client told before, or else asked for.
    fn with_loss(
        &mut self,
        verb: &str,
        model: usize,
        seat: &Seat,
        on: Portion,
        work: impl FnOnce(&dyn OwnClient, Point) -> Result<Option<f64>>,
    ) -> f64 {
        let rows = seat.rows(on);
        let known = match self.teller == seat.client.id {
            true => self.told.iter().find(|(told, _)| *told == model).map(|(_, loss)| *loss),
            false => None,
        };
        match self.at(verb, &[model], &rows, |client, at| work(client, at[0])) {
            None => f64::NAN,
            Some(loss) => loss.or(known).unwrap_or_else(|| self.loss(model, &rows)),
        }
    }
}

/// What a client draws its batches from: the same seed gives every client another one.
fn own_sample(sample: &Sample, client: &dyn OwnClient) -> Sample {
    let seed = Key::new(sample.seed).word("batches").word(client.id()).seed();
    Sample { seed: short_seed(seed), ..sample.clone() }
}

impl Worker for OwnWorker {
    fn begin(&mut self, models: &[&[f64]]) {
        self.models = models.iter().map(|model| model.to_vec()).collect();
        self.told.clear();
        self.failure = None;
    }

    fn load(&mut self, params: &[f64]) -> usize {
        self.loaded.clear();
        self.loaded.extend_from_slice(params);
        self.told.clear();
        self.models.len()
    }

    fn width(&self) -> usize {
        self.width
    }

    fn loss(&mut self, model: usize, rows: &Shard) -> f64 {
        self.losses(&[model], rows)[0]
    }

    fn losses(&mut self, of: &[usize], rows: &Shard) -> Vec<f64> {
        let unknown = || vec![f64::NAN; of.len()];
        let Features::Own(own) = &**rows.features() else { return unknown() };
        if own.held_out {
            let scores = self.at("score", of, rows, |client, at| at.iter().map(|&at| client.score(at)).collect());
            return scores.map_or_else(unknown, |scores: Vec<OwnScore>| scores.iter().map(|it| it.loss).collect());
        }
        let losses = self.at("loss", of, rows, |client, at| client.losses(at)).unwrap_or_else(unknown);
        if self.teller != own.client().id() {
            self.teller = own.client().id().to_string();
            self.told.clear();
        }
        self.told.extend(of.iter().copied().zip(losses.iter().copied()));
        losses
    }

    fn score(&mut self, model: usize, rows: &Shard) -> Score {
        if rows.is_empty() {
            return Score::default();
        }
        let score = self.at("score", &[model], rows, |client, at| client.score(at[0]));
        score.map_or_else(Score::default, |score| Score {
            rows: score.rows,
            loss: score.loss * f64::from(score.rows),
            hits: score.hits,
        })
    }

    fn gradient(&mut self, model: usize, seat: &Seat, sample: &Sample, out: &mut [f64]) -> f64 {
        self.with_loss("gradient", model, seat, sample.on, |client, at| {
            client.gradient(at, &own_sample(sample, client), out)
        })
    }

    fn train(&mut self, model: usize, seat: &Seat, plan: &Plan, out: &mut [f64]) -> f64 {
        let loss = self.with_loss("train", model, seat, plan.sample.on, |client, from| {
            if !plan.terms.is_empty() {
                return Err(Error::new(ErrorKind::Unsupported, "the method wants models that pull at the training"));
            }
            client.train(from, &Plan { sample: own_sample(&plan.sample, client), ..plan.clone() }, out)
        });
        // Training may change the client, and with it what it says of a model.
        self.told.clear();
        loss
    }

    fn slope(&mut self, params: &[f64], seat: &Seat, rows: Option<&[u32]>, out: &mut [f64]) -> f64 {
        let at = Point { values: params, precision: self.precision };
        let slope = |client: &dyn OwnClient| match rows {
            None => client.gradient(at, &Sample::FULL, out)?.map_or_else(|| client.loss(at), Ok),
            Some(_) => {
                Err(Error::new(ErrorKind::Unsupported, "the method wants single rows, the client's own code has all"))
            }
        };
        self.call("gradient", &seat.client.train, slope).unwrap_or(f64::NAN)
    }

    fn failure(&mut self) -> Option<Error> {
        self.failure.take()
    }
}
