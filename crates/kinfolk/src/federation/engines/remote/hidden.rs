//! Asks of which the server learns sums in which noise hides any one client (`federation/hidden.rs`). Machines add it before anything
//! leaves them; where they are processes of the run itself, it is added here, once, so that the bits are those of one process.

use super::*;
use crate::federation::hidden::{AddedBy, Hiding};
use crate::federation::sealed::sealed_order;
use crate::federation::secure::machine::SlotShape;
use crate::privacy::clients::ClientPrivacy;

impl RemoteFederation {
    pub(super) fn ask_for_hidden_sums(&mut self, ask: &Ask, privacy: ClientPrivacy) -> Result<Answers> {
        self.refuse_altered()?;
        let (shared, model) = (self.shared.clone(), self.model()?.clone());
        let mut exchange = self.server.open(ask, &shared.infos, shared.rows(), &*model)?;
        let models = std::mem::take(&mut exchange.models);
        let size = (model.layout().len(), model.precision());
        let mut hiding = Hiding::new(ask, &models, size, privacy, |_| ask.gather)?;
        if let Some((_, spent)) = &mut self.hidden {
            *spent = hiding.spend(*spent)?;
        }
        // Grids are not needed: what is added is cut to lengths that everybody knows.
        let clients = shared.infos.len();
        let sealed = vec![sealed_order(ask.gather, (clients, clients as u64), 0.0, None); ask.orders.len()];
        let errands = shared.sealed_errands(ask, &exchange.absences, &sealed);
        let lengths: Vec<usize> = hiding.lengths().collect();
        let added = match self.server.addition {
            Addition::Secure(minimum) => {
                let shapes: Vec<SlotShape> = lengths.iter().map(|&length| SlotShape { length, tells: false }).collect();
                let (among, why) = match self.total(ask, (&shared, &errands, &sealed), &shapes, minimum)? {
                    Ok((among, totals)) => {
                        hiding.merge(totals.iter().map(|total| total.as_deref().unwrap_or_default()));
                        (among, String::new())
                    }
                    Err(why) => (BTreeSet::new(), why),
                };
                let left = errands.iter().filter(|(place, _)| !among.contains(place)).map(|(_, errand)| errand);
                self.lose_those(left, &why, &mut exchange);
                AddedBy::Together(among.len())
            }
            _ => {
                let mut machines = 0;
                let exchanged = self.deliver(ask, &shared, errands.values().cloned())?;
                for ((machine, reply), (_, orders)) in exchanged.into_iter().zip(errands.values()) {
                    let fits = |sums: &[SealedSum]| {
                        let wanted = orders.iter().map(|order| lengths[order.index as usize]);
                        sums.iter().map(|sum| sum.0.len()).eq(wanted)
                    };
                    match reply {
                        Ok(SiteReply::Sealed(sums)) if fits(&sums) => {
                            let mut of_orders = vec![&[][..]; lengths.len()];
                            let found = orders.iter().zip(&sums);
                            found.for_each(|(order, sum)| of_orders[order.index as usize] = &sum.0);
                            hiding.merge(of_orders.into_iter());
                            machines += 1;
                        }
                        other => self.lose_part(machine, &unwanted(other), machine.places(orders), &mut exchange),
                    }
                }
                match shared.holds_states {
                    true => AddedBy::Each(1),
                    false => AddedBy::Each(machines),
                }
            }
        };
        if shared.holds_states {
            hiding.add_noise(privacy.source_of(self.server.asked), added);
        }
        for (order, sums) in hiding.open(added).into_iter().enumerate() {
            exchange.gatherer.take_hidden(order, sums);
        }
        Ok(self.server.close(exchange))
    }

    /// That noise is more than was said before the run, where every machine adds all of it.
    pub(super) fn hidden_note(&self) -> Option<String> {
        let is_of_each = self.server.addition == Addition::Sealed && !self.shared.holds_states;
        let machines = self.shared.machines.len();
        match self.hidden {
            Some((Hidden::Clients(_), _)) if is_of_each && machines > 1 => Some(format!(
                "every machine hides its clients from the server by noise of its own: in sums over {machines} machines it is {:.1} times as \
                 large as said above; privacy.sums = \"secure\" hides them by less, together",
                (machines as f64).sqrt()
            )),
            _ => None,
        }
    }
}
