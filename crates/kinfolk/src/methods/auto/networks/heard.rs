//! What held-out rows said when it was decided who gets what, for a model that is taken into use.

use super::service::{Rung, Tried, gains};
use super::{Networks, sentences};
use crate::assignment::Assignment;
use crate::error::Result;
use crate::families::Gain;
use crate::federation::work::{CheckPredictions, Checked};
use crate::federation::{Ask, Gather, Params, Phase, Recipients};
use crate::methods::room::Room;
use crate::training::{Amount, Plan, Portion};
use std::collections::BTreeMap;

/// What held-out rows said.
#[derive(Default)]
pub(super) struct Heard {
    pub(super) rungs: Vec<Rung>,
    pub(super) tried: Vec<Tried>,
    /// Predictions by the family's model,
    family: BTreeMap<u32, Checked>,
    /// by what serves the client,
    served: BTreeMap<u32, Checked>,
    /// and by the families' models, in the mean by the families' shares.
    blended: BTreeMap<u32, Checked>,
}

/// What was found of one client.
#[derive(Debug, Clone)]
pub(crate) struct NetworkClient {
    pub(crate) rung: Rung,
    /// Its family; none where it never answered.
    pub(crate) family: Option<usize>,
    /// The mean losses of held-out rows: everybody's model, the family's, fine-tuned, alone, what serves it.
    pub(crate) errors: Option<[Option<f64>; 5]>,
    /// What it gains by joining, in place of its own model alone.
    pub(crate) joining: Option<Gain>,
    pub(crate) checked_family: Option<Checked>,
    pub(crate) checked_served: Option<Checked>,
    pub(crate) checked_blend: Option<Checked>,
}

/// What was found of all.
pub(crate) struct NetworksFound {
    pub(crate) global: Params,
    pub(crate) families: Vec<Params>,
    pub(crate) clients: Vec<NetworkClient>,
    /// What serves everybody who has no reason to deviate.
    pub(crate) default: Rung,
    /// How a client fine-tunes on all of its rows; the rung says how long.
    pub(crate) plan: Plan,
    /// How often clients that do not differ would look as different.
    pub(crate) p: Option<f64>,
    pub(crate) sentences: Vec<String>,
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

impl Networks {
    /// Has clients check predictions of their held-out rows, by models that have not seen them.
    pub(super) fn check(&mut self, room: &mut Room) -> Result<()> {
        let Some(service) = self.state.findings.service.clone() else { return Ok(()) };
        let (models, families) = (self.models_so_far(), self.state.current.families.clone());
        let count = self.state.current.models.len();
        let able: Vec<u32> = self.able().collect();
        let family_of = |client: u32| families.of(client).unwrap_or(0);
        let sizes = families.sizes();
        let clients: usize = sizes.iter().sum();
        let shares: Vec<(usize, f64)> =
            sizes.iter().enumerate().map(|(family, size)| (family, *size as f64 / clients.max(1) as f64)).collect();
        let nothing = Amount::Steps(0);
        let of_family = |client: u32| (vec![(family_of(client), 1.0)], nothing);
        let of_service = |client: u32| match service.of(client) {
            Rung::Global => (vec![(count + 1, 1.0)], nothing),
            Rung::Family => (vec![(family_of(client), 1.0)], nothing),
            Rung::Personal(amount) => (vec![(family_of(client), 1.0)], amount),
            Rung::Alone(amount) => (vec![(count, 1.0)], amount),
        };
        self.heard.family = self.checked(room, &models, &able, of_family)?;
        self.heard.served = match able.iter().all(|client| service.of(*client) == Rung::Family) {
            true => self.heard.family.clone(),
            false => self.checked(room, &models, &able, of_service)?,
        };
        self.heard.blended = match count {
            1 => self.heard.family.clone(),
            _ => self.checked(room, &models, &able, |_| (shares.clone(), nothing))?,
        };
        Ok(())
    }

    /// The families' models, the start, and everybody's model where it is another.
    pub(super) fn models_so_far(&self) -> Vec<Params> {
        let mut models = self.state.current.models.clone();
        models.push(self.start.clone());
        models.extend(self.state.global.clone());
        models
    }

    fn checked(
        &mut self,
        room: &mut Room,
        models: &[Params],
        able: &[u32],
        with: impl Fn(u32) -> (Vec<(usize, f64)>, Amount),
    ) -> Result<BTreeMap<u32, Checked>> {
        type Alike = (Vec<(usize, f64)>, Amount, Vec<u32>);
        let mut lists: Vec<Alike> = Vec::new();
        for &client in able {
            let (blend, amount) = with(client);
            match lists.iter_mut().find(|(other, time, _)| (other, time) == (&blend, &amount)) {
                Some((.., list)) => list.push(client),
                None => lists.push((blend, amount, vec![client])),
            }
        }
        let mut ask = Ask::new(Phase::Train, models.to_vec(), Gather::Each);
        let mut orders = Vec::new();
        for (blend, amount, list) in lists {
            let (plan, held_out) = (self.plan(self.cut.trained), self.cut.held_out);
            orders.push(ask.order(Recipients::list(list), CheckPredictions { blend, amount, plan, held_out }));
        }
        if orders.is_empty() {
            return Ok(BTreeMap::new());
        }
        self.state.findings.questions += 1;
        let answers = room.ask_for_any(&ask)?;
        Ok(orders.into_iter().flat_map(|order| answers.of(order).each().collect::<Vec<_>>()).collect())
    }

    /// The models of the families so far, and who is where.
    pub(crate) fn so_far(&self) -> (&[Params], &Assignment) {
        (&self.state.current.models, &self.state.current.families)
    }

    /// Whether it was looked for families once, and decided whether what looked like some are.
    pub(crate) fn is_past_first_look(&self) -> bool {
        let is_decided = self.state.findings.looks > 0 && self.state.challenger.is_none();
        is_decided || self.is_serving() || self.state.trained >= 3 * self.stretch()
    }

    /// Whether it is decided who gets what, and all rows are learned from.
    pub(crate) fn is_serving(&self) -> bool {
        self.state.stage != super::Stage::Search
    }

    /// Whether families and what serves whom are judged after this round.
    pub(crate) fn takes_stock(&self) -> bool {
        self.state.trained.is_multiple_of(self.stretch())
    }

    /// What was found, when all is done.
    pub(crate) fn found(&self) -> NetworksFound {
        let (current, findings) = (&self.state.current, &self.state.findings);
        let service = findings.service.clone();
        let rung = |client: u32| service.as_ref().map_or(Rung::Family, |service| service.of(client));
        let default = service.as_ref().map_or(Rung::Family, |service| service.default);
        let Heard { rungs, tried, family, served, blended } = &self.heard;
        let place = |wanted: Rung| rungs.iter().position(|rung| *rung == wanted);
        let alone = rungs.iter().position(|rung| matches!(rung, Rung::Alone(_)));
        let joining = match (alone, place(default)) {
            (Some(alone), Some(default)) => gains(tried, alone, default),
            _ => Vec::new(),
        };
        let client = |client: u32| {
            let at = tried.binary_search_by_key(&client, |tried| tried.client).ok();
            let losses = at.map(|at| &tried[at].losses);
            let loss = |at: Option<usize>| Some(mean(&losses?[at?]));
            let personal = |rung: &Rung| matches!(rung, Rung::Personal(_));
            let personal = match rung(client) {
                own @ Rung::Personal(_) => loss(place(own)),
                _ => {
                    (0..rungs.len()).filter(|at| personal(&rungs[*at])).filter_map(|at| loss(Some(at))).reduce(f64::min)
                }
            };
            let common = loss(place(Rung::Family));
            let global = place(Rung::Global).map_or(common, |at| loss(Some(at)));
            let errors = losses.map(|_| [global, common, personal, loss(alone), loss(place(rung(client)))]);
            NetworkClient {
                rung: rung(client),
                family: current.families.of(client),
                errors,
                joining: at.and_then(|at| joining.get(at).copied()),
                checked_family: family.get(&client).cloned(),
                checked_served: served.get(&client).cloned(),
                checked_blend: blended.get(&client).cloned(),
            }
        };
        let mut sentences = sentences::of(findings, &current.families.sizes(), self.able().count());
        // How often clients were asked is of interest where they are elsewhere.
        sentences.retain(|sentence| !sentence.starts_with("Every client was asked "));
        NetworksFound {
            global: self.state.global.clone().unwrap_or_else(|| current.models[0].clone()),
            families: current.models.clone(),
            clients: (0..self.rows.len() as u32).map(client).collect(),
            default,
            plan: self.plan(Portion::All),
            p: findings.p,
            sentences,
        }
    }
}
