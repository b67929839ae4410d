//! One ask from its check to its answers, whatever lies between server and clients.

use super::gather::{Addition, Gatherer};
use super::ledger::Ledger;
use super::meter::Meter;
use crate::error::Result;
use crate::federation::transforms::{Occasion, Passage, Told, Transforms};
use crate::federation::work::Reply;
use crate::federation::{Absence, Answers, Ask, ClientInfo, OrderIndex, Phase};
use crate::models::Model;

/// The server's side of an engine.
#[derive(Default)]
pub struct Server {
    pub transforms: Transforms,
    pub meter: Meter,
    pub ledger: Ledger,
    /// How vectors are summed.
    pub addition: Addition,
    /// Number of asks so far, not counting evaluation: how often one evaluates must not change the results.
    pub asked: u64,
}

pub struct Exchange<'a> {
    pub index: OrderIndex,
    /// Why each client gives no answer, where that is decided beforehand.
    pub absences: Vec<Option<Absence>>,
    /// The ask's models at the precision they travel at.
    pub models: Vec<Vec<f64>>,
    pub gatherer: Gatherer<'a>,
    /// For each order, how many clients sent something.
    pub sent: Vec<usize>,
    ask: &'a Ask,
    /// Parameters of a model, and bytes of each.
    payload: (usize, u64),
}

impl Server {
    /// Checks an ask, gives it its number, and draws who will be absent. `rows` are those of each client.
    pub fn open<'a>(
        &mut self,
        ask: &'a Ask,
        infos: &[ClientInfo],
        rows: Vec<u32>,
        model: &dyn Model,
    ) -> Result<Exchange<'a>> {
        ask.check(infos.len())?;
        ask.suits(model)?;
        if ask.phase != Phase::Evaluate {
            self.asked += 1;
        }
        let (stamp, phase) = (self.asked, ask.phase);
        let withheld =
            |info: &ClientInfo| self.transforms.withhold(&Passage { stamp, phase, client: &info.id, base: None });
        let absences: Vec<Option<Absence>> = infos.iter().map(withheld).collect();
        let mut models: Vec<Vec<f64>> = ask.models.iter().map(|params| params.to_vec()).collect();
        models.iter_mut().for_each(|params| model.precision().round(params));
        // What is late travels all the same.
        let sends = |client: u32| absences[client as usize] != Some(Absence::Silent);
        let sent = ask.orders.iter().map(|order| order.to.among(infos.len()).filter(|&client| sends(client)).count());
        Ok(Exchange {
            index: OrderIndex::of(ask, infos.len()),
            sent: sent.collect(),
            absences,
            models,
            gatherer: Gatherer::new(ask, model, rows, &self.ledger, self.addition),
            ask,
            payload: (model.layout().len(), model.precision().width()),
        })
    }

    /// Has the list of transforms act on a reply. `models` are those of the ask.
    pub fn transform(&self, ask: &Ask, models: &[Vec<f64>], order: usize, client: &str, reply: &mut Reply) {
        let base = ask.orders[order].work.base(reply).and_then(|model| models.get(model)).map(Vec::as_slice);
        self.transforms.alter(&Passage { stamp: self.asked, phase: ask.phase, client, base }, reply);
    }

    /// Whether replies to an ask are held back, to be transformed together.
    pub fn holds_back(&self, ask: &Ask) -> bool {
        self.transforms.conspire_in(ask.phase)
    }

    /// Has the list of transforms act on all replies to an ask, by order and client, and hands them over in that order.
    pub fn transform_together(
        &self,
        (ask, models, infos): (&Ask, &[Vec<f64>], &[ClientInfo]),
        mut held: Vec<(usize, u32, Reply)>,
        mut take: impl FnMut(usize, u32, Reply),
    ) {
        held.sort_by_key(|&(order, client, _)| (order, client));
        let model = |index: usize| models.get(index).map(Vec::as_slice);
        for replies in held.chunk_by_mut(|one, other| one.0 == other.0) {
            let work = &ask.orders[replies[0].0].work;
            let candidates = match work.tells_choice() {
                true => work.needs().models.iter().filter_map(|&index| model(index)).collect(),
                false => Vec::new(),
            };
            let told = replies.iter_mut().map(|(_, client, reply)| {
                let base = work.base(reply).and_then(model);
                Told { client: &infos[*client as usize].id, base, reply }
            });
            let mut told: Vec<Told> = told.collect();
            self.transforms.conspire(&Occasion { phase: ask.phase, candidates }, &mut told);
        }
        held.into_iter().for_each(|(order, client, reply)| take(order, client, reply));
    }

    /// Records absences and traffic, and returns the answers.
    pub fn close(&mut self, mut exchange: Exchange) -> Answers {
        for (client, absence) in (0u32..).zip(&exchange.absences) {
            if let Some(reason) = absence
                && !exchange.index.of_client(client).is_empty()
            {
                exchange.gatherer.missing(client, *reason);
            }
        }
        self.meter.count(exchange.ask, &exchange.index, exchange.absences.len(), exchange.payload, &exchange.sent);
        let (answers, ledger) = exchange.gatherer.finish(self.asked);
        self.ledger = ledger;
        answers
    }
}
