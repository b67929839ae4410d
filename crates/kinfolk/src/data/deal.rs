//! All images of a data set, dealt to the clients: uneven in their classes or in their number, as benchmarks of personal models do it.
//!
//! The training and the test images are one deck. Each client has rows of its own, some of which are kept for testing, so that what it is
//! tested on is what it has. `dirichlet` gives every class away in shares drawn from a Dirichlet distribution, to clients that do not
//! have their part of all rows yet, and draws again until everybody has enough; `labels` gives each client so many classes; `quantity`
//! gives rows of all classes away in shares drawn from a Dirichlet distribution; `groups` gives each group of clients, which are the true
//! clusters, stated shares of every class, in equal parts.

use super::images::{Allocation, ImageSettings, Images, Member, Pools, Row};
use super::split::block;
use super::*;
use rand::seq::SliceRandom;
use rand_distr::StandardNormal;

choices! {
    /// How all images are dealt to the clients.
    pub enum Deal {
        No = "no",
        Dirichlet = "dirichlet",
        Labels = "labels",
        Quantity = "quantity",
        Groups = "groups",
    }
}

settings! {
    /// How all images are dealt to the clients.
    pub struct Dealing {
        /// deal all images, of both files, to the clients, in place of samples for each: every class in Dirichlet shares, so many labels a client, uneven numbers of rows, or stated shares of the labels for groups of clients
        deal: Deal = "no",
        /// labels of a client
        #[only_with(deal = "labels")]
        labels_each: usize [1..=256] = 2,
        /// the labels of every group of clients, each with the share of its images that the group gets, such as "0:0.25 1:0.5"
        #[only_with(deal = "groups")]
        label_shares: Vec<String> = [],
        /// share of their training rows that the clients of every group keep; left out: all of them
        #[only_with(deal = "groups")]
        kept_rows: Option<Vec<f64>>,
        /// fewest rows of a client
        least_rows: usize [1..=100_000_000] = 40,
        /// share of a client's rows that is kept for testing
        test_fraction: f64 [0.0..1.0] = 0.25,
        /// deviation of the noise in the last client's pixels, which are from 0 to 1; that of client i is i/n of it
        noise: f64 [0.0..=10.0] = 0.0,
    }
}

/// The clients, with all images dealt to them.
pub(super) fn build(pools: &Pools, settings: &ImageSettings, seed: u64, part: Part) -> Result<Population> {
    let allocation = Allocation::new(pools, settings, seed)?;
    let members = allocation.members(settings.clients, "");
    let groups = Groups::read(settings, allocation.classes)?;
    let all = Images::joined(&pools.train, &pools.test);
    let key = allocation.key.clone().word("deal");
    let classes: Vec<Option<usize>> = (0..all.len() as u32).map(|image| allocation.class(&all, image)).collect();
    let hands = deal(&classes, allocation.classes, members.len(), settings, &groups, &key)?;
    let own = part.places(members.len())?;
    let mut clients = Vec::with_capacity(own.len());
    for number in own {
        let deviation = settings.dealing.noise * (number + 1) as f64 / members.len() as f64;
        let mut client = client(&allocation, &all, &members[number], &hands[number], deviation, groups.kept(number))?;
        client.truth = client.truth.or(groups.of(number));
        clients.push(client);
    }
    let transformed = settings.clusters.plants().then_some(allocation.clusters);
    Ok(Population {
        clients,
        true_clusters: transformed.or((!groups.shares.is_empty()).then_some(groups.shares.len())),
        shape: DataShape { columns: all.columns(), classes: allocation.classes, form: all.form(allocation.augment) },
        ..Population::default()
    })
}

/// Of its training rows a client keeps the share `kept`.
fn client(
    allocation: &Allocation,
    all: &Images,
    member: &Member,
    hand: &[u32],
    deviation: f64,
    kept: f64,
) -> Result<Client> {
    let settings = allocation.settings;
    let mut hand = hand.to_vec();
    hand.shuffle(&mut allocation.key.clone().word("held out").word(&member.id).rng());
    let tested = ((settings.dealing.test_fraction * hand.len() as f64).round() as usize).min(hand.len() - 1);
    let trained = (kept * (hand.len() - tested) as f64).round() as usize;
    hand.truncate(tested + trained.max(1));
    let rows: Vec<Row> = hand.iter().map(|&image| member.row(image)).collect();
    let (mut features, classes) = allocation.store(all, &rows);
    if deviation > 0.0 {
        blur(&mut features, deviation, &mut allocation.key.clone().word("noise").word(&member.id).rng());
    }
    let whole = Shard::new(features, Targets::Classes(classes))?;
    let shard = |rows| Shard::of(whole.features().clone(), whole.targets().clone(), rows);
    Ok(Client {
        id: member.id.clone(),
        train: shard(tested..hand.len())?,
        test: shard(0..tested)?,
        group: None,
        truth: settings.clusters.plants().then_some(member.cluster),
    })
}

/// Adds normal noise to pixels, which stay within their range.
fn blur(features: &mut Features, deviation: f64, rng: &mut Rng) {
    let mut noisy = |value: f64| (value + 255.0 * deviation * rng.sample::<f64, _>(StandardNormal)).clamp(0.0, 255.0);
    match features {
        Features::Bytes { values, .. } => {
            values.iter_mut().for_each(|value| *value = noisy(f64::from(*value)).round() as u8);
        }
        Features::F32 { values, .. } => values.iter_mut().for_each(|value| *value = noisy(f64::from(*value)) as f32),
        _ => {}
    }
}

/// Which images each client has; `classes` are those of the images, `None` for one that nobody gets.
fn deal(
    classes: &[Option<usize>],
    count: usize,
    clients: usize,
    settings: &ImageSettings,
    groups: &Groups,
    key: &Key,
) -> Result<Vec<Vec<u32>>> {
    let least = settings.dealing.least_rows;
    let kept = classes.iter().flatten().count();
    if clients * least > kept {
        let message = format!("data.least_rows: {clients} clients x {least} rows are more than the {kept} images");
        return Err(Error::settings(message).hint("fewer clients, or fewer least_rows"));
    }
    // Shares are drawn again until everybody has enough; some wishes cannot be met.
    const MOST_TRIES: u64 = 10_000;
    for attempt in 0..MOST_TRIES {
        let mut rng = key.clone().number(attempt).rng();
        let mut piles: Vec<Vec<u32>> = vec![Vec::new(); count];
        for (image, class) in (0u32..).zip(classes) {
            if let Some(class) = class {
                piles[*class].push(image);
            }
        }
        piles.iter_mut().for_each(|pile| pile.shuffle(&mut rng));
        let hands = match settings.dealing.deal {
            Deal::No => unreachable!("nothing is dealt"),
            Deal::Dirichlet => by_class(&piles, clients, settings.alpha, kept, &mut rng)?,
            Deal::Labels => by_labels(&piles, clients, settings.dealing.labels_each, &mut rng)?,
            Deal::Quantity => {
                let mut deck = piles.concat();
                deck.shuffle(&mut rng);
                give(&deck, &dirichlet(settings.alpha, clients, &mut rng)?)
            }
            Deal::Groups => groups.hands(&piles, clients),
        };
        if hands.iter().all(|hand| hand.len() >= least) {
            return Ok(hands);
        }
    }
    let message = format!("data.least_rows: got {least}, and no draw gave every client as many");
    Err(Error::settings(message).hint("fewer clients, fewer least_rows, or a larger alpha"))
}

/// Every class in shares of its own; a client that has its part of all rows gets no more.
fn by_class(piles: &[Vec<u32>], clients: usize, alpha: f64, rows: usize, rng: &mut Rng) -> Result<Vec<Vec<u32>>> {
    let mut hands: Vec<Vec<u32>> = vec![Vec::new(); clients];
    for pile in piles {
        let mut shares = dirichlet(alpha, clients, rng)?;
        for (share, hand) in shares.iter_mut().zip(&hands) {
            if hand.len() * clients >= rows {
                *share = 0.0;
            }
        }
        let total: f64 = shares.iter().sum();
        if total > 0.0 {
            shares.iter_mut().for_each(|share| *share /= total);
            hands.iter_mut().zip(give(pile, &shares)).for_each(|(hand, more)| hand.extend(more));
        }
    }
    Ok(hands)
}

/// So many classes a client, every class for as many clients as can be, in equal parts.
fn by_labels(piles: &[Vec<u32>], clients: usize, each: usize, rng: &mut Rng) -> Result<Vec<Vec<u32>>> {
    if each > piles.len() {
        return Err(Error::settings(format!("data.labels_each: got {each}, want at most the {} labels", piles.len())));
    }
    let mut holders: Vec<Vec<usize>> = vec![Vec::new(); piles.len()];
    let mut order: Vec<usize> = (0..piles.len()).collect();
    for client in 0..clients {
        order.shuffle(rng);
        order.sort_by_key(|&class| holders[class].len());
        order[..each].iter().for_each(|&class| holders[class].push(client));
    }
    let mut hands: Vec<Vec<u32>> = vec![Vec::new(); clients];
    for (pile, holders) in piles.iter().zip(&holders).filter(|(_, holders)| !holders.is_empty()) {
        let parts = give(pile, &vec![1.0 / holders.len() as f64; holders.len()]);
        holders.iter().zip(parts).for_each(|(&client, part)| hands[client].extend(part));
    }
    Ok(hands)
}

/// What groups of clients get, with `deal = "groups"`; no groups otherwise.
#[derive(Debug)]
struct Groups {
    /// By groups, then classes.
    shares: Vec<Vec<f64>>,
    kept: Vec<f64>,
    clients: usize,
}

impl Groups {
    fn read(settings: &ImageSettings, classes: usize) -> Result<Self> {
        let Dealing { deal, label_shares, kept_rows, .. } = &settings.dealing;
        let kept_rows = kept_rows.as_deref().unwrap_or_default();
        let clients = settings.clients;
        if *deal != Deal::Groups {
            return Ok(Self { shares: Vec::new(), kept: Vec::new(), clients });
        }
        let count = label_shares.len();
        let mut faults = Vec::new();
        if count == 0 || count > clients {
            faults.push(format!("data.label_shares: got {count} groups, want from 1 to the {clients} clients"));
        }
        let mut shares = vec![vec![0.0; classes]; count];
        for (text, shares) in label_shares.iter().zip(&mut shares) {
            for part in text.split_whitespace() {
                let read = part.split_once(':').and_then(|(label, share)| {
                    Some((label.parse::<usize>().ok()?, share.parse::<f64>().ok().filter(|share| *share > 0.0)?))
                });
                match read.filter(|(label, share)| *label < classes && *share <= 1.0) {
                    Some((label, share)) => shares[label] += share,
                    None => faults.push(format!(
                        "data.label_shares: got \"{part}\", want a label from 0 to {} and a share up to 1, such as \"1:0.5\"",
                        classes.saturating_sub(1)
                    )),
                }
            }
        }
        for label in 0..classes {
            let sum: f64 = shares.iter().map(|shares| shares[label]).sum();
            if sum > 1.0 + 1e-9 {
                faults.push(format!("data.label_shares: the shares of label {label} sum to {sum}, want at most 1"));
            }
        }
        if !kept_rows.is_empty() && kept_rows.len() != count {
            faults
                .push(format!("data.kept_rows: got {} numbers, want one for each of {count} groups", kept_rows.len()));
        }
        if let Some(kept) = kept_rows.iter().find(|kept| **kept > 1.0) {
            faults.push(format!("data.kept_rows: got {kept}, want shares up to 1"));
        }
        finish(faults.into_iter().map(Error::settings).collect())?;
        Ok(Self { shares, kept: kept_rows.to_vec(), clients })
    }

    fn of(&self, client: usize) -> Option<usize> {
        (!self.shares.is_empty()).then(|| block(client, self.clients, self.shares.len()))
    }

    fn kept(&self, client: usize) -> f64 {
        self.of(client).and_then(|group| self.kept.get(group).copied()).unwrap_or(1.0)
    }

    /// Each group's share of a pile in equal parts for its clients; what is left over nobody gets.
    fn hands(&self, piles: &[Vec<u32>], clients: usize) -> Vec<Vec<u32>> {
        let of: Vec<usize> = (0..clients).filter_map(|client| self.of(client)).collect();
        let size = |group: usize| of.iter().filter(|other| **other == group).count() as f64;
        let mut hands = vec![Vec::new(); clients];
        for (class, pile) in piles.iter().enumerate() {
            let mut shares: Vec<f64> = of.iter().map(|&group| self.shares[group][class] / size(group)).collect();
            shares.push(1.0 - shares.iter().sum::<f64>());
            hands.iter_mut().zip(give(pile, &shares)).for_each(|(hand, more)| hand.extend(more));
        }
        hands
    }
}

/// A pile cut at these shares, which sum to one.
fn give(pile: &[u32], shares: &[f64]) -> Vec<Vec<u32>> {
    let (mut hands, mut sum, mut begin) = (Vec::new(), 0.0, 0);
    for (place, share) in shares.iter().enumerate() {
        sum += share;
        let last = place + 1 == shares.len();
        let end = if last { pile.len() } else { ((sum * pile.len() as f64) as usize).clamp(begin, pile.len()) };
        hands.push(pile[begin..end].to_vec());
        begin = end;
    }
    hands
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hands(text: &str, clients: usize) -> Result<Vec<Vec<u32>>> {
        let settings = Settings::check("data", ImageSettings::SETTINGS, toml::from_str(text).unwrap(), &mut Vec::new());
        // 1000 images of ten classes, and 100 that nobody gets.
        let classes: Vec<Option<usize>> = (0..1100).map(|image| (image < 1000).then_some(image % 10)).collect();
        let settings = ImageSettings { clients, ..ImageSettings::of(&settings) };
        deal(&classes, 10, clients, &settings, &Groups::read(&settings, 10)?, &Key::new(3))
    }

    fn labels(hand: &[u32]) -> Vec<usize> {
        let mut counts = vec![0; 10];
        hand.iter().for_each(|image| counts[*image as usize % 10] += 1);
        counts
    }

    #[test]
    fn every_image_has_one_owner() {
        for deal in ["dirichlet", "labels", "quantity"] {
            let hands = hands(&format!("deal = \"{deal}\"\nleast_rows = 10\nalpha = 0.3"), 8).unwrap();
            let mut all = hands.concat();
            all.sort_unstable();
            assert_eq!(all, (0..1000).collect::<Vec<_>>(), "{deal}");
            assert!(hands.iter().all(|hand| hand.len() >= 10), "{deal}");
        }
    }

    #[test]
    fn so_many_labels_a_client() {
        let hands = hands("deal = \"labels\"\nlabels_each = 2\nleast_rows = 1", 20).unwrap();
        for hand in &hands {
            let held: Vec<usize> = labels(hand).into_iter().filter(|count| *count > 0).collect();
            // Each class has four holders, with a quarter of its hundred images.
            assert_eq!(held, [25, 25]);
        }
    }

    #[test]
    fn small_alpha_is_uneven() {
        let largest = |alpha: f64| {
            let hands = hands(&format!("deal = \"dirichlet\"\nalpha = {alpha}\nleast_rows = 5"), 10).unwrap();
            let share = |hand: &Vec<u32>| *labels(hand).iter().max().unwrap() as f64 / hand.len() as f64;
            hands.iter().map(share).sum::<f64>() / 10.0
        };
        assert!(largest(0.1) > 0.45 && largest(100.0) < 0.2, "{} {}", largest(0.1), largest(100.0));
    }

    #[test]
    fn groups_get_their_shares_in_equal_parts() {
        let text = "deal = \"groups\"\nlabel_shares = [\"0:0.25 1:0.5\", \"1:0.5 9:1\"]\nleast_rows = 1";
        let hands = hands(text, 4).unwrap();
        let counts: Vec<Vec<usize>> = hands.iter().map(|hand| labels(hand)).collect();
        let with = |pairs: &[(usize, usize)]| {
            let mut counts = vec![0; 10];
            pairs.iter().for_each(|&(label, count)| counts[label] = count);
            counts
        };
        // Of 100 images of a label: a quarter or a half of them, for two clients.
        assert_eq!(counts[0], with(&[(0, 12), (1, 25)]));
        assert_eq!(counts[1], with(&[(0, 13), (1, 25)]));
        assert_eq!(counts[2], with(&[(1, 25), (9, 50)]));
        assert_eq!(counts[3], with(&[(1, 25), (9, 50)]));
    }

    #[test]
    fn what_cannot_be_dealt_is_said() {
        let error = hands("deal = \"groups\"\nlabel_shares = [\"10:0.5 2:0.5\", \"2:0.6 x\"]\nkept_rows = [2]", 8);
        let error = error.unwrap_err().to_string();
        for part in [
            "data.label_shares: got \"10:0.5\", want a label from 0 to 9 and a share up to 1",
            "got \"x\"",
            "the shares of label 2 sum to 1.1, want at most 1",
            "data.kept_rows: got 1 numbers, want one for each of 2 groups",
            "data.kept_rows: got 2, want shares up to 1",
        ] {
            assert!(error.contains(part), "{part} in {error}");
        }
        let error = hands("deal = \"quantity\"\nleast_rows = 200", 8).unwrap_err().to_string();
        assert!(error.contains("8 clients x 200 rows are more than the 1000 images"), "{error}");
        let error = hands("deal = \"labels\"\nlabels_each = 11\nleast_rows = 1", 8).unwrap_err().to_string();
        assert!(error.contains("data.labels_each: got 11, want at most the 10 labels"), "{error}");
    }
}
