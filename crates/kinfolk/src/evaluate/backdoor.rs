//! Whether a backdoor (`[faults]`) opens.

use super::*;
use crate::federation::Handle;
use crate::federation::work::Evaluated;
use crate::training::Split;

/// The share of the honest clients' test rows of other classes that are taken for the attackers' class once they have their pattern.
#[derive(Default)]
pub(super) struct BackdoorSuccess;

impl Finding for BackdoorSuccess {
    fn conclude(&self, context: &mut Context, found: &mut MethodRecord) -> Result<()> {
        if context.attacked.is_none() {
            return Ok(());
        }
        let (models, subjects) = subjects(context, found);
        let Some(attacked) = &mut context.attacked else { return Ok(()) };
        let mut ask = Ask::new(Phase::Evaluate, models, Gather::Each);
        let order = |(with, clients): (Subject, Vec<u32>)| {
            ask.order(Recipients::list(clients), Evaluate { with, assign_on: Split::Train, compare: false })
        };
        let orders: Vec<Handle<Evaluated>> = subjects.into_iter().map(order).collect();
        let answers = attacked.ask(&ask)?;
        let (mut rows, mut hits) = (0.0, 0.0);
        for order in orders {
            for (_, Evaluated { score, .. }) in answers.of(order).each() {
                rows += f64::from(score.rows);
                hits += f64::from(score.hits.unwrap_or(0));
            }
        }
        found.numbers([("backdoor_success", (rows > 0.0).then(|| hits / rows))]);
        Ok(())
    }
}

/// The models that serve clients, and which of them serve whom of the honest ones.
fn subjects(context: &Context, found: &mut MethodRecord) -> (Vec<Params>, Vec<(Subject, Vec<u32>)>) {
    let mut models = context.outcome.models.clone();
    let everything: Vec<usize> = (0..models.len()).collect();
    let honest = (0u32..).zip(context.attackers).filter(|(_, attacks)| !**attacks).map(|(client, _)| client);
    let subjects = match &context.outcome.serving {
        Serving::Own { .. } => {
            let own = context.own_models("backdoor_success", found);
            let known = honest.filter_map(|client| {
                let model = own.get(context.population.clients[client as usize].id.as_str())?;
                models.push(Params::new(model.clone()));
                Some((Subject::Models(vec![models.len() - 1]), vec![client]))
            });
            known.collect()
        }
        Serving::Mixed { shares } => {
            let mixture = |client: u32| {
                let shares = shares[client as usize].clone();
                (Subject::Mixture { models: everything.clone(), shares }, vec![client])
            };
            honest.map(mixture).collect()
        }
        Serving::Choose | Serving::Given(_) => {
            let mut served: BTreeMap<Vec<usize>, Vec<u32>> = BTreeMap::new();
            for client in honest {
                let cluster = context.scored.clients.get(client as usize).and_then(|served| served.cluster);
                let by = cluster.filter(|cluster| *cluster < models.len()).map(|cluster| vec![cluster]);
                served.entry(by.unwrap_or_else(|| everything.clone())).or_default().push(client);
            }
            served.retain(|models, _| !models.is_empty());
            served.into_iter().map(|(models, clients)| (Subject::Models(models), clients)).collect()
        }
    };
    (models, subjects)
}
