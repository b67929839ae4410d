//! What methods for mixtures share: a fit on every client, one order of components, and steps from what clients keep.

mod client_fits;
pub(super) mod components;
mod pooled;
mod rounds;
mod shared;
pub(super) mod study;
mod whitening;

use client_fits::EMPTY_COMPONENT;
use rounds::Common;

pub(super) use client_fits::ClientFits;
pub(super) use pooled::Pooled;
pub(super) use rounds::Rounds;
pub use rounds::Until;
pub(super) use shared::{Place, SharedComponents};
pub(super) use whitening::Whitening;

use super::*;
use crate::aggregate::Location;
use crate::federation::Handle;
use crate::federation::work::{FitMixture, Fitted};
pub(super) use crate::federation::work::{Parts, StepMixture};
use crate::mixture::alignment::{Alignment, align_to};
pub(super) use crate::mixture::step::{Rate, Rule, Step};
use crate::mixture::{Begin, Covariance, Family, Fitting, Noise, Shape, recast, relabel};
pub(super) use crate::text::counted;
use rand_distr::{Distribution, StandardNormal};
use std::cell::OnceCell;

choices!(Begin {
    Auto = "auto",
    Hierarchical = "hierarchical",
    KMeans = "kmeans++",
    Random = "random",
});

choices! {
    /// How rows scatter in a client's own fit.
    pub enum StartCovariance { Tied = "tied", Same = "same" }
}

settings! {
    /// What all methods for mixtures can be told: how clients fit mixtures of their own to begin with.
    pub struct OwnFits {
        /// where each client's own fit begins; auto tries a hierarchical clustering and k-means++
        begin: Begin = "auto",
        /// fits each client tries, of which it keeps the best
        starts: usize [1..=100_000] = 10,
        /// steps of EM of a client's own fit at most
        start_iterations: usize [0..=1_000_000] = 200,
        /// how rows scatter in a client's own fit: one covariance (or noise) for all components, or as in the model
        start_covariance: StartCovariance = "tied",
        /// a missing answer stands for no change, or ends the run
        missing: MissingRule ["skip", "fail"] = "skip",
    }
}

choices! {
    /// Where the components of all clients begin.
    pub enum FirstCentres { Fits = "fits", Random = "random" }
}

settings! {
    /// What methods with one order of components for everybody can be told beside that.
    pub struct CommonOrder {
        /// when rounds end
        until: Until,
        /// begin with what clients fit alone, or all with the same random centres, for which nobody looks at any rows
        start: FirstCentres = "fits",
        /// deviation of random centres, the same in every column
        #[only_with(start = "random")]
        start_deviation: f64 [above 0.0..=1e18] = 1.0,
        /// orders of the clients tried to find one order of components for all
        orders: usize [1..=100_000] = 20,
        /// how clients fit mixtures of their own to begin with
        fits: OwnFits,
    }
}

/// What clients tell of the mixtures that they fit by themselves, so often where the first question got lost; `sent` where centres
/// leave.
pub(super) fn discloses_fits(times: usize, sent: bool) -> Vec<Disclosure> {
    let what = if sent { "centres to begin with" } else { "a mixture of its own, which stays with it" };
    let fits = [(Phase::Start, times), (Phase::Train, times)];
    let fit = |(phase, times)| {
        let fit = Disclosure::single::<FitMixture>(phase, times, what);
        if sent { fit } else { fit.without_vector::<FitMixture>() }
    };
    fits.into_iter().map(fit).collect()
}

impl CommonOrder {
    /// What clients tell of their rows to begin with.
    pub(super) fn discloses_start(&self) -> Vec<Disclosure> {
        if self.start == FirstCentres::Random { Vec::new() } else { discloses_fits(1, true) }
    }

    /// How much clients use their rows in rounds of one step each.
    pub(super) fn exposure(&self) -> Hidable {
        match self.start {
            FirstCentres::Random => Ok(Exposure { answers: self.until.rounds as u64, ..Exposure::default() }),
            FirstCentres::Fits => Err("it begins with what clients fit alone to their rows: set start = \"random\""),
        }
    }
}

/// What clients tell when they take over what was found.
pub(super) fn discloses_delivery() -> Disclosure {
    Disclosure::single::<StepMixture>(Phase::Train, 1, "a mixture of its own, which stays with it")
        .without_vector::<StepMixture>()
}

/// What clients tell for one mixture for everybody.
pub(super) fn discloses_pooled(common: &CommonOrder) -> Vec<Disclosure> {
    let mut all = common.discloses_start();
    if common.start == FirstCentres::Fits {
        all.push(Disclosure::single::<work::Losses>(Phase::Start, 1, "which mixture to begin with"));
    }
    all.push(Disclosure::sums::<StepMixture>(Phase::Train, common.until.rounds, "the mixture of all rows"));
    all
}

/// What clients tell for common components with weights of their own.
pub(super) fn discloses_shared(common: &CommonOrder) -> Vec<Disclosure> {
    let mut all = common.discloses_start();
    all.push(Disclosure::sums::<StepMixture>(Phase::Train, common.until.rounds, "the common components"));
    all.push(discloses_delivery());
    all
}

/// How clients fit mixtures and step on from them.
pub(super) struct MixtureTraining {
    pub(super) shape: Shape,
    /// Training rows of every client.
    pub(super) rows: Vec<f64>,
    pub(super) fit: FitMixture,
    /// The mixture that all clients begin with, where it is not what they fit.
    pub(super) start: Option<Params>,
    /// The fewest rows of a client that fits a mixture of its own.
    least_rows: usize,
    orders: usize,
    /// That of the fits, once their scatter is known, which does not change any more then.
    whitening: OnceCell<Whitening>,
}

/// Models of an ask, and which of them each client gets, if any.
pub(super) struct ClientModels {
    pub(super) models: Vec<Params>,
    pub(super) clients: Vec<(u32, Option<usize>)>,
}

impl ClientModels {
    pub(super) fn one_each(models: impl Iterator<Item = (u32, Vec<f64>)>) -> Self {
        let each = models.enumerate().map(|(place, (client, model))| (Arc::new(model), (client, Some(place))));
        let (models, clients) = each.unzip();
        Self { models, clients }
    }

    /// One model for all these clients.
    pub(super) fn shared(model: Vec<f64>, clients: impl Iterator<Item = u32>) -> Self {
        Self { models: vec![Arc::new(model)], clients: clients.map(|client| (client, Some(0))).collect() }
    }

    /// No model: these clients go on from what they keep.
    pub(super) fn none(clients: impl Iterator<Item = u32>) -> Self {
        Self { models: Vec::new(), clients: clients.map(|client| (client, None)).collect() }
    }
}

impl MixtureTraining {
    pub(super) fn new(setup: &Setup, fits: &OwnFits, orders: usize) -> Result<Self> {
        let shape = *setup.model.mixture().ok_or_else(|| {
            Error::settings(format!("{}: wants a mixture", setup.place))
                .hint("set model.kind to gaussian-mixture or regression-mixture")
        })?;
        let family = match (fits.start_covariance, shape.family) {
            (StartCovariance::Same, family) => family,
            (_, Family::Gaussian(_)) => Family::Gaussian(Covariance::Tied),
            (_, Family::Regression { intercept, .. }) => Family::Regression { intercept, noise: Noise::Common },
        };
        let fit_shape = Shape { family, ..shape };
        let fitting = Fitting {
            begin: fits.begin,
            starts: fits.starts,
            iterations: fits.start_iterations,
            tolerance: FIT_TOLERANCE,
        };
        // The same for every method: they differ in what they make of the fits.
        let seed = Key::new(setup.seed).word("fit").seed();
        let most = setup.rows.iter().copied().max().unwrap_or(0);
        if most < shape.components {
            return Err(Error::data(format!(
                "{}: no client has more than {most} training rows, want at least one for each of {} components",
                setup.place, shape.components
            ))
            .hint("use fewer components, or larger clients"));
        }
        Ok(Self {
            shape,
            rows: setup.rows.iter().map(|&rows| rows as f64).collect(),
            fit: FitMixture { shape: fit_shape, fitting, seed, keep: true, send: Parts::Shared },
            start: None,
            least_rows: shape.components,
            orders,
            whitening: OnceCell::new(),
        })
    }

    /// For a method with one order of components for everybody.
    pub(super) fn with_common_order(setup: &Setup, common: &CommonOrder) -> Result<Self> {
        let mut training = Self::new(setup, &common.fits, common.orders)?;
        if common.start == FirstCentres::Fits {
            return Ok(training);
        }
        let shape = training.shape;
        if !shape.scatter().is_empty() {
            let message = format!("{}.start: \"random\" says nothing of how rows scatter", setup.place);
            return Err(Error::settings(message).hint(
                "set model.covariance = \"identity\" (of regressions model.noise = \"unit\"), or start = \"fits\"",
            ));
        }
        // The same for every method: they differ in what they make of it.
        let mut rng = Key::new(setup.seed).word("first centres").rng();
        let deviation = common.start_deviation;
        let normals = StandardNormal.sample_iter(&mut rng).map(|normal: f64| deviation * normal);
        let mut start: Vec<f64> = normals.take(shape.centres().end).collect();
        start.resize(shape.len(), 1.0 / shape.components as f64);
        training.start = Some(Arc::new(start));
        training.fit.shape = shape;
        Ok(training)
    }

    /// For a method after which each client has a scatter of its own: those with too few rows to tell it are left out.
    pub(super) fn with_own_scatter(setup: &Setup, fits: &OwnFits, orders: usize) -> Result<Self> {
        let training = Self::new(setup, fits, orders)?;
        Ok(Self { least_rows: training.shape.least_rows().max(training.shape.components), ..training })
    }

    /// Whether a client has rows enough to tell how they scatter.
    pub(super) fn tells_scatter(&self, client: usize) -> bool {
        self.rows[client] >= self.shape.least_rows() as f64
    }

    /// Centres with what is known of the scatter around them in the fits, and equal weights, in the model's form.
    pub(super) fn with_common_scatter(&self, mut centres: Vec<f64>, scatter: &[f64]) -> Vec<f64> {
        centres.extend_from_slice(scatter);
        centres.resize(centres.len() + self.shape.components, 1.0 / self.shape.components as f64);
        recast(&self.fit.shape, &centres, &self.shape)
    }

    /// That of the fits, as far as they know the scatter.
    fn whitening(&self, scatter: &[f64]) -> &Whitening {
        match scatter {
            [] => &Whitening::None,
            scatter => self.whitening.get_or_init(|| Whitening::new(&self.fit.shape, scatter)),
        }
    }

    /// The longest move of any centre, in deviations of rows around their centres.
    pub(super) fn longest_move(&self, fits: &ClientFits, before: &[f64], after: &[f64]) -> f64 {
        let [mut old, mut new] = [before, after].map(<[f64]>::to_vec);
        [&mut old, &mut new].into_iter().for_each(|centres| self.whitening(&fits.scatter).apply(centres));
        longest_move(&old, &new, self.shape.width())
    }

    /// The mean of the fits, as parameters of the model with equal weights; `None` before the first.
    fn mean_fit(&self, fits: &ClientFits) -> Option<Vec<f64>> {
        fits.clients().next()?;
        Some(self.with_common_scatter(fits.mean_centres(), &fits.scatter))
    }

    /// Has clients without a mixture fit one. Returns the mean loss of those that did. As long as nobody has, there is
    /// nothing to go on with.
    pub(super) fn fit(&self, fits: &mut ClientFits, send: Parts, room: &mut Room) -> Result<Option<f64>> {
        for (client, few_rows) in fits.few_rows.iter_mut().enumerate() {
            if self.rows[client] < self.least_rows as f64 {
                few_rows.clone_from(&room.clients()[client].id);
            }
        }
        let waits = |client: &u32| {
            let place = *client as usize;
            fits.stamps[place] == 0 && fits.few_rows[place].is_empty()
        };
        let waiting: Vec<u32> = (0..fits.stamps.len() as u32).filter(waits).collect();
        if waiting.is_empty() {
            return Ok(None);
        }
        let first = fits.clients().next().is_none();
        let phase = if first { Phase::Start } else { Phase::Train };
        if let Some(start) = &self.start {
            let mut ask = Ask::new(phase, vec![start.clone()], Gather::Each);
            ask.order(Recipients::list(waiting), work::Receive { models: vec![0], keep: true });
            for (client, stamp) in stamps_after(&room.ask_for_any(&ask)?) {
                fits.stamps[client as usize] = stamp;
                fits.centres[client as usize] = start[self.shape.centres()].to_vec();
            }
            return Ok(None);
        }
        let mut ask = Ask::new(phase, Vec::new(), Gather::Each);
        let order = ask.order(Recipients::list(waiting), FitMixture { send, ..self.fit.clone() });
        let answers = room.ask_for_any(&ask)?;
        let order = answers.of(order);
        let losses = order.losses();
        for (client, fitted) in order.each() {
            fits.stamps[client as usize] = answers.stamp;
            fits.smallest[client as usize] = fitted.smallest_weight;
            fits.unfinished += usize::from(!fitted.converged);
        }
        if send == Parts::Nothing || order.clients.is_empty() {
            return Ok(mean_loss(&losses));
        }
        let centres = self.shape.centres().end;
        let vectors: Vec<&[f64]> = (0..order.clients.len()).map(|place| order.vector(place)).collect();
        // Scatter that rows are too few to tell says nothing, unless nobody has more.
        let telling = order.clients.iter().any(|&client| self.tells_scatter(client as usize));
        let tells = |client: usize| !telling || self.tells_scatter(client);
        let weigh = |client: &u32| if tells(*client as usize) { self.rows[*client as usize] } else { 0.0 };
        let rows = || order.clients.iter().map(weigh);
        if first {
            fits.scatter = whitening::common_scatter(
                &self.fit.shape,
                vectors.iter().map(|vector| &vector[centres..]).zip(rows()),
            )?;
        }
        let whitening = self.whitening(&fits.scatter);
        let whiten = |fit: &[f64]| {
            let mut fit = fit.to_vec();
            whitening.apply(&mut fit);
            fit
        };
        let whitened: Vec<Vec<f64>> = vectors.iter().map(|vector| whiten(&vector[..centres])).collect();
        let found = match first {
            true => self.align(&whitened, &order.clients, room),
            false => {
                let mean = whiten(&fits.mean_centres());
                whitened.iter().map(|fit| align_to(fit, &mean, self.shape.components)).collect()
            }
        };
        let mut ordered: Vec<Vec<f64>> = Vec::with_capacity(vectors.len());
        for ((vector, &client), found) in vectors.iter().zip(&order.clients).zip(found) {
            let found: Vec<u32> = found.into_iter().map(|component| component as u32).collect();
            let mut fit = vector.to_vec();
            fit.resize(self.fit.shape.len(), 0.0);
            relabel(&self.fit.shape, &mut fit, &found);
            fits.centres[client as usize] = fit[..centres].to_vec();
            fits.relabel[client as usize] = found;
            ordered.push(fit);
        }
        if first {
            // Scatter of single components can be averaged only now that they are in one order.
            let scatters = ordered.iter().map(|fit| &fit[self.fit.shape.scatter()]);
            fits.scatter = whitening::common_scatter(&self.fit.shape, scatters.zip(rows()))?;
        }
        Ok(mean_loss(&losses))
    }

    /// One order of components for clients with these centres; of many clients, most are aligned to a geometric median.
    fn align(&self, fits: &[Vec<f64>], clients: &[u32], room: &Room) -> Vec<Vec<usize>> {
        const AT_ONCE: usize = 200;
        let sequences = self.sequences(clients, room);
        let some: Vec<usize> = sequences[0].iter().copied().take(AT_ONCE).collect();
        let place: BTreeMap<usize, usize> = some.iter().copied().zip(0..).collect();
        let among = |sequence: &Vec<usize>| sequence.iter().filter_map(|it| place.get(it).copied()).collect();
        let views: Vec<&[f64]> = some.iter().map(|&it| fits[it].as_slice()).collect();
        let found =
            Alignment::new(&views, self.shape.components).find(&sequences.iter().map(among).collect::<Vec<_>>());
        if fits.len() <= AT_ONCE {
            return (0..fits.len()).map(|it| found.orders[place[&it]].clone()).collect();
        }
        let width = self.shape.width();
        let ordered = views.iter().zip(&found.orders).flat_map(|(fit, order)| {
            order.iter().flat_map(|&component| &fit[component * width..][..width]).copied().collect::<Vec<f64>>()
        });
        let (points, ones) = (ordered.collect::<Vec<f64>>(), vec![1.0; views.len()]);
        let median = Location { points: &points, counts: &ones, reach: &ones }.median();
        let follow = |it: usize| match place.get(&it) {
            Some(&place) => found.orders[place].clone(),
            None => align_to(&fits[it], &median, self.shape.components),
        };
        (0..fits.len()).map(follow).collect()
    }

    /// Random orders of the clients, drawn by their ids.
    fn sequences(&self, clients: &[u32], room: &Room) -> Vec<Vec<usize>> {
        let sequence = |number: usize| {
            let lot = |place: usize| {
                let id = &room.clients()[clients[place] as usize].id;
                Key::new(self.fit.seed).word("alignment").number(number as u64).word(id).seed()
            };
            let mut order: Vec<usize> = (0..clients.len()).collect();
            order.sort_by_cached_key(|&place| lot(place));
            order
        };
        (0..self.orders).map(sequence).collect()
    }

    /// A step as the settings of this method have it, for `step` to fill in.
    pub(super) fn plain_step(&self, rule: Rule, send: Parts) -> StepMixture {
        StepMixture {
            shape: self.shape,
            from: None,
            model: None,
            relabel: Vec::new(),
            step: Step { rule, sparsity: 0.0, share: 1.0 },
            steps: 1,
            sample: Sample::FULL,
            limit: None,
            send,
        }
    }

    pub(super) fn step(
        &self,
        fits: &mut ClientFits,
        models: &ClientModels,
        step: &StepMixture,
        gather: Gather,
        room: &mut Room,
    ) -> Result<(Answers, Vec<Handle<Fitted>>)> {
        /// Clients with the same stamp, model and new names for their components get one order.
        type Alike<'a> = (u64, Option<usize>, &'a [u32]);
        let mut alike: BTreeMap<Alike, Vec<u32>> = BTreeMap::new();
        for &(client, model) in &models.clients {
            let place = client as usize;
            alike.entry((fits.stamps[place], model, &fits.relabel[place])).or_default().push(client);
        }
        let mut ask = Ask::new(Phase::Train, models.models.clone(), gather);
        let order = |((stamp, model, relabel), clients): (Alike, Vec<u32>)| {
            let step = StepMixture { from: Some(stamp), model, relabel: relabel.to_vec(), ..step.clone() };
            ask.order(Recipients::list(clients), step)
        };
        let orders: Vec<_> = alike.into_iter().map(order).collect();
        let answers = room.ask(&ask)?;
        fits.settle(&answers, &orders);
        Ok((answers, orders))
    }

    pub(super) fn outcome(&self, fits: &ClientFits, models: Vec<Params>, converged: bool) -> Outcome {
        Outcome {
            models,
            serving: Serving::Own { stamps: fits.stamps.clone(), clusters: None },
            converged,
            notes: fits.notes(self),
            ..Outcome::default()
        }
    }
}

/// Names of clients, as many as a note can hold.
pub(super) fn names(ids: &[&str]) -> String {
    const MOST: usize = 10;
    let shown = ids.iter().take(MOST).copied().collect::<Vec<_>>().join(", ");
    match ids.len().saturating_sub(MOST) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

/// Relative gain of a row's likelihood at which a client's own fit ends.
const FIT_TOLERANCE: f64 = 1e-6;

/// The mean of a round's losses, or the error that it is not a number any more.
pub(super) fn finite_loss(losses: &[f64], room: &Room) -> Result<Option<f64>> {
    match mean_loss(losses) {
        Some(loss) if !loss.is_finite() => {
            let message = format!("round {}: the likelihood is not a number any more", room.round() + 1);
            Err(Error::new(ErrorKind::Diverged, message)
                .hint("use fewer components, leave out columns that hardly vary, or standardise the data"))
        }
        loss => Ok(loss),
    }
}

choices! {
    /// What the step of gradient EM is.
    pub enum StepRule { Capped = "capped", Relative = "relative", Fixed = "fixed" }
}

impl StepRule {
    pub(super) fn rate(self, factor: f64) -> Rate {
        match self {
            StepRule::Fixed => Rate::Fixed(factor),
            rule => Rate::Relative { factor, capped: rule == StepRule::Capped },
        }
    }
}

/// The longest move of any centre.
pub(super) fn longest_move(before: &[f64], after: &[f64], width: usize) -> f64 {
    let moves = before.chunks_exact(width).zip(after.chunks_exact(width));
    moves.map(|(before, after)| crate::num::distance(before, after)).fold(0.0, f64::max)
}
