//! The engine in this process. What the clients' backend takes, it computes in blocks; all else is done client by client.

use super::*;
use crate::compute::{Backend, Batch, Computed, Cpu, Job, Sums};
use crate::federation::client::host::Host;
use crate::federation::fixed::{SumOrder, Summation, Summed};
use crate::federation::hidden::{AddedBy, Hiding};
use crate::federation::sealed::{SealedOrder, SealedSum, Sealing};
use crate::federation::secure::Minimum;
use crate::federation::server::gather::{Addition, is_suspect, longest};
use crate::federation::server::{Exchange, Server};
use crate::federation::work::Reply;
use crate::federation::{Absence, Answers, Ask, ClientInfo, Gather, Order, OrderIndex, Phase};
use crate::memory::check_room;
use crate::models::{Reduced, Step, Summing, Worker};
use crate::privacy::Hidden;
use crate::privacy::clients::ClientPrivacy;
use crate::training::Then;
use std::ops::Range;

/// Clients in this process.
pub struct LocalFederation {
    pub(in crate::federation) host: Host,
    infos: Vec<ClientInfo>,
    server: Server,
    pool: Arc<rayon::ThreadPool>,
    backend: Arc<dyn Backend>,
    stop: Arc<AtomicBool>,
    single_answers: bool,
    /// What hides single clients, and in how many sums they have been.
    hidden: Option<(ClientPrivacy, u64)>,
}

impl LocalFederation {
    /// A federation of these clients.
    pub fn new(clients: Vec<Client>, pool: Arc<rayon::ThreadPool>) -> Self {
        let infos = clients.iter().map(|client| ClientInfo { id: client.id.clone() }).collect();
        Self {
            host: Host::new(Arc::new(clients)),
            infos,
            server: Server::default(),
            pool,
            backend: Arc::new(Cpu),
            stop: Arc::new(AtomicBool::new(false)),
            single_answers: false,
            hidden: None,
        }
    }

    /// Has clients compute on this backend. Before they get their model.
    pub fn with_backend(mut self, backend: Arc<dyn Backend>) -> Self {
        self.backend = backend;
        self
    }

    /// Has these transforms act on answers.
    pub fn with_transforms(mut self, transforms: Transforms) -> Self {
        self.server.transforms = transforms;
        self
    }

    /// Sums single answers at the server, as over a wire, instead of reducing while computing.
    pub fn from_single_answers(mut self) -> Self {
        self.single_answers = true;
        self
    }

    /// Sums single answers as integers: the bits that clients on other machines give, however they are spread.
    pub fn with_integer_sums(mut self) -> Self {
        self.server.addition = Addition::Integer;
        self
    }

    /// Tells only sums over all clients, and nothing of a single one.
    pub fn with_sealed_sums(mut self) -> Self {
        self.server.addition = Addition::Sealed;
        self
    }

    /// The same without slots of few clients, as in secure sums over machines.
    pub fn with_secure_sums(mut self, minimum: Minimum) -> Self {
        self.server.addition = Addition::Secure(minimum);
        self
    }

    fn rows(&self) -> Vec<u32> {
        self.host.clients().iter().map(|client| client.train.len() as u32).collect()
    }

    /// The clients' side.
    pub fn host(&self) -> &Host {
        &self.host
    }

    /// Gives the clients their model.
    pub fn set_model(&mut self, model: Arc<dyn Model>) -> Result<()> {
        self.host.set_model(model, &self.pool, &*self.backend)
    }

    /// Whether every order can be summed while computing: an order whose single answers are altered cannot.
    fn reduces(&self, ask: &Ask) -> bool {
        let vector = |step: &Step| matches!(step, Step::Choose(step) if *step.then != Then::Nothing);
        let summable =
            |order: &Order| order.work.step().is_some_and(|step| vector(&step) && self.host.takes(&step, ask.phase));
        let is_plain = !self.single_answers && self.server.addition == Addition::Float;
        is_plain && !self.server.transforms.alter_answers() && ask.orders.iter().all(summable)
    }

    /// Has the backend carry out the orders that it takes; `take` gets their results. Returns which orders are left.
    fn compute(
        host: &mut Host,
        stop: &AtomicBool,
        (ask, models, absences): (&Ask, &[Vec<f64>], &[Option<Absence>]),
        summing: Option<Summing>,
        take: &mut (dyn FnMut(usize, Computed) + Send),
    ) -> Result<Vec<bool>> {
        let present = |order: &Order| {
            let all = order.to.among(absences.len());
            all.filter(|&client| absences[client as usize].is_none()).collect::<Vec<u32>>()
        };
        let (mut jobs, mut left) = (Vec::new(), vec![true; ask.orders.len()]);
        for (place, order) in ask.orders.iter().enumerate() {
            if let Some(step) = order.work.step().filter(|step| host.takes(step, ask.phase)) {
                jobs.push(Job { place, to: present(order), step });
                left[place] = false;
            }
        }
        if jobs.is_empty() {
            return Ok(left);
        }
        let longest_model = longest(ask);
        let plausible =
            |job: usize, reduced: &Reduced| !is_suspect(&ask.orders[jobs[job].place].work, reduced, longest_model);
        let models: Vec<&[f64]> = models.iter().map(Vec::as_slice).collect();
        let sums = summing.map(|summing| Sums { summing, plausible: &plausible });
        let batch = Batch { models: &models, jobs: &jobs, sums, stop };
        host.run(&batch, &mut |job, computed| take(jobs[job].place, computed))?;
        Ok(left)
    }

    /// The orders that are left, client by client. Where `patient`, `take` gets clients' errors too; else the first ends
    /// the ask.
    fn answer(
        &self,
        (ask, stamp, patient): (&Ask, u64, bool),
        models: &[Vec<f64>],
        (index, absences, left): (&OrderIndex, &[Option<Absence>], &[bool]),
        mut take: impl FnMut(usize, u32, Result<Reply>) + Send,
    ) -> Result<()> {
        if !left.contains(&true) {
            return Ok(());
        }
        let precision = self.host.model()?.precision();
        let answer = |worker: &mut dyn Worker, order: usize, client: u32| {
            let mut reply =
                self.host.answer(worker, models, (stamp, order, ask.phase), &ask.orders[order].work, client)?;
            reply.vector.iter_mut().for_each(|vector| precision.round(vector));
            self.server.transform(ask, models, order, &self.infos[client as usize].id, &mut reply);
            Ok(reply)
        };
        let work = |worker: &mut dyn Worker, block: Range<u32>| {
            let mut replies: Vec<(usize, u32, Result<Reply>)> = Vec::new();
            for client in block.filter(|&client| absences[client as usize].is_none()) {
                for order in index.of_client(client).iter().map(|&order| order as usize).filter(|&order| left[order]) {
                    let reply = answer(worker, order, client);
                    replies.push((order, client, if patient { reply } else { Ok(reply?) }));
                }
            }
            Ok(replies)
        };
        let slices: Vec<&[f64]> = models.iter().map(Vec::as_slice).collect();
        self.host.threads()?.in_blocks(&slices, &self.stop, usize::MAX, work, |replies| {
            replies.into_iter().for_each(|(order, client, reply)| take(order, client, reply));
        })
    }

    /// The sums of all that a machine's clients answer to an ask with this stamp, by order, and why clients are in none of them.
    pub(in crate::federation) fn sealed_sums(
        &mut self,
        ask: &Ask,
        stamp: u64,
        orders: &[SealedOrder],
    ) -> Result<SealedSums> {
        let count = self.infos.len();
        ask.check(count)?;
        ask.suits(&**self.host.model()?)?;
        let (index, absences) = (OrderIndex::of(ask, count), vec![None; count]);
        let models: Vec<Vec<f64>> = ask.models.iter().map(|model| model.to_vec()).collect();
        self.seal((ask, stamp, true), &models, (&index, &absences), orders)
    }

    /// The same in an ask that was checked; where not `patient`, the first error of a client ends it.
    fn seal(
        &mut self,
        (ask, stamp, patient): (&Ask, u64, bool),
        models: &[Vec<f64>],
        (index, absences): (&OrderIndex, &[Option<Absence>]),
        orders: &[SealedOrder],
    ) -> Result<SealedSums> {
        let (model, rows) = (self.host.model()?.clone(), self.rows());
        let mut sealing = Sealing::new(ask, &*model, &rows, orders)?;
        let mut left_out = Vec::new();
        let Self { host, server, infos, stop, .. } = self;
        let left = Self::compute(host, stop, (ask, models, absences), None, &mut |order, computed| {
            if let Computed::Single(client, found) = computed {
                let mut reply = Reply::of(rows[client as usize], found, ask.orders[order].work.tells_choice());
                server.transform(ask, models, order, &infos[client as usize].id, &mut reply);
                left_out.extend(sealing.take(order, client, reply).err().map(|why| (client, why)));
            }
        })?;
        self.answer((ask, stamp, patient), models, (index, absences, &left), |order, client, reply| {
            let taken = reply.map_err(|error| error.to_string()).and_then(|reply| sealing.take(order, client, reply));
            left_out.extend(taken.err().map(|why| (client, why)));
        })?;
        Ok((sealing.finish(), left_out))
    }

    /// An ask of which only sums are told.
    fn ask_for_sums(&mut self, ask: &Ask) -> Result<Answers> {
        let model = self.host.model()?.clone();
        let mut exchange = self.server.open(ask, &self.infos, self.rows(), &*model)?;
        let orders = exchange.gatherer.seal()?;
        let work = (ask, self.server.asked, false);
        let (sums, _) = self.seal(work, &exchange.models, (&exchange.index, &exchange.absences), &orders)?;
        for (order, sum) in sums.iter().enumerate() {
            let asked = ask.orders[order].to.among(self.infos.len());
            let present: Vec<u32> = asked.filter(|&client| exchange.absences[client as usize].is_none()).collect();
            exchange.gatherer.take_sealed(order, &present, sum);
        }
        Ok(self.server.close(exchange))
    }

    /// An ask of which sums are told that hide single clients.
    fn ask_for_hidden_sums(&mut self, ask: &Ask, privacy: ClientPrivacy, spent: u64) -> Result<Answers> {
        let model = self.host.model()?.clone();
        let mut exchange = self.server.open(ask, &self.infos, self.rows(), &*model)?;
        let Exchange { index, absences, models, gatherer, .. } = &mut exchange;
        let size = (model.layout().len(), model.precision());
        let mut hiding = Hiding::new(ask, models, size, privacy, |_| ask.gather)?;
        self.hidden = Some((privacy, hiding.spend(spent)?));
        let stamp = self.server.asked;
        self.hide_in((ask, stamp), models, (index, absences), &mut hiding)?;
        hiding.add_noise(privacy.source_of(stamp), AddedBy::Each(1));
        for (order, sums) in hiding.open(AddedBy::Each(1)).into_iter().enumerate() {
            gatherer.take_hidden(order, sums);
        }
        Ok(self.server.close(exchange))
    }

    /// Adds what clients answer to sums that hide them.
    fn hide_in(
        &mut self,
        (ask, stamp): (&Ask, u64),
        models: &[Vec<f64>],
        (index, absences): (&OrderIndex, &[Option<Absence>]),
        hiding: &mut Hiding,
    ) -> Result<()> {
        let rows = self.rows();
        let Self { host, server, infos, stop, .. } = self;
        let left = Self::compute(host, stop, (ask, models, absences), None, &mut |order, computed| {
            if let Computed::Single(client, found) = computed {
                let mut reply = Reply::of(rows[client as usize], found, ask.orders[order].work.tells_choice());
                server.transform(ask, models, order, &infos[client as usize].id, &mut reply);
                hiding.take(order, reply);
            }
        })?;
        self.answer((ask, stamp, true), models, (index, absences, &left), |order, _, reply| {
            reply.into_iter().for_each(|reply| hiding.take(order, reply));
        })
    }

    /// The sums of all that a machine's clients answer to an ask with this stamp, by order: each client's part is cut, and `noise` is
    /// added by somebody, if anybody.
    pub(in crate::federation) fn hidden_sums(
        &mut self,
        ask: &Ask,
        stamp: u64,
        (privacy, orders): (ClientPrivacy, &[SealedOrder]),
        noise: Option<AddedBy>,
    ) -> Result<Vec<SealedSum>> {
        let (count, model) = (self.infos.len(), self.host.model()?.clone());
        ask.check(count)?;
        ask.suits(&*model)?;
        if orders.len() != ask.orders.len() {
            return Err(Error::federation("sums of some orders only, want all of them"));
        }
        let (index, absences) = (OrderIndex::of(ask, count), vec![None; count]);
        let models: Vec<Vec<f64>> = ask.models.iter().map(|model| model.to_vec()).collect();
        let size = (model.layout().len(), model.precision());
        let mut hiding = Hiding::new(ask, &models, size, privacy, |order| orders[order].sum.gather())?;
        self.hide_in((ask, stamp), &models, (&index, &absences), &mut hiding)?;
        noise.into_iter().for_each(|by| hiding.add_noise(privacy.source_of(stamp), by));
        Ok(hiding.into_sums().into_iter().map(SealedSum).collect())
    }

    /// The replies of a machine's clients to an ask with this stamp, and the sums of those orders that have some. A client
    /// that fails leaves the others alone.
    pub(in crate::federation) fn replies(
        &mut self,
        ask: &Ask,
        stamp: u64,
        sums: &[Option<SumOrder>],
    ) -> Result<(Vec<ClientOutcome>, OrderSums)> {
        let count = self.infos.len();
        ask.check(count)?;
        let model = self.host.model()?.clone();
        ask.suits(&*model)?;
        let (index, absences) = (OrderIndex::of(ask, count), vec![None; count]);
        let models: Vec<Vec<f64>> = ask.models.iter().map(|model| model.to_vec()).collect();
        let (rows, mut replies) = (self.rows(), Vec::new());
        let mut summation = Summation::new(ask, &*model, &rows, sums)?;
        let left =
            Self::compute(&mut self.host, &self.stop, (ask, &models, &absences), None, &mut |order, computed| {
                if let Computed::Single(client, found) = computed {
                    let tells_choice = ask.orders[order].work.tells_choice();
                    let single = summation.take(order, client, Reply::of(rows[client as usize], found, tells_choice));
                    replies.extend(single.map(|reply| (order, client, Ok(reply))));
                }
            })?;
        self.answer((ask, stamp, true), &models, (&index, &absences, &left), |order, client, reply| {
            let reply = match reply {
                Ok(reply) => summation.take(order, client, reply).map(Ok),
                Err(error) => Some(Err(error)),
            };
            replies.extend(reply.map(|reply| (order, client, reply)));
        })?;
        Ok((replies, summation.finish().collect()))
    }
}

/// The sums of all orders, and why clients are in none of them.
pub(in crate::federation) type SealedSums = (Vec<SealedSum>, Vec<(u32, String)>);

/// The sums of the orders that have some.
pub(in crate::federation) type OrderSums = Vec<(usize, Summed)>;

/// A client's reply to an order, or its error.
pub(in crate::federation) type ClientOutcome = (usize, u32, Result<Reply>);

impl Federation for LocalFederation {
    fn clients(&self) -> &[ClientInfo] {
        &self.infos
    }

    fn meter(&self) -> &Meter {
        &self.server.meter
    }

    fn hides_clients(&self) -> bool {
        self.hidden.is_some()
    }

    fn is_sealed(&self) -> bool {
        self.server.addition.is_sealed()
    }

    fn ask(&mut self, ask: &Ask) -> Result<Answers> {
        if let Some((privacy, spent)) = self.hidden.filter(|_| ask.phase != Phase::Evaluate) {
            return self.ask_for_hidden_sums(ask, privacy, spent);
        }
        if self.is_sealed() {
            return self.ask_for_sums(ask);
        }
        let (model, rows) = (self.host.model()?.clone(), self.rows());
        let mut exchange = self.server.open(ask, &self.infos, rows.clone(), &*model)?;
        let Exchange { index, absences, models, gatherer, .. } = &mut exchange;
        let summing = match ask.gather {
            Gather::Sum { by, weight } => Some(Summing { by, weight }).filter(|_| self.reduces(ask)),
            Gather::Each => {
                let is_vector = |order: &&Order| order.work.sends_vector();
                let answers = ask.orders.iter().filter(is_vector).map(|order| order.to.among(self.infos.len()).count());
                check_room("every client's own answer", &[answers.sum(), model.layout().len()], size_of::<f64>())?;
                None
            }
        };
        let sums = gatherer.sums_wanted(self.server.transforms.alter_answers());
        let mut summation = Summation::new(ask, &*model, &rows, &sums)?;
        let Self { host, server, infos, stop, .. } = self;
        let (stamp, holds_back) = (server.asked, server.holds_back(ask));
        let mut held = Vec::new();
        let left =
            Self::compute(host, stop, (ask, models, absences), summing, &mut |order, computed| match computed {
                Computed::Sums(clients, reduced) => gatherer.take_sums(order, clients, reduced),
                Computed::Single(client, found) => {
                    let mut reply = Reply::of(rows[client as usize], found, ask.orders[order].work.tells_choice());
                    server.transform(ask, models, order, &infos[client as usize].id, &mut reply);
                    if holds_back {
                        return held.push((order, client, reply));
                    }
                    summation.take(order, client, reply).into_iter().for_each(|it| gatherer.take(order, client, it));
                }
            })?;
        self.answer((ask, stamp, false), models, (index, absences, &left), |order, client, reply| {
            if holds_back {
                return held.extend(reply.ok().map(|reply| (order, client, reply)));
            }
            let single = reply.ok().and_then(|reply| summation.take(order, client, reply));
            single.into_iter().for_each(|reply| gatherer.take(order, client, reply));
        })?;
        let together = (ask, &models[..], &self.infos[..]);
        self.server.transform_together(together, held, |order, client, reply| gatherer.take(order, client, reply));
        for (order, summed) in summation.finish() {
            gatherer.take_summed(order, &summed, Some);
        }
        let to_remove = gatherer.judge();
        if !to_remove.is_empty() {
            let models = models.iter().cloned().map(Arc::new).collect();
            let refused =
                Ask { models, ..ask.only(self.infos.len(), |order, client| to_remove.contains(&(order, client))) };
            for (order, summed) in self.replies(&refused, stamp, &sums)?.1 {
                gatherer.remove_sums(order, &summed.sums);
            }
        }
        Ok(self.server.close(exchange))
    }
}

impl Engine for LocalFederation {
    fn describe(&mut self, moments: bool) -> Result<Vec<Option<Description>>> {
        let describe = |(client, rows): (u32, u32)| {
            Some(self.host.describe(client, moments)).filter(|description| is_possible(rows, description))
        };
        Ok((0..).zip(self.rows()).map(describe).collect())
    }

    fn adopt(&mut self, schema: &Schema) -> Result<Option<Vec<Client>>> {
        self.host.adopt(schema).map(|()| Some(self.host.clients().to_vec()))
    }

    fn widen(&mut self, schema: &Schema) -> Result<()> {
        self.host.widen(schema)
    }

    fn equip(&mut self, model: &Arc<dyn Model>, _: &Blueprint) -> Result<()> {
        self.set_model(model.clone())
    }

    fn afresh(&self, _: &str, transforms: Transforms, stop: Arc<AtomicBool>) -> Result<Box<dyn Engine>> {
        Ok(Box::new(Self {
            host: self.host.afresh()?,
            infos: self.infos.clone(),
            server: Server { transforms, addition: self.server.addition, ..Server::default() },
            pool: self.pool.clone(),
            backend: self.backend.clone(),
            stop,
            single_answers: self.single_answers,
            hidden: None,
        }))
    }

    fn hide(&mut self, hidden: Hidden) -> Result<Hidden> {
        match hidden {
            Hidden::Rows(privacy) => self.host.hide_rows(privacy, Vec::new()),
            Hidden::Clients(privacy) => self.hidden = Some((privacy, 0)),
        }
        Ok(hidden)
    }

    /// What is spent is counted once: a run that hides clients or their rows does not go on from a checkpoint.
    fn state(&self) -> Result<Option<FederationState>> {
        if self.host.hides_rows() || self.hidden.is_some() {
            return Ok(None);
        }
        let Server { asked, meter, ledger, .. } = &self.server;
        let (meter, ledger, states) = (meter.clone(), ledger.clone(), self.host.states());
        let own = self.host.clients().iter().map(Client::save).collect::<Result<Option<_>>>()?;
        Ok(own.map(|own| FederationState { asked: *asked, meter, ledger, states, own, elsewhere: None }))
    }

    fn restore(&mut self, state: FederationState) -> Result<()> {
        let FederationState { asked, meter, ledger, .. } = state;
        self.server = Server { asked, meter, ledger, ..std::mem::take(&mut self.server) };
        self.host.restore(state.states);
        self.host.clients().iter().zip(&state.own).try_for_each(|(client, state)| client.load(state))
    }

    fn own_models(&self) -> Option<Vec<(&str, Vec<f64>)>> {
        (!self.is_sealed()).then(|| self.host.own_models().collect())
    }

    fn ledger(&self) -> &Ledger {
        &self.server.ledger
    }

    fn notes(&self) -> Vec<String> {
        let own = self.server.transforms.notes(self.infos.len()).chain(self.server.ledger.notes(&self.infos));
        own.chain(self.host.notes()).collect()
    }
}
