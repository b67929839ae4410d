//! James-Stein shrinkage for personal models (Lyu, Hanzely, Kolar 2022, Proposition 5.4): the best linear unbiased
//! estimate of a client's model leans on the mean of the other clients' estimates; drawing that mean towards 0 makes it
//! biased, and better.
//!
//! ```text
//! unit variances:  θ̃_i ← (n+1)/(2n)·y_i + (n−1)/(2n)·C·ȳ₋ᵢ,   C ← (1 − (d−2)·2/((n−1)·‖ȳ₋ᵢ‖²))₊
//! ```
//!
//! For regressions with any variances the local estimates are whitened: with S_i the precision of client i's estimate of
//! the centre and s_i that times the estimate, the mean of the others is ȳ₋ᵢ = S₋ᵢ⁻¹·s₋ᵢ, of precision S₋ᵢ; C ← (1 −
//! (d−2)/(ȳ₋ᵢᵀ·S₋ᵢ·ȳ₋ᵢ))₊; the centre is S⁻¹·(s_i + C·s₋ᵢ), and θ̃_i is client i's minimiser under its pull.
//!
//! Differences from the paper:
//! - its appendix swaps the two weights; these are right (the unbiased estimate has them with C = 1).
//! - it is one cluster there; here every known cluster is one.
//! - every client's answer is seen singly: C differs from client to client.

use super::personal::ClientPull;
use super::personal::complete::ask_everybody;
use super::*;
use crate::federation::work::{Respond, ResponseParts};
use crate::hierarchy::response::{Quadratic, Response};
use crate::num::Spectrum;

settings! {
    /// The settings of the method `james-stein`.
    pub struct JamesSteinSettings {
        /// how a client is pulled to its cluster
        client: ClientPull,
        /// a missing answer is asked for again, or ends the run
        missing: MissingRule ["again", "fail"] = "again",
    }
}

impl MethodSettings for JamesSteinSettings {
    const NAME: &str = "james-stein";
    const SUMMARY: &str = "known clusters: unbiased personal models, shrunk where that is better";
    const PAPER: &str = "Lyu, Hanzely, Kolar 2022, Proposition 5.4";
    const HAS_CLUSTERS: bool = true;
    const WANTS: Ability = Ability::Quadratic;
    const WANTS_SINGLE: Option<&'static str> = Some("it sees every client's estimate by itself");

    fn needs(&self) -> Needs {
        self.client.needs(self.missing)
    }

    fn discloses(&self, ability: Ability) -> Vec<Disclosure> {
        let mut all = self.client.discloses(ability);
        all.push(Disclosure::single::<Respond>(Phase::Train, 1, "how every client's own estimate is shrunk"));
        all.push(
            Disclosure::single::<Respond>(Phase::Train, 1, "a model of its own, which stays with it")
                .without_vector::<Respond>(),
        );
        all
    }

    fn build(self, setup: Setup) -> Result<Box<dyn Method>> {
        let width = setup.model.layout().len();
        if width <= 3 {
            return Err(Error::settings(format!(
                "{}: the model has {width} parameters, want more than 3",
                setup.place
            ))
            .hint("shrinkage does not pay below; use \"hierarchical\""));
        }
        let problem = Problem::with_groups(&setup, &self.client)?;
        // Centres are the clusters' own: there is no pull between them.
        let objective = Objective { client: self.client, lambda: None, alpha: None, tune: false, grid: None, folds: 5 };
        let preparation = Preparation::new(&setup, &objective, &problem, false)?;
        let state = State {
            preparation,
            centres: vec![problem.start.to_vec(); problem.families.count()],
            stamps: vec![0; problem.rows.len()],
            shrinkage: 1.0,
        };
        Ok(Box::new(JamesStein { problem, state }))
    }
}

struct JamesStein {
    problem: Problem,
    state: State,
}

#[derive(Serialize, Deserialize)]
struct State {
    preparation: Preparation,
    centres: Vec<Vec<f64>>,
    stamps: Vec<u64>,
    /// The mean of C over the clients.
    shrinkage: f64,
}

/// The centre of one client, and C: `all` is what everybody in the cluster says, `own` what this one says.
fn shrunken_centre(all: &Quadratic, own: &Quadratic) -> Option<(Vec<f64>, f64)> {
    let mut others = all.clone();
    others.add_scaled(-1.0, own);
    let known = Spectrum::new(&others.curvature, all.dimension())?;
    let length = dot(&known.solve(&others.moment), &others.moment);
    // d counts the directions the others know something of.
    let shrinkage = if length > 0.0 { (1.0 - (known.rank() as f64 - 2.0) / length).clamp(0.0, 1.0) } else { 0.0 };
    let mut moment = own.moment.clone();
    add_scaled(&mut moment, shrinkage, &others.moment);
    let centre = Quadratic { curvature: all.curvature.clone(), moment, energy: 0.0 }.minimiser(0.0, &[])?;
    Some((centre, shrinkage))
}

impl JamesStein {
    /// Every client's own centre, from what everybody in its cluster says.
    fn shrink(&mut self, strengths: &Strengths, room: &mut Room) -> Result<Option<f64>> {
        let problem = &self.problem;
        let width = problem.start.len();
        let respond = |centre: usize, strength: f64, (send, keep): (ResponseParts, bool)| {
            let pull = Pull { centre, strength };
            Respond { pull, on: Portion::All, send, keep, scale: problem.scale(strengths.noise) }
        };
        let mut ask = Ask::new(Phase::Train, vec![problem.start.clone()], Gather::Each);
        let mut orders = Vec::new();
        for (cluster, class) in strengths.each_class() {
            let work = respond(0, class.gamma, (ResponseParts::Response, false));
            orders.push((cluster, ask.order(class.everybody(), work)));
        }
        let (answers, _) = ask_everybody(&ask, room)?;
        let mut clusters: Vec<Vec<(u32, Quadratic)>> = vec![Vec::new(); problem.families.count()];
        for (cluster, order) in orders {
            let answer = answers.of(order);
            for (place, &client) in answer.clients.iter().enumerate() {
                clusters[cluster].push((client, Response::unpack(answer.vector(place), width).into_quadratic()));
            }
        }
        let mut ask = Ask::new(Phase::Train, Vec::new(), Gather::Each);
        let (mut orders, mut shrinkages) = (Vec::new(), 0.0);
        for (cluster, members) in clusters.iter().enumerate() {
            let mut all = Response::zero(width).into_quadratic();
            members.iter().for_each(|(_, own)| all.add_scaled(1.0, own));
            let singular = || Error::new(ErrorKind::Diverged, "the clients' estimates have no mean");
            self.state.centres[cluster] = all.minimiser(0.0, &[]).ok_or_else(singular)?;
            for (client, own) in members {
                let (centre, shrinkage) = shrunken_centre(&all, own).ok_or_else(singular)?;
                shrinkages += shrinkage;
                let gamma = strengths.gamma[*client as usize];
                let work = respond(ask.models.len(), gamma, (ResponseParts::Nothing, true));
                orders.push(ask.order(Recipients::list(vec![*client]), work));
                ask.models.push(Arc::new(centre));
            }
        }
        self.state.shrinkage = shrinkages / orders.len().max(1) as f64;
        let (answers, stamps) = ask_everybody(&ask, room)?;
        stamps.into_iter().for_each(|(client, stamp)| self.state.stamps[client as usize] = stamp);
        Ok(mean_loss(&answers.losses(&orders)))
    }
}

impl Method for JamesStein {
    fn round(&mut self, room: &mut Room) -> Result<Progress> {
        let strengths = match self.state.preparation.round(&self.problem, room)? {
            Prepared::Ready(strengths) => strengths.clone(),
            Prepared::NotYet(progress) => return Ok(progress),
        };
        Ok(Progress::of(self.shrink(&strengths, room)?, true))
    }

    fn planned_rounds(&self) -> usize {
        self.state.preparation.planned_rounds() + 1
    }

    fn outcome(&self) -> Outcome {
        let state = &self.state;
        let mut outcome = self.problem.outcome(&state.preparation, &state.stamps, (state.centres.clone(), None));
        outcome.extra.insert("shrinkage".into(), state.shrinkage);
        outcome
    }

    keep_state!();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_weights_of_the_proposition() {
        // Unit noise and unit spread: every client says of the centre y_i with precision ½.
        let (d, n) = (4, 3);
        let points = [[2.0, 0.0, 1.0, 1.0], [4.0, 2.0, 0.0, 2.0], [3.0, 1.0, 2.0, 6.0]];
        let half = |point: &[f64]| Quadratic {
            curvature: (0..d * d).map(|i| if i % (d + 1) == 0 { 0.5 } else { 0.0 }).collect(),
            moment: point.iter().map(|y| 0.5 * y).collect(),
            energy: 0.0,
        };
        let mut all = Response::zero(d).into_quadratic();
        points.iter().for_each(|point| all.add_scaled(1.0, &half(point)));
        let (centre, shrinkage) = shrunken_centre(&all, &half(&points[0])).unwrap();
        let others: Vec<f64> = (0..d).map(|i| (points[1][i] + points[2][i]) / 2.0).collect();
        let square: f64 = others.iter().map(|y| y * y).sum();
        let wanted = 1.0 - (d as f64 - 2.0) * 2.0 / ((n as f64 - 1.0) * square);
        assert!((shrinkage - wanted).abs() < 1e-14, "{shrinkage} {wanted}");
        for i in 0..d {
            // Half way between its own estimate and the centre.
            let own = 0.5 * (points[0][i] + centre[i]);
            let n = n as f64;
            let by_weights = (n + 1.0) / (2.0 * n) * points[0][i] + (n - 1.0) / (2.0 * n) * shrinkage * others[i];
            assert!((own - by_weights).abs() < 1e-14, "{own} {by_weights}");
        }
    }
}
