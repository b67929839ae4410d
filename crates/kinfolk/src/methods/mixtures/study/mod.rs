//! What is asked of clients whose rows have no target, and what is learned: the kinds of rows there are, and who has how many of which.
//!
//! ```text
//! 1  how many components?  EM on the sums of the clients' E-steps, from the splits of one component less; the number and the
//!    scatter by the likelihood of held-out folds
//! 2  who is an outlier?  how likely a client's rows are under the components of the others; 1 again without outliers
//! 3  do clients differ in how often components occur, and in what they look like?
//! 4  families of clients, or a continuum?  Dirichlet around the families' weights
//! 5  what serves each client: everybody's weights, its family's, its own leaning on these, or a mixture of its own
//! ```
//!
//! Step 1 asks as often as EM steps; all others together ask nine times at most.

mod components;
mod sentences;
mod service;

use super::super::room::nobody_answered;
use super::*;
use crate::families::{Gain, Wanted};
use crate::federation::work::{FoldMixture, Folds, SumMixtures, WeighComponents, Weighed};
use crate::mixture::clients::{
    Blocks, Counts, Families, FamilyStep, Typical, difference, efficiency, fit_families, outlying, search_families,
    shared_places,
};
use crate::mixture::{Detail, Statistics, maximise, normalise};
use crate::num::tails::largest_discovery;
use crate::num::triangular::{factorise, invert};
use components::Found;
pub(crate) use components::{Tried, covariance as covariance_of};
use serde::{Deserialize, Serialize};

/// Parts of every client's rows for cross-validation.
const FOLDS: u32 = 5;

/// What is wanted of a study.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct MixtureWishes {
    /// How many components; without, as many as are found.
    pub(crate) components: Option<usize>,
    pub(crate) families: Wanted,
    pub(crate) seed: u64,
    /// Whether rows are in the order of time.
    pub(crate) ordered: bool,
    /// What is added to a log density of encoded columns to be one of the table's.
    pub(crate) log_units: f64,
}

/// What was learned, in encoded columns.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct ComponentModel {
    pub(crate) shape: Shape,
    /// The components with everybody's weights.
    pub(crate) params: Vec<f64>,
    pub(crate) tried: Vec<Tried>,
    /// Whether the number of components was asked for.
    pub(crate) fixed: bool,
    /// p-values of "all clients are alike": in weights, in centres.
    pub(crate) weights_p: Option<f64>,
    pub(crate) centres_p: Option<f64>,
    pub(crate) families: Families,
    pub(crate) searched: bool,
    pub(crate) steps: Vec<FamilyStep>,
    /// What a row is worth beside one whose component is known.
    pub(crate) efficiency: f64,
    pub(crate) clients: Vec<ComponentClient>,
    /// Shares of everybody's, the family's and personal weights in what serves clients.
    pub(crate) stack: [f64; 3],
    pub(crate) held_out: HeldOut,
    /// What is added to a log density of encoded columns to be one of the table's.
    pub(crate) log_units: f64,
    /// The log density below which 1 % of held-out rows are.
    pub(crate) rare: f64,
    /// How often clients were asked.
    pub(crate) questions: usize,
    pub(crate) sentences: Vec<String>,
}

/// Mean log densities of held-out rows.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct HeldOut {
    /// With everybody's weights, the family's, and those that lean on these,
    pub(crate) everybody: f64,
    pub(crate) family: f64,
    pub(crate) personal: f64,
    /// with mixtures of the clients' own, of clients with rows enough for that,
    pub(crate) alone: Option<f64>,
    /// and with what serves the clients.
    pub(crate) served: f64,
}

/// What was learned of a client.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct ComponentClient {
    /// Its number.
    pub(crate) client: u32,
    pub(crate) rows: usize,
    pub(crate) family: usize,
    /// The probabilities of the families.
    pub(crate) responsibilities: Vec<f64>,
    /// The weights under which its rows are likeliest,
    pub(crate) own: Vec<f64>,
    /// those that lean on its family, and those that serve it.
    pub(crate) personal: Vec<f64>,
    pub(crate) served: Vec<f64>,
    /// A mixture of its own, where that serves it.
    pub(crate) alone: Option<OwnMixture>,
    /// The probability that a client like the others is explained as badly by their components.
    pub(crate) outlier_p: f64,
    pub(crate) is_outlier: bool,
    /// Whether it is one with others that are in the same place.
    #[serde(default)]
    pub(crate) shares_place: bool,
    /// Held-out log density by row of what serves everybody, and its gain over a mixture of the client's own.
    pub(crate) held_out: Option<f64>,
    pub(crate) joining: Option<Gain>,
}

/// A mixture of one client's rows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct OwnMixture {
    pub(crate) shape: Shape,
    pub(crate) params: Vec<f64>,
}

/// Asks, and counts how often.
struct Study<'r, 'f> {
    room: &'r mut Room<'f>,
    folds: Folds,
    wishes: &'r MixtureWishes,
    questions: usize,
}

/// Asks clients about the components of their rows, and learns from their answers.
pub(crate) fn study_components(
    room: &mut Room,
    columns: usize,
    rows: &[usize],
    wishes: &MixtureWishes,
) -> Result<ComponentModel> {
    let folds = Folds { count: FOLDS, seed: (!wishes.ordered).then_some(wishes.seed) };
    let clients: Vec<u32> = (0..rows.len() as u32).filter(|&client| rows[client as usize] > 0).collect();
    let mut study = Study { room, folds, wishes, questions: 0 };
    let mut found = study.components(columns, rows, &clients)?;
    let (p, shares_place) = study.outlier_values(&found, &clients)?;
    let cut = largest_discovery(p.clone());
    let mut typical: Vec<u32> = clients.iter().zip(&p).filter(|(_, p)| **p > cut).map(|(&client, _)| client).collect();
    // Where most are unlike the others, there is nothing that they are unlike.
    if typical.len() <= clients.len() / 2 {
        typical.clone_from(&clients);
    }
    if typical.len() < clients.len() {
        found = study.components(columns, rows, &typical)?;
    }
    study.learn(found, &clients, &typical, (p, shares_place))
}

impl Study<'_, '_> {
    fn key(&self, purpose: &str) -> Key {
        Key::new(self.wishes.seed).word("components").word(purpose)
    }

    fn ask(&mut self, ask: &Ask) -> Result<Answers> {
        self.questions += 1;
        self.room.ask_for_any(ask)
    }

    /// Every client's own weights in some mixtures; `None` where one did not answer.
    fn weigh(&mut self, mixtures: &[FoldMixture], clients: &[u32]) -> Result<Vec<Option<Vec<Weighed>>>> {
        let mut ask = Ask::new(Phase::Train, Vec::new(), Gather::Each);
        let work = WeighComponents { folds: self.folds, mixtures: mixtures.to_vec() };
        let order = ask.order(Recipients::list(clients.to_vec()), work);
        let answers = self.ask(&ask)?;
        let mut found: Vec<Option<Vec<Weighed>>> = vec![None; clients.len()];
        for (client, weighed) in answers.of(order).each() {
            if let Ok(place) = clients.binary_search(&client) {
                found[place] = Some(weighed);
            }
        }
        Ok(found)
    }

    /// Of every client the probability that one like the others is as badly explained by the components of the others, and whether there
    /// are components of a place that it shares with few others alone, which are not of these.
    fn outlier_values(&mut self, found: &Found, clients: &[u32]) -> Result<(Vec<f64>, Vec<bool>)> {
        let (shape, params) = (found.shape, &found.params);
        if clients.len() < 3 {
            return Ok((vec![1.0; clients.len()], vec![false; clients.len()]));
        }
        let mut ask = Ask::new(Phase::Train, Vec::new(), Gather::Each);
        let whole = FoldMixture { shape, params: params.clone(), without: None };
        let work = SumMixtures { folds: self.folds, mixtures: vec![whole], score: false };
        let order = ask.order(Recipients::list(clients.to_vec()), work);
        let answers = self.ask(&ask)?;
        let answered = answers.of(order);
        let length = Statistics::packed_len(&shape, Detail::Full);
        let mut all = vec![0.0; length];
        answered.vectors.chunks_exact(length).for_each(|own| add_scaled(&mut all, 1.0, own));
        let members = |own: &[f64]| Statistics::unpack(&shape, Detail::Full, own).members;
        let places = shared_places(&answered.vectors.chunks_exact(length).map(members).collect::<Vec<_>>());
        let mut shares_place = vec![false; clients.len()];
        let mut ask = Ask::new(Phase::Train, Vec::new(), Gather::Each);
        let mut orders = Vec::new();
        let vectors = answered.vectors.chunks_exact(length);
        for ((&client, own), apart) in answered.clients.iter().zip(vectors).zip(&places) {
            if let Ok(place) = clients.binary_search(&client) {
                shares_place[place] = !apart.is_empty();
            }
            let mut others = all.clone();
            add_scaled(&mut others, -1.0, own);
            let statistics = Statistics::unpack(&shape, Detail::Full, &others);
            let Some(mixture) = without_client(&shape, params, &statistics, apart) else { continue };
            let work = WeighComponents { folds: self.folds, mixtures: vec![mixture.clone()] };
            orders.push((client, mixture, ask.order(Recipients::list(vec![client]), work)));
        }
        let answers = self.ask(&ask)?;
        let key = self.key("typical");
        // Without one client the components are nearly what they are with it.
        let typical = Typical::new(&shape, params, &key);
        let mut deviations = vec![0.0; clients.len()];
        for (client, mixture, order) in orders {
            let (Ok(place), Some((_, weighed))) = (clients.binary_search(&client), answers.of(order).each().next())
            else {
                continue;
            };
            if let Some(weighed) = weighed.first() {
                let same = mixture.shape == shape;
                let own = if same { None } else { Some(Typical::new(&mixture.shape, &mixture.params, &key)) };
                let typical = own.as_ref().unwrap_or(&typical);
                let rows = f64::from(weighed.rows.max(1));
                deviations[place] = typical.deviation(&weighed.weights, rows, weighed.log_likelihood);
            }
        }
        Ok((outlying(&deviations), shares_place))
    }

    fn learn(
        &mut self,
        found: Found,
        clients: &[u32],
        typical: &[u32],
        (outlier_p, shares_place): (Vec<f64>, Vec<bool>),
    ) -> Result<ComponentModel> {
        let Found { shape, params, by_fold, tried } = found;
        let components = shape.components;
        let mut mixtures = vec![FoldMixture { shape, params: params.clone(), without: None }];
        let fold =
            |(fold, params): (u32, &Vec<f64>)| FoldMixture { shape, params: params.clone(), without: Some(fold) };
        mixtures.extend((0u32..).zip(&by_fold).map(fold));
        let weighed = self.weigh(&mixtures, clients)?;
        // Who did not answer is left out from here on.
        let kept: Vec<usize> = (0..clients.len()).filter(|&place| weighed[place].is_some()).collect();
        let weighed: Vec<&Vec<Weighed>> = kept.iter().filter_map(|&place| weighed[place].as_ref()).collect();
        if weighed.is_empty() {
            return Err(nobody_answered());
        }
        let is_typical: Vec<bool> = kept.iter().map(|&place| typical.binary_search(&clients[place]).is_ok()).collect();
        let kept_clients: Vec<u32> = kept.iter().map(|&place| clients[place]).collect();
        let typical_places: Vec<usize> = (0..kept.len()).filter(|&place| is_typical[place]).collect();
        // Steps 3 and 4, of clients that are no outliers.
        let rows: f64 = typical_places.iter().map(|&place| f64::from(weighed[place][0].rows)).sum();
        let mut products = vec![0.0; components * components];
        for &place in &typical_places {
            add_scaled(&mut products, 1.0 / rows.max(1.0), &weighed[place][0].products);
        }
        let everybody = &params[shape.weights()];
        let worth = efficiency(everybody, &products);
        let weights_p =
            difference(&weight_blocks(&typical_places, &weighed, everybody, &products), &self.key("weights"));
        let own_weights: Vec<(u32, Vec<f64>)> =
            typical_places.iter().map(|&place| (kept_clients[place], weighed[place][0].weights.clone())).collect();
        let centres_p = difference(&self.centre_blocks(&shape, &params, &own_weights)?, &self.key("centres"));
        let counts = |mixture: usize, places: &[usize]| {
            let of = |&place: &usize| (&*weighed[place][mixture].weights, f64::from(weighed[place][mixture].rows));
            Counts::new(components, worth, places.iter().map(of))
        };
        let typical_counts = counts(0, &typical_places);
        let key = self.key("families");
        let (searched, (families, steps)) = match &self.wishes.families {
            Wanted::Auto if weights_p.is_some_and(|p| p <= LEVEL) => (true, search_families(&typical_counts, &key)),
            Wanted::Auto => (true, (Families::one(&typical_counts), Vec::new())),
            Wanted::One => (false, (Families::one(&typical_counts), Vec::new())),
            Wanted::Exactly(families) => (false, (fit_families(&typical_counts, *families, &key), Vec::new())),
            Wanted::Known(of) => {
                let of: Vec<usize> = typical_places.iter().map(|&place| of[kept_clients[place] as usize]).collect();
                let count = of.iter().max().map_or(1, |most| most + 1);
                let member = |family| of.iter().map(|own| f64::from(u8::from(*own == family))).collect();
                let members: Vec<Vec<f64>> = (0..count).map(member).collect();
                (false, (Families::of_members(&typical_counts, &members), Vec::new()))
            }
        };
        let known = match &self.wishes.families {
            Wanted::Known(of) => Some(kept_clients.iter().map(|&client| of[client as usize]).collect()),
            _ => None,
        };
        let all_places: Vec<usize> = (0..kept.len()).collect();
        let all_counts: Vec<Counts> = (0..mixtures.len()).map(|mixture| counts(mixture, &all_places)).collect();
        let case = service::Case {
            mixtures,
            weighed,
            clients: kept_clients,
            is_outlier: is_typical.iter().map(|typical| !typical).collect(),
            outlier_p: kept.iter().map(|&place| outlier_p[place]).collect(),
            shares_place: kept.iter().map(|&place| shares_place[place]).collect(),
            counts: all_counts,
            families: &families,
            known,
        };
        let served = self.serve(case)?;
        let mut model = ComponentModel {
            shape,
            params,
            tried,
            fixed: self.wishes.components.is_some(),
            weights_p,
            centres_p,
            families,
            searched,
            steps,
            efficiency: worth,
            clients: served.clients,
            stack: served.stack,
            held_out: served.held_out,
            rare: served.rare,
            log_units: self.wishes.log_units,
            questions: self.questions,
            sentences: Vec::new(),
        };
        model.sentences = sentences::of(&model);
        Ok(model)
    }

    /// Whether components look alike at all clients: the pulls at their centres, with every client's own weights.
    fn centre_blocks(&mut self, shape: &Shape, params: &[f64], weights: &[(u32, Vec<f64>)]) -> Result<Vec<Blocks>> {
        let (columns, components) = (shape.columns, shape.components);
        let mut ask = Ask::new(Phase::Train, Vec::new(), Gather::Each);
        let mut orders = Vec::new();
        for (client, own) in weights {
            let mut params = params.to_vec();
            params[shape.weights()].copy_from_slice(own);
            normalise(&mut params[shape.weights()]);
            let without = [None].into_iter().chain((0..FOLDS).map(Some));
            let mixtures =
                without.map(|without| FoldMixture { shape: *shape, params: params.clone(), without }).collect();
            orders.push(
                ask.order(Recipients::list(vec![*client]), SumMixtures { folds: self.folds, mixtures, score: false }),
            );
        }
        let answers = self.ask(&ask)?;
        let length = Statistics::packed_len(shape, Detail::Full);
        let whiteners: Vec<Vec<f64>> = (0..components).map(|component| whitener(shape, params, component)).collect();
        let mut found = Vec::new();
        for order in orders {
            let vectors = &answers.of(order).vectors;
            if vectors.len() == length * (1 + FOLDS as usize) {
                let sums = vectors.chunks_exact(length).map(|own| Statistics::unpack(shape, Detail::Full, own));
                found.push(sums.collect::<Vec<Statistics>>());
            }
        }
        let members = |component: usize| found.iter().map(|sums| sums[0].members[component]).sum::<f64>();
        let members: Vec<f64> = (0..components).map(members).collect();
        let blocks = |sums: &Vec<Statistics>| {
            let (whole, rest) = (&sums[0], &sums[1..]);
            let fold = |without: &Statistics| {
                let mut block = Vec::with_capacity(components * columns);
                for (component, whitener) in whiteners.iter().enumerate() {
                    let at = component * columns..(component + 1) * columns;
                    let pull: Vec<f64> =
                        whole.pulls[at.clone()].iter().zip(&without.pulls[at]).map(|(all, rest)| all - rest).collect();
                    let share = whole.members[component].max(1.0).sqrt().recip();
                    // Components of a client with hardly any rows say nothing.
                    let share = if whole.members[component] < 2.0 { 0.0 } else { share };
                    let line = whitener.chunks_exact(columns);
                    block.extend(line.map(|line| share * dot(line, &pull)));
                }
                block
            };
            let share = |place: usize| {
                let component = place / columns;
                (whole.members[component] / members[component].max(1e-9)).sqrt()
            };
            Blocks { folds: rest.iter().map(fold).collect(), shares: (0..components * columns).map(share).collect() }
        };
        Ok(found.iter().map(blocks).collect())
    }
}

/// p-values up to which clients differ.
pub(crate) const LEVEL: f64 = 0.05;

/// The mixture of the other clients: one M-step without the client, less the components that hardly anybody else has, and those `apart`.
fn without_client(shape: &Shape, params: &[f64], others: &Statistics, apart: &[usize]) -> Option<FoldMixture> {
    let mut moved = params.to_vec();
    let members: Vec<f64> = others.members.iter().map(|members| members.max(0.0)).collect();
    let statistics = Statistics { members: members.clone(), ..others.clone() };
    components::step(shape, &statistics, &mut moved);
    let least = (shape.columns + 1) as f64;
    let is_kept = |component: &usize| members[*component] >= least && !apart.contains(component);
    let kept: Vec<usize> = (0..shape.components).filter(is_kept).collect();
    if kept.is_empty() {
        return None;
    }
    let (fewer, mut params) = components::pick(shape, &moved, &kept);
    normalise(&mut params[fewer.weights()]);
    Some(FoldMixture { shape: fewer, params, without: None })
}

/// The inverse of a component's root of the covariance, row-major.
fn whitener(shape: &Shape, params: &[f64], component: usize) -> Vec<f64> {
    let covariance = components::covariance(shape, params, component);
    let (mut factor, mut inverse) = (Vec::new(), vec![0.0; covariance.len()]);
    factorise(&covariance, shape.columns, &mut factor);
    invert(&factor, shape.columns, &mut inverse);
    inverse
}

/// Sums of posteriors around what everybody's weights let expect, whitened.
fn weight_blocks(places: &[usize], weighed: &[&Vec<Weighed>], everybody: &[f64], products: &[f64]) -> Vec<Blocks> {
    let components = everybody.len();
    let covariance: Vec<f64> = (0..components * components)
        .map(|place| products[place] - everybody[place / components] * everybody[place % components])
        .collect();
    // Posteriors sum to 1, and differ in one direction less.
    const LEAST: f64 = 1e-9;
    let Some(spectrum) = crate::num::Spectrum::above(&covariance, components, LEAST) else { return Vec::new() };
    if components < 2 || spectrum.rank() == 0 {
        return Vec::new();
    }
    let all: f64 = places.iter().map(|&place| f64::from(weighed[place][0].rows)).sum();
    let client = |&place: &usize| {
        let own = &weighed[place][0];
        let rows = f64::from(own.rows.max(1));
        let fold = |(count, sums): &(u32, Vec<f64>)| {
            let apart: Vec<f64> =
                sums.iter().zip(everybody).map(|(sum, weight)| sum - f64::from(*count) * weight).collect();
            let mut white = spectrum.apply(|value| value.sqrt().recip(), &apart);
            white.iter_mut().for_each(|value| *value /= rows.sqrt());
            white
        };
        Blocks { folds: own.by_fold.iter().map(fold).collect(), shares: vec![(rows / all.max(1.0)).sqrt(); components] }
    };
    places.iter().map(client).collect()
}
