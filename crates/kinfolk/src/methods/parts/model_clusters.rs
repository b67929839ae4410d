//! Clusters of the models that clients found alone.

use super::super::*;
use super::solving::Solve;
use crate::clustering::{Found, Points, Request, Sureness, find};
use crate::text::counted;

pub struct ModelClusters<'a> {
    pub points: Points<'a>,
    pub found: Found,
    clients: &'a [u32],
}

/// The models that clients sent as points; refuses fewer than the clusters asked for.
pub fn points_of<'a>(order: &'a OrderAnswers, request: &Request, hint: &str) -> Result<Points<'a>> {
    let (answered, wanted) = (order.clients.len(), request.clusters.unwrap_or(1));
    if answered < wanted {
        let message = format!("{answered} clients answered, want at least {wanted}");
        return Err(Error::new(ErrorKind::Client, message).hint(hint));
    }
    Points::new(&order.vectors, order.vectors.len() / answered.max(1))
}

impl<'a> ModelClusters<'a> {
    pub fn find(points: Points<'a>, clients: &'a [u32], solve: &Solve, request: &Request) -> Result<Self> {
        let mut found = find(points, request, &mut |_| Ok(()))?;
        if let Some(start) = solve.models().first()
            && (0..points.count()).all(|client| points.row(client) == &start[..])
        {
            let reason = "no client took a step: all sent the model they began at".to_string();
            match &mut found.sureness {
                Some(sureness) => *sureness = Sureness { word: "unsure", reason },
                None => found.notes.push(reason),
            }
        }
        Ok(Self { points, found, clients })
    }

    pub fn means(&self) -> Vec<Params> {
        let clustering = &self.found.clustering;
        (0..clustering.clusters()).map(|cluster| Arc::new(clustering.centre(cluster).to_vec())).collect()
    }

    /// The cluster of every client that answered.
    pub fn assignment(&self, clients: usize) -> Assignment {
        let mut assignment = Assignment::none(self.found.clustering.clusters(), clients);
        self.clients.iter().zip(&self.found.clustering.labels).for_each(|(&client, &label)| {
            assignment.put(client, label);
        });
        assignment
    }

    /// Names the clients that fit no cluster, if any.
    pub fn aside_note(&self) -> Option<String> {
        let names: Vec<String> = self.found.aside.iter().map(|&point| self.clients[point].to_string()).collect();
        let (clients, verb) = if names.len() == 1 { ("client", "fits") } else { ("clients", "fit") };
        let (names, count) = (names.join(", "), names.len());
        (count > 0).then(|| format!("{count} {clients} {verb} no cluster and count for no mean: {names}"))
    }

    /// How sure the number of clusters is, in words and from 0 to 1, if it was searched for.
    pub fn sureness(&self) -> Option<(String, f64)> {
        let Sureness { word, reason } = self.found.sureness.as_ref()?;
        let clusters = counted(self.found.clustering.clusters(), "cluster");
        let share = match *word {
            "certain" => 1.0,
            "likely" => 0.5,
            _ => 0.0,
        };
        Some((format!("{clusters}, {word}: {reason}"), share))
    }
}
