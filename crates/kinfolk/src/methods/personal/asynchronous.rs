//! What follows from the coins: the asynchronous steps of Algorithms 1 and 2.
//!
//! Every iteration one coin decides whether all clusters step towards the means; if not, each cluster's own coin decides
//! whether it steps towards its mean or its clients take a local step. The server knows all coins beforehand. It sends
//! clients away for whole runs of local steps, and as long as it knows a cluster's mean it also knows what steps towards
//! means do to it: they are gathered into one blend, and only the first of them needs an answer from the clients. That
//! holds where all clients of a cluster are pulled alike; where they are not, every such step needs one.

use super::super::*;
use super::coins::{Chances, Coins, Step};
use super::complete::ask_everybody;
use super::{Base, Class, Families, Strengths};
use crate::federation::work::{Acceleration, Addend, Advance, Advanced, Blend, Renewal, Run, Start};
use crate::federation::{Answers, Handle};
use crate::linalg::add_scaled;
use crate::methods::room::stamps_after;
use crate::training::Scale;
use std::ops::Range;

/// The numbers of an algorithm.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Constants {
    /// η.
    pub step: f64,
    /// p₀ and p_j.
    pub chances: Chances,
    /// α_j.
    pub alpha: Vec<f64>,
    /// Algorithm 2's own.
    pub acceleration: Option<Accelerated>,
}

/// What Algorithm 2 has beyond Algorithm 1.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Accelerated {
    /// a₁ and a₂.
    pub a: [f64; 2],
    /// b₁ and b₂.
    pub b: [f64; 2],
    /// ρ: how likely the anchor is renewed after a step.
    pub refresh: f64,
    /// Rows in a local step; all of them when absent.
    pub batch: Option<u32>,
    /// The steepness of the objective at an anchor, as a share of the first one's, at which it ends.
    pub tolerance: f64,
}

/// What a step towards means does to the gradient of a client pulled with γ: it adds γ·(rate·θ − towards).
#[derive(Debug, Clone, PartialEq)]
pub struct Pulled {
    pub(super) rate: f64,
    /// Shares of the cluster's mean and of everybody's.
    own: f64,
    all: f64,
}

impl Pulled {
    /// Where it pulls to, by the cluster's mean and everybody's.
    pub(super) fn towards(&self, own: &[f64], all: &[f64]) -> Vec<f64> {
        own.iter().zip(all).map(|(own, all)| self.own * own + self.all * all).collect()
    }
}

impl Constants {
    /// τ_j = p₀/(p₀ + 2(1 − p₀)p_j): how much of the pull to a cluster's mean is left to steps of everybody.
    pub fn tau(&self, cluster: usize) -> f64 {
        let (between, within) = (self.chances.between, self.chances.within[cluster]);
        if between == 0.0 { 0.0 } else { between / (between + 2.0 * (1.0 - between) * within) }
    }

    /// How likely an iteration is a local step.
    pub fn chance_of_local(&self, cluster: usize) -> f64 {
        (1.0 - self.chances.between) * (1.0 - self.chances.within[cluster])
    }

    /// The pull of a step towards means.
    pub fn pulled(&self, cluster: usize, step: Step) -> Pulled {
        let (between, within) = (self.chances.between, self.chances.within[cluster]);
        let (alpha, tau) = (self.alpha[cluster], self.tau(cluster));
        let (own, all) = match step {
            Step::Between => (tau * (1.0 - alpha) / between, alpha / between),
            Step::Within => ((1.0 - tau) * (1.0 - alpha) / ((1.0 - between) * within), 0.0),
            Step::Local => (0.0, 0.0),
        };
        Pulled { rate: own + all, own, all }
    }

    /// Vectors a client keeps: θ, or y, z, x and h.
    fn vectors(&self) -> usize {
        if self.acceleration.is_some() { 4 } else { 1 }
    }

    /// The combination of a client's vectors at which gradients are taken: θ.
    fn point(&self) -> Vec<f64> {
        match self.acceleration {
            None => vec![1.0],
            Some(Accelerated { a: [a1, a2], .. }) => vec![1.0 - a1 - a2, a1, a2, 0.0],
        }
    }
}

/// Where a cluster stands, and what its clients do not know yet.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Position {
    /// The next iteration.
    time: usize,
    /// Local steps the clients are to take after the blend.
    local: u32,
    /// Whether the anchor was renewed at this time.
    refreshed: bool,
    /// For every class and vector: shares of the client's vectors, then of the pulls.
    blends: Vec<Vec<Vec<f64>>>,
    pulls: Vec<Vec<f64>>,
    /// What is known of the means over the clients.
    means: Means,
    /// The means at the anchor, x and h.
    anchor: Vec<f64>,
    anchor_slope: Vec<f64>,
    /// The last mean of the clients' models that was told.
    mean: Vec<f64>,
}

/// What the server knows of the means over a cluster's clients.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
enum Means {
    Unknown,
    /// Of θ alone.
    Point(Vec<f64>),
    /// Of every vector that moves: θ, or y and z.
    All(Vec<Vec<f64>>),
}

/// What clients send of themselves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    /// θ, where gradients are taken.
    Point,
    /// The vector of this number.
    Vector(usize),
}

/// The places of the vectors that Algorithm 2 has a client keep; Algorithm 1 has the first alone.
const Y: u32 = 0;
const Z: u32 = 1;
const ANCHOR: u32 = 2;
const WHOLE_GRADIENT: u32 = 3;
const MODEL: Part = Part::Vector(0);
const MOMENTUM: Part = Part::Vector(1);
const SLOPE: Part = Part::Vector(3);

/// Why a cluster cannot go on by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stop {
    /// Its mean must be told for a step towards it.
    Mean(Step),
    /// It waits for all others to step with them.
    Together,
    /// It waits for all others to renew the anchor.
    Refresh,
    /// All iterations are done.
    End,
}

/// A run of Algorithm 1 or 2.
#[derive(Serialize, Deserialize)]
pub struct Walk {
    pub constants: Constants,
    iterations: usize,
    start: Params,
    positions: Vec<Position>,
    /// The ask after which each client last kept its vectors; 0 before the first.
    pub stamps: Vec<u64>,
    /// Whether a local step was taken since everybody last stepped together.
    stirred: bool,
    /// How steep the objective is at the anchor before the last one, and was at the first.
    steepness: Option<(f64, f64)>,
    /// Rounds between clusters, within each of them, and of renewed anchors.
    pub between: usize,
    pub within: Vec<usize>,
    pub refreshes: usize,
    #[serde(skip)]
    coins: Option<Coins>,
}

/// What does not change in a walk.
pub struct Ground<'a> {
    families: &'a Families,
    strengths: &'a Strengths,
    scale: Scale,
    key: &'a Key,
}

impl<'a> Ground<'a> {
    pub fn new(base: &'a Base, strengths: &'a Strengths) -> Self {
        let scale = base.scale(strengths.noise);
        Self { families: &base.families, strengths, scale, key: &base.key }
    }
}

impl Walk {
    pub fn new(constants: Constants, iterations: usize, start: Params, ground: &Ground) -> Self {
        let vectors = constants.vectors();
        let position = |classes: &Vec<Class>| Position {
            time: 0,
            local: 0,
            refreshed: false,
            blends: vec![identity(vectors); classes.len()],
            pulls: Vec::new(),
            // Everybody begins at the same place.
            means: Means::All(vec![start.to_vec(); vectors.min(2)]),
            anchor: match constants.acceleration {
                Some(_) => start.to_vec(),
                None => vec![0.0; start.len()],
            },
            anchor_slope: vec![0.0; start.len()],
            mean: start.to_vec(),
        };
        Self {
            iterations,
            positions: ground.strengths.classes.iter().map(position).collect(),
            stamps: vec![0; ground.families.of.len()],
            stirred: false,
            steepness: None,
            between: 0,
            within: vec![0; ground.families.count()],
            refreshes: 0,
            coins: None,
            start,
            constants,
        }
    }

    /// The iterations every cluster has behind it.
    pub fn iterations_done(&self) -> usize {
        self.positions.iter().map(|position| position.time).min().unwrap_or(0)
    }

    /// Asks it will take, about: clusters ask together where they can, so this is at most what it says.
    pub fn expected_asks(&self) -> usize {
        let (between, within) = self.expected_rounds();
        let done = self.iterations_done().max(1) as f64;
        let refreshes = self.constants.acceleration.map_or(0.0, |it| 1.0 + it.refresh * done);
        let asks = between + within.iter().copied().fold(0.0, f64::max) + refreshes;
        (asks * self.iterations as f64 / done).ceil() as usize + 1
    }

    /// Rounds between clusters and within each of them that the coins bring on average over the iterations done,
    /// where clients of a cluster are pulled alike.
    pub fn expected_rounds(&self) -> (f64, Vec<f64>) {
        let Chances { between, within } = &self.constants.chances;
        let iterations = self.iterations_done().max(1) as f64;
        let all_within: f64 = within.iter().product();
        let apart = 1.0 - between;
        // A renewed anchor tells the means too: a step right after it needs no round.
        let unrenewed = 1.0 - self.constants.acceleration.map_or(0.0, |acceleration| acceleration.refresh);
        // Going back from a step of everybody: nothing but steps within clusters until the last time all means were known.
        let known = (1.0 - unrenewed * apart) / (1.0 - unrenewed * apart * all_within);
        let own = |chance: &f64| apart * apart * unrenewed * chance * (1.0 - chance) * iterations;
        (between * (1.0 - known) * iterations, within.iter().map(own).collect())
    }

    /// Its numbers for the summary.
    pub fn describe(&self, strengths: &Strengths, extra: &mut BTreeMap<String, f64>) {
        let clusters = self.within.len() as f64;
        let constants = &self.constants;
        extra.extend([
            ("step".to_string(), constants.step),
            ("chance_between".to_string(), constants.chances.between),
            ("chance_within".to_string(), constants.chances.within.iter().sum::<f64>() / clusters),
            ("rounds_between".to_string(), self.between as f64),
            ("rounds_within".to_string(), self.within.iter().sum::<usize>() as f64 / clusters),
        ]);
        if strengths.classes.iter().all(|classes| classes.len() == 1) {
            let (between, within) = self.expected_rounds();
            extra.insert("expected_between".into(), between);
            extra.insert("expected_within".into(), within.iter().sum::<f64>() / clusters);
        }
        if let Some(acceleration) = constants.acceleration {
            if let Some((now, first)) = self.steepness {
                extra.insert("steepness".into(), if first > 0.0 { now / first } else { 0.0 });
            }
            extra.insert("iterations_done".into(), self.iterations_done() as f64);
            let [b1, b2] = acceleration.b;
            extra.insert("convexity".into(), (1.0 - b1) / b2);
            extra.insert("refreshes".into(), self.refreshes as f64);
            extra.insert(
                "expected_refreshes".into(),
                1.0 + acceleration.refresh * (self.iterations_done() as f64 - 1.0),
            );
        }
    }

    /// The centres of the clusters and the global one, by the means that were last told: w̄ = θ̄ and, between the mean of
    /// the cluster and that of all, w_j = (1 − α_j)·θ̄_j + α_j·θ̄.
    pub fn centres(&self, ground: &Ground) -> (Vec<Params>, Params) {
        let global = self.mean_of_all(ground, |cluster| &self.positions[cluster].mean);
        let centre = |(position, alpha): (&Position, &f64)| {
            let between = |(own, all): (&f64, &f64)| (1.0 - alpha) * own + alpha * all;
            Arc::new(position.mean.iter().zip(&global).map(between).collect())
        };
        (self.positions.iter().zip(&self.constants.alpha).map(centre).collect(), Arc::new(global.clone()))
    }

    /// Everything up to the next answers from clients. Returns their mean loss, and whether that was the last round.
    pub fn round(&mut self, ground: &Ground, room: &mut Room) -> Result<(Option<f64>, bool)> {
        let constants = &self.constants;
        // A renewal before an iteration is decided with the one before it.
        let first = self.iterations_done().saturating_sub(1);
        let refresh_chance = constants.acceleration.map(|acceleration| acceleration.refresh);
        let made = || Coins::new(&constants.chances, refresh_chance, ground.key.clone().word("coins"), first);
        let mut coins = self.coins.take().unwrap_or_else(made);
        coins.forget(first);
        let stops = self.go_on(ground, &mut coins);
        let refresh = stops.iter().all(|stop| *stop == Stop::Refresh);
        let end = stops.iter().all(|stop| *stop == Stop::End);
        let is_asked = |cluster: &usize| refresh || end || matches!(stops[*cluster], Stop::Mean(_));
        let asked: Vec<usize> = (0..stops.len()).filter(is_asked).collect();
        let gather = Gather::Sum { by: By::All, weight: Weight::Uniform };
        let ask = Ask::new(Phase::Train, Vec::new(), gather);
        let mut message = Message { start: None, ask, orders: Vec::new() };
        let mut told: Vec<(usize, Vec<Part>, Range<usize>)> = Vec::new();
        for cluster in asked {
            let sends = self.sends(cluster, stops[cluster], &mut coins);
            let begin = message.orders.len();
            self.write_orders(ground, cluster, refresh, &sends, &mut message);
            told.push((cluster, sends, begin..message.orders.len()));
        }
        self.coins = Some(coins);
        let Message { ask, orders, .. } = message;
        if orders.is_empty() {
            return Ok((None, end));
        }
        let answers = self.ask(&ask, room)?;
        let told_by_all: Vec<Advanced> =
            orders.iter().flat_map(|(_, order)| answers.of(*order).each().collect::<Vec<_>>()).map(|it| it.1).collect();
        let losses: Vec<f64> = told_by_all.iter().map(|told| told.loss).collect();
        let loss = room.watch(&losses)?;
        if refresh && self.refreshes > 0 {
            let now = told_by_all.iter().filter_map(|told| told.squared_length).sum::<f64>().sqrt();
            self.steepness = Some((now, self.steepness.map_or(now, |(_, first)| first)));
        }
        for (cluster, sends, places) in told {
            let sums = orders[places].iter().map(|(gamma, order)| (*gamma, answers.of(*order).sums()));
            let mean = weighted_mean(sums);
            self.learn(cluster, stops[cluster], &sends, mean);
        }
        if refresh {
            self.refreshes += 1;
            self.stirred = false;
            self.renew_anchors(ground);
        }
        Ok((loss, end || (refresh && self.has_converged() == Some(true))))
    }

    /// Asks, and notes what everybody holds afterwards. Plain steps go on without those who did not answer; accelerated
    /// ones need everybody.
    fn ask(&mut self, ask: &Ask, room: &mut Room) -> Result<Answers> {
        if self.constants.acceleration.is_some() {
            let (answers, stamps) = ask_everybody(ask, room)?;
            stamps.into_iter().for_each(|(client, stamp)| self.stamps[client as usize] = stamp);
            return Ok(answers);
        }
        let answers = room.ask(ask)?;
        stamps_after(&answers).for_each(|(client, stamp)| self.stamps[client as usize] = stamp);
        Ok(answers)
    }

    /// How often clusters had to talk.
    pub fn rounds_in_words(&self) -> String {
        let within = self.within.iter().sum::<usize>() as f64 / self.within.len().max(1) as f64;
        let anchors = match self.constants.acceleration {
            Some(_) => format!(", {} to renew the anchor", self.refreshes),
            None => String::new(),
        };
        let between = if self.between == 1 { "1 round".to_string() } else { format!("{} rounds", self.between) };
        let iterations = self.iterations_done();
        format!("{iterations} iterations: {between} between clusters, {within:.1} within one{anchors}")
    }

    /// Whether the objective is flat where the anchor is, by its tolerance; `None` without acceleration, which never is.
    pub fn has_converged(&self) -> Option<bool> {
        let tolerance = self.constants.acceleration?.tolerance;
        Some(self.steepness.is_some_and(|(now, first)| now <= tolerance * first))
    }

    /// Has every cluster go on as far as it can without an answer; says why each one stopped.
    fn go_on(&mut self, ground: &Ground, coins: &mut Coins) -> Vec<Stop> {
        loop {
            let stops: Vec<Stop> =
                (0..self.positions.len()).map(|cluster| self.go_on_alone(ground, cluster, coins)).collect();
            if stops.iter().any(|stop| *stop != Stop::Together) {
                return stops;
            }
            let points: Vec<Vec<f64>> = self.positions.iter().map(|position| self.point(position)).collect();
            let of_points = self.mean_of_all(ground, |cluster| &points[cluster]);
            let of_anchors = self.mean_of_all(ground, |cluster| &self.positions[cluster].anchor);
            let moved: Vec<f64> = of_points.iter().zip(&of_anchors).map(|(point, anchor)| point - anchor).collect();
            if self.stirred || ground.strengths.classes.iter().any(|classes| classes.len() > 1) {
                self.between += 1;
            }
            self.stirred = false;
            (0..self.positions.len()).for_each(|cluster| self.pull(ground, cluster, Step::Between, &moved));
        }
    }

    fn go_on_alone(&mut self, ground: &Ground, cluster: usize, coins: &mut Coins) -> Stop {
        loop {
            let position = &mut self.positions[cluster];
            if position.time == self.iterations {
                return Stop::End;
            }
            if coins.refreshes_before(position.time) && !position.refreshed {
                return Stop::Refresh;
            }
            let is_known = position.local == 0 && position.means != Means::Unknown;
            match coins.step(cluster, position.time) {
                Step::Local => {
                    position.local += 1;
                    position.time += 1;
                    position.refreshed = false;
                    self.stirred = true;
                }
                Step::Within if is_known => self.pull(ground, cluster, Step::Within, &vec![0.0; self.start.len()]),
                Step::Between if is_known => return Stop::Together,
                step => return Stop::Mean(step),
            }
        }
    }

    /// The known mean of θ over a cluster.
    fn point(&self, position: &Position) -> Vec<f64> {
        match &position.means {
            Means::Unknown => position.mean.clone(),
            Means::Point(point) => point.clone(),
            Means::All(means) => {
                let mut point = vec![0.0; position.mean.len()];
                let vectors = means.iter().chain([&position.anchor]);
                vectors.zip(self.constants.point()).for_each(|(mean, share)| add_scaled(&mut point, share, mean));
                point
            }
        }
    }

    /// Everybody's mean, clusters weighted by α_j·Σγ_i; where nothing ties them together, by Σγ_i.
    fn mean_of_all<'a>(&self, ground: &Ground, of: impl Fn(usize) -> &'a Vec<f64>) -> Vec<f64> {
        let totals: Vec<f64> = ground.strengths.totals();
        let tied: Vec<f64> = totals.iter().zip(&self.constants.alpha).map(|(total, alpha)| total * alpha).collect();
        let sizes: Vec<f64> = ground.families.members.iter().map(|members| members.len() as f64).collect();
        let candidates = [tied, totals, sizes];
        let weights = candidates.iter().find(|weights| weights.iter().sum::<f64>() > 0.0).unwrap_or(&candidates[2]);
        let whole: f64 = weights.iter().sum();
        let mut mean = vec![0.0; self.start.len()];
        weights.iter().enumerate().for_each(|(cluster, weight)| add_scaled(&mut mean, weight / whole, of(cluster)));
        mean
    }

    /// A step towards means, for everybody in a cluster. `moved` is how far everybody's mean is from that of the anchors.
    fn pull(&mut self, ground: &Ground, cluster: usize, step: Step, moved: &[f64]) {
        let pulled = self.constants.pulled(cluster, step);
        let rate = pulled.rate;
        let mut own = self.point(&self.positions[cluster]);
        let position = &mut self.positions[cluster];
        add_scaled(&mut own, -1.0, &position.anchor);
        let towards = pulled.towards(&own, moved);
        let constants = &self.constants;
        let classes = &ground.strengths.classes[cluster];
        for (class, blend) in classes.iter().zip(&mut position.blends) {
            blend.iter_mut().for_each(|shares| shares.push(0.0));
            constants.take_step(blend, class.gamma * rate, |gradient| {
                *gradient.last_mut().unwrap_or(&mut 0.0) -= class.gamma;
            });
        }
        match (&mut position.means, classes.as_slice()) {
            (Means::All(means), [class]) => {
                let mut vectors: Vec<Vec<f64>> = std::mem::take(means);
                if constants.acceleration.is_some() {
                    vectors.extend([position.anchor.clone(), position.anchor_slope.clone()]);
                }
                constants.take_step(&mut vectors, class.gamma * rate, |gradient| {
                    add_scaled(gradient, -class.gamma, &towards);
                });
                vectors.truncate(2);
                position.mean = vectors[0].clone();
                position.means = Means::All(vectors);
            }
            (means, _) => *means = Means::Unknown,
        }
        position.pulls.push(towards);
        position.time += 1;
        position.refreshed = false;
    }

    /// What a cluster's clients have to send, with the coins to come in view.
    fn sends(&self, cluster: usize, stop: Stop, coins: &mut Coins) -> Vec<Part> {
        let position = &self.positions[cluster];
        let is_known = position.local == 0 && matches!(position.means, Means::All(_));
        let alike = position.blends.len() == 1;
        let mut averages = |time: usize| time < self.iterations && coins.step(cluster, time) != Step::Local;
        let mut parts = if is_known { Vec::new() } else { vec![MODEL] };
        match stop {
            _ if self.constants.acceleration.is_none() || stop == Stop::End => parts,
            Stop::Refresh => {
                if alike && !is_known && averages(position.time) {
                    parts.push(MOMENTUM);
                }
                if alike {
                    parts.push(SLOPE);
                }
                parts
            }
            // The mean of θ is enough for one step; a second one right after it needs those of y and z.
            _ if alike && averages(position.time + 1) && !coins.refreshes_before(position.time + 1) => {
                vec![MODEL, MOMENTUM]
            }
            _ => vec![Part::Point],
        }
    }

    /// The orders of a cluster's clients: what was gathered for them, then their local steps.
    fn write_orders(&self, ground: &Ground, cluster: usize, refresh: bool, sends: &[Part], message: &mut Message) {
        let position = &self.positions[cluster];
        let vectors = self.constants.vectors();
        let untouched = position.local == 0 && position.pulls.is_empty() && !refresh;
        if untouched && sends.is_empty() {
            return;
        }
        let unit = |vector: usize| (0..vectors).map(|other| f64::from(u8::from(other == vector))).collect();
        let send = |part: &Part| match part {
            Part::Point => self.constants.point(),
            Part::Vector(vector) => unit(*vector),
        };
        let send: Vec<Vec<f64>> = sends.iter().map(send).collect();
        let chance = self.constants.chance_of_local(cluster);
        let run = (position.local > 0).then(|| Run {
            steps: position.local,
            step: match self.constants.acceleration {
                None => self.constants.step / chance,
                Some(_) => self.constants.step,
            },
            sample: Sample {
                on: Portion::All,
                batch: self.constants.acceleration.and_then(|acceleration| acceleration.batch),
                seed: ground.key.clone().word("rows").number(position.time as u64).number(cluster as u64).seed(),
            },
            acceleration: self.constants.acceleration.map(|Accelerated { a, b, .. }| Acceleration {
                vectors: [Y, Z, ANCHOR, WHOLE_GRADIENT],
                a,
                b,
                chance,
            }),
        });
        let first_pull = message.ask.models.len();
        let moved =
            position.blends[0].iter().filter(|shares| shares[vectors..].iter().any(|share| *share != 0.0)).count();
        // Each pull travels, unless what they add up to in the vectors they move is less.
        let whole = position.pulls.len() <= moved || position.blends.len() > 1;
        if whole {
            message.ask.models.extend(position.pulls.iter().cloned().map(Arc::new));
        }
        for (class, blend) in ground.strengths.classes[cluster].iter().zip(&position.blends) {
            let mut add = Vec::new();
            for (vector, shares) in (0u32..).zip(blend) {
                let pulls = shares[vectors..].iter().enumerate().filter(|(_, share)| **share != 0.0);
                if whole {
                    add.extend(pulls.map(|(pull, &times)| Addend { to: vector, model: first_pull + pull, times }));
                } else if pulls.clone().next().is_some() {
                    let mut sum = vec![0.0; self.start.len()];
                    pulls.for_each(|(pull, &times)| add_scaled(&mut sum, times, &position.pulls[pull]));
                    add.push(Addend { to: vector, model: message.ask.models.len(), times: 1.0 });
                    message.ask.models.push(Arc::new(sum));
                }
            }
            let matrix: Vec<f64> = blend.iter().flat_map(|shares| shares[..vectors].iter().copied()).collect();
            let blend = (!position.pulls.is_empty()).then_some(Blend { matrix, add });
            for (stamp, to) in class.by_stamp(&self.stamps) {
                let from = match stamp {
                    0 => Start::Model(*message.start.get_or_insert_with(|| {
                        message.ask.models.push(self.start.clone());
                        message.ask.models.len() - 1
                    })),
                    stamp => Start::Own { stamp },
                };
                let advance = Advance {
                    from,
                    vectors: vectors as u32,
                    blend: blend.clone(),
                    run: run.clone(),
                    renewal: refresh.then_some(Renewal { copy: ANCHOR, gradient: WHOLE_GRADIENT }),
                    measured: (vectors > 1).then_some(WHOLE_GRADIENT),
                    send: send.clone(),
                    scale: ground.scale,
                };
                let order = message.ask.order(to, advance);
                message.orders.push((class.gamma, order));
            }
        }
    }

    /// Takes in what a cluster's clients told of themselves; nothing, where none of them answered.
    fn learn(&mut self, cluster: usize, stop: Stop, sends: &[Part], told: Option<Vec<f64>>) {
        let width = self.start.len();
        let vectors = self.constants.vectors();
        if let Stop::Mean(Step::Within) = stop {
            self.within[cluster] += 1;
        }
        let position = &mut self.positions[cluster];
        position.local = 0;
        position.pulls.clear();
        position.blends.iter_mut().for_each(|blend| *blend = identity(vectors));
        let part = |wanted: Part| {
            let place = sends.iter().position(|part| *part == wanted)?;
            told.as_ref().map(|told| told[place * width..(place + 1) * width].to_vec())
        };
        let (point, model, momentum, slope) = (part(Part::Point), part(MODEL), part(MOMENTUM), part(SLOPE));
        if let Some(mean) = model.as_ref().or(point.as_ref()) {
            position.mean = mean.clone();
        }
        if let Some(slope) = slope {
            position.anchor_slope = slope;
        }
        if stop == Stop::Refresh {
            position.anchor = position.mean.clone();
        }
        position.means = match (point, model, momentum) {
            (Some(point), ..) => Means::Point(point),
            (_, Some(model), Some(momentum)) => Means::All(vec![model, momentum]),
            (_, Some(model), None) if vectors == 1 => Means::All(vec![model]),
            (_, Some(_), None) => Means::Unknown,
            // Nothing was asked for because all was known, or nobody answered: what was known last has to do.
            _ => match std::mem::replace(&mut position.means, Means::Unknown) {
                Means::Unknown => Means::Point(position.mean.clone()),
                known => known,
            },
        };
    }

    /// With every cluster's mean at the new anchor known, the pulls there are too: h ← ∇f(x) + γ·(x − towards).
    fn renew_anchors(&mut self, ground: &Ground) {
        let of_all = self.mean_of_all(ground, |cluster| &self.positions[cluster].anchor);
        for (cluster, position) in self.positions.iter_mut().enumerate() {
            let alpha = self.constants.alpha[cluster];
            let mut towards: Vec<f64> = position.anchor.iter().map(|x| (1.0 - alpha) * x).collect();
            add_scaled(&mut towards, alpha, &of_all);
            let classes = &ground.strengths.classes[cluster];
            for (class, blend) in classes.iter().zip(&mut position.blends) {
                blend.iter_mut().for_each(|shares| shares.push(0.0));
                blend[3][2] = class.gamma;
                blend[3][4] = -class.gamma;
            }
            if let [class] = classes.as_slice() {
                add_scaled(&mut position.anchor_slope, class.gamma, &position.anchor);
                add_scaled(&mut position.anchor_slope, -class.gamma, &towards);
            }
            position.pulls.push(towards);
            position.refreshed = true;
        }
    }
}

impl Constants {
    /// One step of the vectors (θ, or y, z, x and h), each given as numbers of any kind: of a client, of a mean, or as
    /// shares. The gradient is h + rate·(θ − x), and what `pull` makes of it; without acceleration h and x are 0.
    pub(super) fn take_step(&self, vectors: &mut [Vec<f64>], rate: f64, pull: impl FnOnce(&mut [f64])) {
        let mut point = vec![0.0; vectors[0].len()];
        vectors.iter().zip(self.point()).for_each(|(vector, share)| add_scaled(&mut point, share, vector));
        let mut gradient: Vec<f64> = point.iter().map(|value| rate * value).collect();
        if let [_, _, anchor, whole] = &*vectors {
            add_scaled(&mut gradient, -rate, anchor);
            add_scaled(&mut gradient, 1.0, whole);
        }
        pull(&mut gradient);
        if let (Some(Accelerated { b: [b1, b2], .. }), [_, momentum, ..]) = (self.acceleration, &mut *vectors) {
            momentum.iter_mut().for_each(|value| *value *= b1);
            add_scaled(momentum, 1.0 - b1, &point);
            add_scaled(momentum, -b2, &gradient);
        }
        add_scaled(&mut point, -self.step, &gradient);
        vectors[0] = point;
    }
}

/// An ask in the making.
struct Message {
    /// Where the model is at which everybody begins.
    start: Option<usize>,
    ask: Ask,
    /// Each with the γ of the clients it is for.
    orders: Vec<(f64, Handle<Advanced>)>,
}

/// Σ γ·(what was sent) / Σ γ over the answers, plainly where every γ is 0; `None` where nobody sent anything.
fn weighted_mean<'a>(sums: impl Iterator<Item = (f64, &'a [Sum])>) -> Option<Vec<f64>> {
    let sums: Vec<(f64, &Sum)> =
        sums.filter_map(|(gamma, sums)| Some((gamma, sums.first()?))).filter(|(_, sum)| sum.count > 0).collect();
    let length = sums.first()?.1.total.len();
    let pulled = sums.iter().any(|(gamma, _)| *gamma > 0.0);
    let weight = |gamma: f64| if pulled { gamma } else { 1.0 };
    let whole: f64 = sums.iter().map(|(gamma, sum)| weight(*gamma) * sum.weight).sum();
    let mut mean = vec![0.0; length];
    sums.iter().for_each(|(gamma, sum)| add_scaled(&mut mean, weight(*gamma) / whole, &sum.total));
    Some(mean)
}

fn identity(size: usize) -> Vec<Vec<f64>> {
    (0..size).map(|row| (0..size).map(|column| f64::from(u8::from(row == column))).collect()).collect()
}
