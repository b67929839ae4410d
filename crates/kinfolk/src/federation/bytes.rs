//! A federation through which nothing passes but bytes: every ask is written to bytes for each client, read back
//! at its side, worked on, and answered in bytes. It is slow, and it is the proof that a method works over a wire.

use super::faults::{Fate, Faults};
use super::gather::Gatherer;
use super::host::Host;
use super::local::base_of;
use super::meter::{Meter, Payload};
use super::wire::{self, AnswerMessage, AskMessage, Packed};
use super::{Absence, Answers, Ask, ClientInfo, Federation, Phase, Work};
use crate::data::Client;
use crate::error::Result;
use crate::models::Model;
use std::sync::Arc;

/// Clients behind a wall of bytes.
pub struct BytesFederation {
    host: Host,
    infos: Vec<ClientInfo>,
    faults: Faults,
    meter: Meter,
    asked: u64,
}

impl BytesFederation {
    /// A federation of these clients.
    pub fn new(clients: Vec<Client>) -> Self {
        let infos = clients.iter().map(|client| ClientInfo { id: client.id.clone() }).collect();
        Self { host: Host::new(clients), infos, faults: Faults::none(), meter: Meter::default(), asked: 0 }
    }

    /// Has some clients misbehave.
    pub fn with_faults(mut self, faults: Faults) -> Self {
        self.faults = faults.among(self.host.clients());
        self
    }

    /// Gives the clients their model; over a wire they would make it from the experiment's settings.
    pub fn set_model(&mut self, model: Arc<dyn Model>) -> Result<()> {
        self.host.set_model(model)
    }

    /// The message this client receives.
    fn message(&self, ask: &Ask, client: u32) -> Result<Option<Vec<u8>>> {
        let orders: Vec<(u32, Work)> = (0u32..)
            .zip(&ask.orders)
            .filter(|(_, order)| order.to.contains(client))
            .map(|(index, order)| (index, order.work.clone()))
            .collect();
        if orders.is_empty() {
            return Ok(None);
        }
        let mut needed: Vec<usize> = orders.iter().flat_map(|(_, work)| work.models().into_owned()).collect();
        needed.sort_unstable();
        needed.dedup();
        let mut models = Vec::new();
        for index in needed {
            models.push((index as u32, Packed::pack(&ask.models[index], self.host.model()?.precision())));
        }
        wire::encode(&AskMessage { stamp: self.asked, phase: ask.phase, models, orders }).map(Some)
    }

    /// What the client's side makes of a message: it sees bytes and its own data, and nothing else.
    fn serve(host: &mut Host, client: u32, faults: &Faults, message: &[u8]) -> Result<Vec<u8>> {
        let ask: AskMessage = wire::decode(message)?;
        let count = ask.models.iter().map(|(index, _)| *index as usize + 1).max().unwrap_or(0);
        let mut models: Vec<Vec<f64>> = vec![Vec::new(); count];
        for (index, model) in &ask.models {
            models[*index as usize] = model.unpack();
        }
        let mut replies = Vec::new();
        for (index, work) in &ask.orders {
            let mut reply = match work {
                Work::Describe { moments } => host.describe(client, *moments),
                Work::Adopt { schema } => {
                    host.adopt(client, schema)?;
                    continue;
                }
                work => {
                    let model = host.model()?.clone();
                    let views: Vec<&[f64]> = models.iter().map(Vec::as_slice).collect();
                    host.answer(&mut *model.worker(&views), &models, ask.stamp, *index as usize, work, client)?
                }
            };
            let precision = host.model().map(|model| model.precision());
            if let (Some(vector), Ok(precision)) = (&mut reply.vector, &precision) {
                precision.round(vector);
            }
            let base = base_of(work, reply.choice).map(|model| models[model].as_slice());
            let (now, id) = ((ask.stamp, ask.phase), &host.clients()[client as usize].id);
            faults.alter(now, id, work, base, &mut reply);
            replies.push((*index, reply.pack(precision.unwrap_or(crate::models::Precision::F64))));
        }
        wire::encode(&AnswerMessage { replies })
    }
}

impl Federation for BytesFederation {
    fn clients(&self) -> &[ClientInfo] {
        &self.infos
    }

    fn meter(&self) -> &Meter {
        &self.meter
    }

    fn ask(&mut self, ask: &Ask) -> Result<Answers> {
        ask.check(self.infos.len())?;
        if ask.phase != Phase::Evaluate {
            self.asked += 1;
        }
        let payload = Payload::of(self.host.model().ok().map(|model| &**model));
        let mut gatherer = Gatherer::new(ask, payload.width);
        let mut sent = vec![0; ask.orders.len()];
        for client in 0..self.infos.len() as u32 {
            let Some(message) = self.message(ask, client)? else { continue };
            let fate = match ask.phase {
                Phase::Evaluate => Fate::Answers,
                _ => self.faults.fate(self.asked, &self.infos[client as usize].id),
            };
            if fate != Fate::Absent(Absence::Silent) {
                (0..ask.orders.len()).filter(|&o| ask.orders[o].to.contains(client)).for_each(|order| sent[order] += 1);
            }
            if let Fate::Absent(reason) = fate {
                gatherer.missing(client, reason);
                continue;
            }
            let answer = Self::serve(&mut self.host, client, &self.faults, &message)?;
            let answer: AnswerMessage = wire::decode(&answer)?;
            for (order, reply) in answer.replies {
                gatherer.take(order as usize, client, reply.unpack());
            }
        }
        self.meter.count(ask, self.infos.len(), payload, &sent);
        Ok(gatherer.finish(self.asked))
    }
}
