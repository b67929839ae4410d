//! The known clusters, and how strongly clients and clusters are pulled.

use super::super::*;
use crate::settings::ForEach;

/// Clients in known clusters.
#[derive(Debug, Clone, PartialEq)]
pub struct Families {
    /// The cluster of every client.
    pub of: Vec<usize>,
    /// The clients of every cluster, ascending.
    pub members: Vec<Vec<u32>>,
    pub names: Vec<String>,
    /// Clients that belong to no cluster, and are one each.
    pub alone: usize,
}

/// Clients of one cluster that are pulled alike.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Class {
    /// γ.
    pub gamma: f64,
    members: Arc<Vec<u32>>,
}

/// γ of every client and λ of every cluster.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Strengths {
    /// γ_i.
    pub gamma: Vec<f64>,
    /// λ_j; infinite where a cluster has no centre of its own.
    pub lambda: Vec<f64>,
    /// Variance of a linear model's noise.
    pub noise: f64,
    /// The clients of every cluster, by their γ.
    pub classes: Vec<Vec<Class>>,
}

impl Families {
    /// A client without a group is a cluster of one, held by the global centre alone.
    pub fn from_groups(groups: &Groups) -> Self {
        let mut names = groups.names.clone();
        let mut alone = 0;
        let place = |group: &Option<usize>| {
            group.unwrap_or_else(|| {
                alone += 1;
                names.push(format!("alone {alone}"));
                names.len() - 1
            })
        };
        let of: Vec<usize> = groups.of.each().iter().map(place).collect();
        let mut members = vec![Vec::new(); names.len()];
        (0u32..).zip(&of).for_each(|(client, &cluster)| members[cluster].push(client));
        Self { of, members, names, alone }
    }

    /// Everybody in one cluster.
    pub fn one(clients: usize) -> Self {
        Self { of: vec![0; clients], members: vec![(0..clients as u32).collect()], names: vec!["all".into()], alone: 0 }
    }

    pub fn count(&self) -> usize {
        self.members.len()
    }

    pub fn sizes(&self) -> Vec<usize> {
        self.members.iter().map(Vec::len).collect()
    }

    /// The note about clients in no cluster, where there are any.
    pub fn note(&self) -> Option<String> {
        (self.alone > 0).then(|| match self.alone {
            1 => "1 client is in no cluster and is held by the global centre alone".to_string(),
            some => format!("{some} clients are in no cluster and are held by the global centre alone"),
        })
    }
}

impl Class {
    /// Its clients, those together that hold vectors of the same ask.
    pub fn by_stamp(&self, stamps: &[u64]) -> BTreeMap<u64, Recipients> {
        let stamp = |client: &u32| stamps[*client as usize];
        match self.members.first().map(stamp) {
            Some(first) if self.members.iter().all(|client| stamp(client) == first) => {
                [(first, self.everybody())].into()
            }
            _ => Recipients::by_stamp(self.members.iter().copied(), stamps),
        }
    }

    pub fn everybody(&self) -> Recipients {
        Recipients::List(self.members.clone())
    }
}

impl Strengths {
    pub fn new(families: &Families, gamma: Vec<f64>, lambda: Vec<f64>, noise: f64) -> Self {
        let classes = |members: &Vec<u32>| {
            let mut alike: BTreeMap<u64, Vec<u32>> = BTreeMap::new();
            for &client in members {
                alike.entry(gamma[client as usize].to_bits()).or_default().push(client);
            }
            let class = |(bits, members)| Class { gamma: f64::from_bits(bits), members: Arc::new(members) };
            alike.into_iter().map(class).collect()
        };
        Self { classes: families.members.iter().map(classes).collect(), gamma, lambda, noise }
    }

    /// The same γ for all clients of a cluster, and one λ.
    pub fn by_cluster(families: &Families, gammas: &[f64], lambda: f64, noise: f64) -> Self {
        let gamma = families.of.iter().map(|&cluster| gammas[cluster]).collect();
        Self::new(families, gamma, vec![lambda; families.count()], noise)
    }

    pub fn each_class(&self) -> impl Iterator<Item = (usize, &Class)> {
        let clusters = self.classes.iter().enumerate();
        clusters.flat_map(|(cluster, classes)| classes.iter().map(move |class| (cluster, class)))
    }

    /// Σ_i γ_i of every cluster.
    pub fn totals(&self) -> Vec<f64> {
        let total = |classes: &Vec<Class>| classes.iter().map(|class| class.gamma * class.members.len() as f64).sum();
        self.classes.iter().map(total).collect()
    }

    pub fn largest_gammas(&self) -> Vec<f64> {
        let largest = |classes: &Vec<Class>| classes.iter().map(|class| class.gamma).fold(0.0, f64::max);
        self.classes.iter().map(largest).collect()
    }

    /// The mean of something over everybody, clusters weighted by α_j·Σγ_i; where nothing ties them together, by Σγ_i.
    pub fn mean_of_all(&self, of_clusters: &[&[f64]]) -> Vec<f64> {
        let totals = self.totals();
        let tied: Vec<f64> = totals.iter().zip(self.alpha()).map(|(total, alpha)| total * alpha).collect();
        let size = |classes: &Vec<Class>| classes.iter().map(|class| class.members.len()).sum::<usize>() as f64;
        let sizes: Vec<f64> = self.classes.iter().map(size).collect();
        let candidates = [tied, totals, sizes];
        let weights = candidates.iter().find(|weights| weights.iter().sum::<f64>() > 0.0).unwrap_or(&candidates[2]);
        let whole: f64 = weights.iter().sum();
        let mut mean = vec![0.0; of_clusters[0].len()];
        weights.iter().zip(of_clusters).for_each(|(weight, of)| add_scaled(&mut mean, weight / whole, of));
        mean
    }

    /// α_j = λ_j/(λ_j + Σ_i γ_i).
    pub fn alpha(&self) -> Vec<f64> {
        let alpha = |(&lambda, total): (&f64, f64)| match lambda {
            f64::INFINITY => 1.0,
            0.0 => 0.0,
            lambda => lambda / (lambda + total),
        };
        self.lambda.iter().zip(self.totals()).map(alpha).collect()
    }

    /// Whether nobody is pulled at all.
    pub fn are_zero(&self) -> bool {
        self.gamma.iter().all(|&gamma| gamma == 0.0)
    }

    /// As they are given; `None` where they are not.
    pub fn given(setup: &Setup, objective: &Objective, families: &Families) -> Result<Option<Self>> {
        let Some(gamma) = &objective.client.gamma else { return Ok(None) };
        let mut faults = Vec::new();
        let clients = families.of.len();
        if objective.client.noise.is_some() && !setup.model.is_quadratic() {
            faults.push(Error::settings(format!("{}.noise: only a linear model has noise of its own", setup.place)));
        }
        // Clusters that are not known yet have no names or number to compare with.
        let provisional = setup.groups.as_ref().is_some_and(|groups| groups.provisional);
        let per_cluster = |given: &ForEach| match provisional {
            true => Ok(vec![1.0; families.count()]),
            false => per_cluster(given, families),
        };
        let gamma = match (per_cluster(gamma), gamma) {
            (Ok(clusters), _) => families.of.iter().map(|&cluster| clusters[cluster]).collect(),
            (Err(_), ForEach::List(list)) if list.len() == clients => list.clone(),
            (Err(found), given) => {
                let list = matches!(given, ForEach::List(_));
                let or = if list { format!(" (clusters) or {clients} (clients)") } else { String::new() };
                faults.push(Error::settings(format!("{}.gamma: {found}{or}", setup.place)));
                vec![0.0; clients]
            }
        };
        let mut of_clusters = |name: &str, given: &Option<ForEach>| {
            let fault = |found| faults.push(Error::settings(format!("{}.{name}: {found}", setup.place)));
            given.as_ref().and_then(|given| per_cluster(given).map_err(fault).ok())
        };
        let (lambda, alpha) = (of_clusters("lambda", &objective.lambda), of_clusters("alpha", &objective.alpha));
        if let Some(over) = alpha.iter().flatten().find(|alpha| **alpha > 1.0) {
            faults.push(Error::settings(format!("{}.alpha: got {over}, want 0 to 1", setup.place)));
        }
        crate::settings::finish(faults)?;
        let noise = objective.client.noise.unwrap_or(1.0);
        let mut strengths = Self::new(families, gamma, vec![0.0; families.count()], noise);
        strengths.lambda = match (lambda, alpha) {
            (Some(lambda), _) => lambda,
            (_, Some(alpha)) => {
                let lambda = |(alpha, total): (f64, f64)| match alpha {
                    1.0 => f64::INFINITY,
                    alpha => alpha / (1.0 - alpha) * total,
                };
                alpha.into_iter().zip(strengths.totals()).map(lambda).collect()
            }
            _ => strengths.lambda,
        };
        Ok(Some(strengths))
    }
}

/// One number for every cluster, or what was found instead; clients in no cluster get the mean of the others.
fn per_cluster(given: &ForEach, families: &Families) -> std::result::Result<Vec<f64>, String> {
    let named = families.count() - families.alone;
    let of_all = |mut numbers: Vec<f64>| {
        let mean = numbers.iter().sum::<f64>() / numbers.len().max(1) as f64;
        numbers.resize(families.count(), mean);
        numbers
    };
    match given {
        ForEach::List(list) if list.len() == named => Ok(of_all(list.clone())),
        ForEach::List(list) => Err(format!("got {} numbers, want {named}", list.len())),
        ForEach::Named(table) => {
            let names = &families.names[..named];
            if let Some((unknown, _)) = table.iter().find(|(name, _)| !names.contains(name)) {
                return Err(format!("there is no cluster `{unknown}`, want {}", names.join(", ")));
            }
            let one = |name: &String| {
                let found = table.iter().find(|(of, _)| of == name).map(|(_, number)| *number);
                found.ok_or_else(|| format!("has nothing for cluster `{name}`"))
            };
            Ok(of_all(names.iter().map(one).collect::<std::result::Result<_, String>>()?))
        }
        ForEach::One(number) => Ok(vec![*number; families.count()]),
    }
}
