use super::*;
use crate::num::{Spectrum, multiply_add};
use crate::rng::Key;
use rand::RngExt;
use rand_distr::StandardNormal;

/// Rows of clients in clusters.
struct World {
    size: usize,
    /// For every cluster and client its features and targets.
    clusters: Vec<Vec<(Vec<f64>, Vec<f64>)>>,
}

impl World {
    /// Draws clusters with these numbers of clients, with `rows(i)` rows for the i-th, and these variances.
    fn draw(seed: u64, size: usize, clients: &[usize], rows: impl Fn(usize) -> usize, variances: [f64; 3]) -> Self {
        let mut random = Key::new(seed).word("world").rng();
        let mut draw = |count: usize, variance: f64| -> Vec<f64> {
            (0..count).map(|_| variance.sqrt() * random.sample::<f64, _>(StandardNormal)).collect()
        };
        let [noise, within, between] = variances;
        let around = |centre: &[f64], moved: Vec<f64>| centre.iter().zip(moved).map(|(c, m)| c + m).collect::<Vec<_>>();
        let global = draw(size, 4.0);
        let mut cluster = |count: usize| {
            let centre = around(&global, draw(size, between));
            let client = |i: usize| {
                let theta = around(&centre, draw(size, within));
                let features = draw(rows(i) * size, 1.0);
                let exact: Vec<f64> = features.chunks_exact(size).map(|row| dot(row, &theta)).collect();
                let targets = around(&exact, draw(rows(i), noise));
                (features, targets)
            };
            (0..count).map(client).collect()
        };
        Self { size, clusters: clients.iter().map(|&count| cluster(count)).collect() }
    }

    fn rows(&self) -> usize {
        self.clusters.iter().flatten().map(|(_, targets)| targets.len()).sum()
    }

    fn losses(&self) -> Vec<Vec<Quadratic>> {
        let loss = |(features, targets): &(Vec<f64>, Vec<f64>)| {
            let (mut curvature, mut moment) = (vec![0.0; self.size * self.size], vec![0.0; self.size]);
            let matrix = Matrix::new(features, targets.len(), self.size);
            multiply_add(&mut curvature, 1.0, matrix.transpose(), matrix);
            multiply_add(&mut moment, 1.0, matrix.transpose(), Matrix::new(targets, targets.len(), 1));
            Quadratic { curvature, moment, energy: 0.5 * dot(targets, targets) }
        };
        self.clusters.iter().map(|clients| clients.iter().map(loss).collect()).collect()
    }

    fn design(&self, common: bool) -> Design {
        let losses = self.losses();
        let curvature = losses.iter().flatten().map(|loss| trace(&loss.curvature, self.size)).sum::<f64>();
        Design {
            dimension: self.size,
            rows: self.rows(),
            clients: self.clusters.iter().map(Vec::len).collect(),
            curvature: curvature / self.size as f64,
            noise: None,
            common,
        }
    }

    /// The negative log likelihood without constants, by the covariance of all rows: with the global centre as the
    /// fixed effect it is `½[log|V| + log|XᵀV⁻¹X| + rᵀV⁻¹r]`.
    fn dense(&self, noise: f64, within: &[f64], between: f64) -> f64 {
        let (size, count) = (self.size, self.rows());
        let rows: Vec<(usize, usize, &[f64], f64)> = self
            .clusters
            .iter()
            .enumerate()
            .flat_map(|(j, clients)| clients.iter().enumerate().map(move |(i, client)| (j, i, client)))
            .flat_map(|(j, i, (x, y))| x.chunks_exact(size).zip(y).map(move |(row, y)| (j, i, row, *y)))
            .collect();
        let covariance: Vec<f64> = (0..count * count)
            .map(|entry| {
                let ((j, i, x, _), (k, l, z, _)) = (rows[entry / count], rows[entry % count]);
                let shared = if j != k { 0.0 } else { between + if i == l { within[j] } else { 0.0 } };
                shared * dot(x, z) + if entry % (count + 1) == 0 { noise } else { 0.0 }
            })
            .collect();
        let x: Vec<f64> = rows.iter().flat_map(|row| row.2.iter().copied()).collect();
        let y: Vec<f64> = rows.iter().map(|row| row.3).collect();
        let spectrum = Spectrum::new(&covariance, count).unwrap();
        let inverse = spectrum.inverse();
        let (mut half, mut fixed, mut moment) = (vec![0.0; size * count], vec![0.0; size * size], vec![0.0; size]);
        let x = Matrix::new(&x, count, size);
        multiply(&mut half, 1.0, x.transpose(), Matrix::new(&inverse, count, count));
        multiply(&mut fixed, 1.0, Matrix::new(&half, size, count), x);
        multiply(&mut moment, 1.0, Matrix::new(&half, size, count), Matrix::new(&y, count, 1));
        let fixed = Spectrum::new(&fixed, size).unwrap();
        let squares = dot(&y, &spectrum.solve(&y)) - dot(&moment, &fixed.solve(&moment));
        0.5 * (spectrum.sum(f64::ln) + fixed.sum(f64::ln) + squares)
    }
}

/// What the clients would say.
fn ask(losses: &[Vec<Quadratic>], strengths: &[f64]) -> Vec<ClusterSums> {
    let size = losses[0][0].dimension();
    let cluster = |(clients, &strength): (&Vec<Quadratic>, &f64)| {
        let mut packed = [vec![0.0; Response::packed_len(size)], vec![0.0; Response::packed_len(size)]];
        for client in clients {
            let (response, slope) = client.respond_with_slope(strength).unwrap();
            for (sum, one) in packed.iter_mut().zip([response, slope]) {
                let mut numbers = Vec::new();
                one.pack(&mut numbers);
                crate::num::add_scaled(sum, 1.0, &numbers);
            }
        }
        let [response, slope] = packed.map(|sum| Response::unpack(&sum, size));
        ClusterSums { response, slope }
    };
    losses.iter().zip(strengths).map(cluster).collect()
}

fn search(world: &World, design: Design) -> Result<Estimates> {
    let losses = world.losses();
    let mut search = VarianceSearch::new(design)?;
    for _ in 0..200 {
        let sums = ask(&losses, search.wanted());
        if let Some(estimates) = search.tell(&sums)? {
            return Ok(estimates);
        }
    }
    panic!("no end");
}

/// The likelihood in noise and ratios, with all its gradients in their logarithms: strengths, ratio, noise.
fn value_and_gradient(world: &World, noise: f64, strengths: &[f64], ratio: f64) -> (f64, Vec<f64>) {
    let sums = ask(&world.losses(), strengths);
    let evidence: Vec<Quadratic> = sums.iter().map(|cluster| cluster.response.clone().into_quadratic()).collect();
    let volume = sums.iter().map(|cluster| cluster.response.volume).sum();
    let design = world.design(false);
    let found = design.likelihood(&evidence, volume, ratio, Some(noise)).unwrap();
    let within = found.within(&sums, strengths).unwrap();
    let mut gradient: Vec<f64> = within.iter().zip(strengths).map(|(one, &g)| one.gradient(g)).collect();
    gradient.push(found.between.gradient(ratio));
    gradient.push(0.5 * (design.rows - design.dimension) as f64 - found.misfit / noise);
    (found.value, gradient)
}

#[test]
fn the_likelihood_is_that_of_all_rows_together() {
    // Clients with fewer rows than parameters among them, and one with a single row.
    let world = World::draw(1, 3, &[4, 2, 1], |i| [5, 1, 2, 8][i], [0.5, 1.0, 2.0]);
    let cases = [(1.0, [1.0, 1.0, 1.0], 1.0), (0.3, [2.0, 0.1, 0.7], 5.0), (4.0, [0.01, 3.0, 1.0], 0.02)];
    let differences = cases.map(|(noise, within, between)| {
        let strengths = within.map(|variance| noise / variance);
        let (value, _) = value_and_gradient(&world, noise, &strengths, noise / between);
        value - world.dense(noise, &within, between)
    });
    // They may differ by a constant, and do not even do that.
    assert!(differences.iter().all(|difference| difference.abs() < 1e-10), "{differences:?}");
}

#[test]
fn gradients_are_those_of_the_value() {
    let world = World::draw(2, 3, &[4, 2, 3], |i| [5, 1, 2, 8][i], [0.5, 1.0, 2.0]);
    let at: Vec<f64> = [2.0, 0.3, 1.1, 0.4, 0.7].map(f64::ln).to_vec();
    let look = |x: &[f64]| {
        let x: Vec<f64> = x.iter().map(|x| x.exp()).collect();
        value_and_gradient(&world, x[4], &x[..3], x[3])
    };
    let (_, gradient) = look(&at);
    for i in 0..at.len() {
        let beside = |step: f64| {
            let mut x = at.clone();
            x[i] += step;
            look(&x).0
        };
        let difference = (beside(1e-4) - beside(-1e-4)) / 2e-4;
        assert!((difference - gradient[i]).abs() < 1e-6 * (1.0 + difference.abs()), "{i}: {difference} {gradient:?}");
    }
}

#[test]
fn the_end_is_a_smallest_value_and_its_curvature_gives_the_errors() {
    let world = World::draw(3, 2, &[6, 5, 4, 6], |i| 3 + i % 4, [0.5, 1.0, 2.0]);
    let found = search(&world, world.design(true)).unwrap();
    let at = [found.noise, found.within[0], found.between.unwrap()].map(f64::ln);
    let value = |x: [f64; 3]| world.dense(x[0].exp(), &[x[1].exp(); 4], x[2].exp());
    let h = 1e-2;
    let moved = |steps: [f64; 3]| value([0, 1, 2].map(|i| at[i] + h * steps[i]));
    let unit = |i: usize, sign: f64| [0, 1, 2].map(|j| if i == j { sign } else { 0.0 });
    let mut information = [0.0; 9];
    for i in 0..3 {
        let gradient = (moved(unit(i, 1.0)) - moved(unit(i, -1.0))) / (2.0 * h);
        assert!(gradient.abs() < 1e-3, "{i}: {gradient}");
        for j in 0..3 {
            let corner = |a: f64, b: f64| moved([0, 1, 2].map(|k| unit(i, a)[k] + unit(j, b)[k]));
            let sum = corner(1.0, 1.0) - corner(1.0, -1.0) - corner(-1.0, 1.0) + corner(-1.0, -1.0);
            information[i * 3 + j] = sum / (4.0 * h * h);
        }
    }
    let covariance = Spectrum::new(&information, 3).unwrap().inverse();
    let errors = &found.standard_errors;
    let found = [found.noise, found.within[0], found.between.unwrap()];
    for (i, error) in [errors.noise, errors.within[3], errors.between].into_iter().enumerate() {
        let wanted = found[i] * covariance[4 * i].sqrt();
        assert!((error.unwrap() / wanted - 1.0).abs() < 5e-3, "{i}: {error:?} {wanted}");
    }
}

#[test]
fn planted_variances_are_found_in_few_rounds() {
    for seed in 0..3 {
        let truth = [0.8, 0.5, 2.0];
        let world = World::draw(10 + seed, 6, &[10; 12], |i| 4 + 4 * i, truth);
        for common in [true, false] {
            let found = search(&world, world.design(common)).unwrap();
            assert!(found.rounds <= if common { 9 } else { 20 } && found.notes.is_empty(), "{found:?}");
            let errors = &found.standard_errors;
            let estimates = [(found.noise, errors.noise), (found.between.unwrap(), errors.between)];
            for ((estimate, error), truth) in estimates.into_iter().zip([truth[0], truth[2]]) {
                assert!((estimate - truth).abs() < 3.0 * error.unwrap(), "{estimate} {error:?} {truth}");
                assert!(error.unwrap() < 0.3 * truth);
            }
            for (estimate, error) in found.within.iter().zip(&errors.within) {
                assert!((estimate - truth[1]).abs() < 3.5 * error.unwrap(), "{estimate} {error:?}");
            }
        }
    }
}

#[test]
fn clusters_may_differ_in_their_variances() {
    let mut world = World::draw(5, 4, &[15; 4], |_| 12, [1.0, 0.2, 1.0]);
    world.clusters.extend(World::draw(6, 4, &[15; 4], |_| 12, [1.0, 3.0, 1.0]).clusters);
    let found = search(&world, world.design(false)).unwrap();
    for (j, (estimate, error)) in found.within.iter().zip(&found.standard_errors.within).enumerate() {
        let truth = if j < 4 { 0.2 } else { 3.0 };
        assert!((estimate - truth).abs() < 3.0 * error.unwrap() && error.unwrap() < 0.5 * truth, "{found:?}");
    }
    let losses = world.losses();
    let at = |scale: &[f64]| {
        let strengths: Vec<f64> =
            found.within.iter().zip(scale).map(|(variance, s)| s * found.noise / variance).collect();
        assert_eq!(losses.len(), strengths.len());
        value_and_gradient(&world, found.noise, &strengths, found.noise / found.between.unwrap()).0
    };
    let best = at(&[1.0; 8]);
    for j in 0..8 {
        for factor in [0.9, 1.1] {
            let mut scale = [1.0; 8];
            scale[j] = factor;
            assert!(at(&scale) > best);
        }
    }
}

#[test]
fn what_is_not_there_is_put_at_zero_and_said() {
    // Clients that do not differ: whether the estimate is at the bound is for the data to say; in these it is.
    let (mut same_clients, mut same_centres) = (0, 0);
    for seed in 0..6 {
        let world = World::draw(20 + seed, 3, &[6; 5], |_| 6, [1.0, 0.0, 1.0]);
        let found = search(&world, world.design(true)).unwrap();
        assert!(found.within[0] < 0.1 && found.rounds <= 12, "{found:?}");
        if found.within[0] == 0.0 {
            same_clients += 1;
            assert!(found.notes[0].contains("clients differ no more"));
            assert_eq!(found.standard_errors.within[0], None);
            assert!(found.standard_errors.between.unwrap() > 0.0);
        }
        let world = World::draw(30 + seed, 3, &[6; 5], |_| 6, [1.0, 1.0, 0.0]);
        let found = search(&world, world.design(true)).unwrap();
        assert!(found.between.unwrap() < 0.3, "{found:?}");
        if found.between == Some(0.0) {
            same_centres += 1;
            assert!(found.notes[0].contains("centres differ no more") && found.standard_errors.between.is_none());
        }
    }
    assert!((1..6).contains(&same_clients) && (1..6).contains(&same_centres), "{same_clients} {same_centres}");
}

#[test]
fn clients_that_do_not_differ_leave_nothing_free_and_no_panic() {
    // One cluster, known noise, and clients that are one: no variance is left to have a standard error.
    let (mut at_the_bound, mut found_some) = (0, 0);
    for seed in 0..8 {
        let world = World::draw(200 + seed, 3, &[12], |_| 8, [1.0, 0.0, 1.0]);
        for common in [true, false] {
            let found = search(&world, Design { noise: Some(1.0), ..world.design(common) }).unwrap();
            assert_eq!((found.noise, found.between, found.standard_errors.noise), (1.0, None, None));
            match found.within[0] {
                0.0 => {
                    at_the_bound += 1;
                    assert_eq!(found.standard_errors.within, [None]);
                    assert!(found.notes.iter().any(|note| note.contains("clients differ no more")), "{found:?}");
                }
                _ => found_some += 1,
            }
        }
    }
    assert!(at_the_bound > 0 && found_some > 0, "{at_the_bound} {found_some}");
}

#[test]
fn a_search_that_does_not_settle_says_so() {
    // The sums never answer to what is wanted, so that no step leads anywhere.
    let world = World::draw(95, 2, &[4; 3], |_| 5, [1.0; 3]);
    let mut search = VarianceSearch::new(world.design(false)).unwrap();
    let sums = ask(&world.losses(), search.wanted());
    let found = (0..200).find_map(|_| search.tell(&sums).unwrap());
    assert!(found.unwrap().notes.iter().any(|note| note.contains("did not settle")));
}

#[test]
fn one_cluster_has_nothing_between() {
    let world = World::draw(40, 3, &[40], |_| 8, [1.0, 2.0, 1.0]);
    let found = search(&world, world.design(true)).unwrap();
    assert_eq!((found.between, found.standard_errors.between), (None, None));
    assert!(found.notes[0].contains("one cluster only"));
    assert!((found.within[0] - 2.0).abs() < 3.0 * found.standard_errors.within[0].unwrap());
}

#[test]
fn known_noise_is_not_touched() {
    let world = World::draw(50, 3, &[10; 8], |_| 5, [1.0, 2.0, 1.0]);
    let found = search(&world, Design { noise: Some(1.0), ..world.design(true) }).unwrap();
    assert_eq!((found.noise, found.standard_errors.noise), (1.0, None));
    assert!((found.within[0] - 2.0).abs() < 3.0 * found.standard_errors.within[0].unwrap());
    let slope = |x: f64| world.dense(1.0, &[x; 8], found.between.unwrap());
    assert!((slope(1.01 * found.within[0]) - slope(0.99 * found.within[0])).abs() < 1e-3);
}

#[test]
fn noise_that_cannot_be_seen_is_said() {
    // Without noise, and with fewer rows than parameters everywhere, the clients' differences explain everything.
    let world = World::draw(60, 4, &[12; 6], |_| 2, [0.0, 1.0, 1.0]);
    let found = search(&world, world.design(true)).unwrap();
    assert!(found.notes.iter().any(|note| note.contains("noise cannot be told from zero")), "{found:?}");
    assert!(found.noise < 1e-5 && found.rounds <= 12 && found.standard_errors.noise.is_none(), "{found:?}");
    let error = found.standard_errors.within[2].unwrap();
    assert!((found.within[2] - 1.0).abs() < 3.0 * error && error < 0.3, "{found:?}");
}

#[test]
fn too_little_to_go_by_is_an_error() {
    let world = World::draw(70, 4, &[1, 1], |_| 2, [1.0, 1.0, 1.0]);
    let error = search(&world, world.design(true)).unwrap_err();
    assert!(error.to_string().contains("4 rows for 4 parameters"), "{error}");
    let mut exact = World::draw(71, 2, &[3, 3], |_| 4, [0.0, 0.0, 0.0]);
    exact.clusters.iter_mut().flatten().for_each(|(_, targets)| targets.fill(0.0));
    assert!(search(&exact, exact.design(true)).unwrap_err().to_string().contains("exactly"));
    let design = Design { curvature: 0.0, ..world.design(true) };
    assert!(VarianceSearch::new(design).is_err());
}

#[test]
fn directions_without_data_do_no_harm() {
    // A third feature that is always zero changes nothing.
    let plain = World::draw(80, 2, &[5; 4], |_| 6, [1.0; 3]);
    let widen = |(x, y): &(Vec<f64>, Vec<f64>)| {
        (x.chunks_exact(2).flat_map(|row| [row[0], row[1], 0.0]).collect::<Vec<f64>>(), y.clone())
    };
    let clusters = plain.clusters.iter().map(|clients| clients.iter().map(widen).collect()).collect();
    let wide = World { size: 3, clusters };
    let (found, wanted) = (search(&wide, wide.design(true)).unwrap(), search(&plain, plain.design(true)).unwrap());
    assert!((found.noise / wanted.noise - 1.0).abs() < 1e-6);
    assert!((found.within[0] / wanted.within[0] - 1.0).abs() < 1e-5);
    assert!((found.between.unwrap() / wanted.between.unwrap() - 1.0).abs() < 1e-5);
}

#[test]
fn a_saved_search_goes_on_as_if_nothing_had_been() {
    let world = World::draw(90, 3, &[5; 4], |_| 6, [1.0; 3]);
    let losses = world.losses();
    for common in [true, false] {
        let mut search = VarianceSearch::new(world.design(common)).unwrap();
        loop {
            let bytes = postcard::to_stdvec(&search).unwrap();
            let mut other: VarianceSearch = postcard::from_bytes(&bytes).unwrap();
            let sums = ask(&losses, search.wanted());
            let (step, again) = (search.tell(&sums).unwrap(), other.tell(&sums).unwrap());
            assert_eq!((&step, &search), (&again, &other));
            if step.is_some() {
                break;
            }
        }
    }
}
