//! All images of a data set, dealt to the clients: uneven in their classes or in their number, as benchmarks of personal models do it.
//!
//! The training and the test images are one deck. Each client has rows of its own, some of which are kept for testing, so that what it is
//! tested on is what it has. `dirichlet` gives every class away in shares drawn from a Dirichlet distribution, to clients that do not
//! have their part of all rows yet, and draws again until everybody has enough; `labels` gives each client so many classes; `quantity`
//! gives rows of all classes away in shares drawn from a Dirichlet distribution.

use super::images::{Allocation, ImageSettings, Images, Member, Pools, Row};
use super::*;
use rand::seq::SliceRandom;
use rand_distr::StandardNormal;

choices! {
    /// How all images are dealt to the clients.
    pub enum Deal { No = "no", Dirichlet = "dirichlet", Labels = "labels", Quantity = "quantity" }
}

settings! {
    /// How all images are dealt to the clients.
    pub struct Dealing {
        /// deal all images, of both files, to the clients, in place of samples for each: every class in Dirichlet shares, so many labels a client, or uneven numbers of rows
        deal: Deal = "no",
        /// labels of a client
        #[only_with(deal = "labels")]
        labels_each: usize [1..=256] = 2,
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
    let all = Images::joined(&pools.train, &pools.test);
    let key = allocation.key.clone().word("deal");
    let classes: Vec<Option<usize>> = (0..all.len() as u32).map(|image| allocation.class(&all, image)).collect();
    let hands = deal(&classes, allocation.classes, members.len(), settings, &key)?;
    let own = part.places(members.len())?;
    let mut clients = Vec::with_capacity(own.len());
    for number in own {
        let deviation = settings.dealing.noise * (number + 1) as f64 / members.len() as f64;
        clients.push(client(&allocation, &all, &members[number], &hands[number], deviation)?);
    }
    let plants = settings.clusters.plants();
    Ok(Population {
        clients,
        true_clusters: plants.then_some(allocation.clusters),
        shape: DataShape { columns: all.columns(), classes: allocation.classes, form: all.form(allocation.augment) },
        ..Population::default()
    })
}

fn client(allocation: &Allocation, all: &Images, member: &Member, hand: &[u32], deviation: f64) -> Result<Client> {
    let settings = allocation.settings;
    let mut hand = hand.to_vec();
    hand.shuffle(&mut allocation.key.clone().word("held out").word(&member.id).rng());
    let tested = ((settings.dealing.test_fraction * hand.len() as f64).round() as usize).min(hand.len() - 1);
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
        deal(&classes, 10, clients, &ImageSettings::of(&settings), &Key::new(3))
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
    fn what_cannot_be_dealt_is_said() {
        let error = hands("deal = \"quantity\"\nleast_rows = 200", 8).unwrap_err().to_string();
        assert!(error.contains("8 clients x 200 rows are more than the 1000 images"), "{error}");
        let error = hands("deal = \"labels\"\nlabels_each = 11\nleast_rows = 1", 8).unwrap_err().to_string();
        assert!(error.contains("data.labels_each: got 11, want at most the 10 labels"), "{error}");
    }
}
