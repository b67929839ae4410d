//! Machines and a server without anything between them: what adds up, what is refused, and what a server can tell apart.

use super::keys::Identity;
use super::machine::{Opened, Part, Seat, SlotShape};
use super::opening::{Total, fault, open};
use super::roster::{Roster, Wanted, in_hex, of_hex};
use super::{Digest, Masked, Minimum, Shares, Turn, Unmasking, threshold};
use crate::error::Result;
use std::collections::BTreeSet;

const RUN: Digest = [1; 32];
const SHAPES: [SlotShape; 2] = [SlotShape { length: 3, tells: true }, SlotShape { length: 2, tells: true }];

/// Some machines that have met.
struct Machines {
    seats: Vec<Seat>,
    opened: Vec<Opened>,
    roster: Roster,
    numbers: u64,
}

fn identity(place: usize) -> Identity {
    Identity::of(&[place as u8 + 1; 32])
}

fn seats(count: usize) -> Vec<Seat> {
    (0..count).map(|place| Seat::take(RUN, &identity(place), 2).unwrap()).collect()
}

fn roster(seats: &[Seat], minimum: Minimum) -> Roster {
    Roster { minimum, cards: seats.iter().map(|seat| seat.card().clone()).collect() }
}

impl Machines {
    fn new(count: usize) -> Self {
        let mut seats = seats(count);
        let roster = roster(&seats, Minimum { clients: 3, machines: 3.min(count) });
        seats.iter_mut().for_each(|seat| seat.meet(roster.clone(), &Wanted::ANY).unwrap());
        Self { opened: vec![Opened::default(); count], seats, roster, numbers: 0 }
    }

    /// A new turn among these.
    fn turn(&mut self, among: &[u32]) -> Turn {
        self.numbers += 1;
        Turn { roster: self.roster.digest().unwrap(), number: self.numbers, among: among.to_vec() }
    }

    fn mask(&mut self, place: u32, turn: &Turn, work: Digest) -> Result<Masked> {
        self.mask_part(place, turn, work, part(place))
    }

    fn mask_part(&mut self, place: u32, turn: &Turn, work: Digest, part: Part) -> Result<Masked> {
        let (seat, opened) = (&mut self.seats[place as usize], &self.opened[place as usize]);
        seat.check(turn, &[work], opened)?;
        seat.mask(turn.clone(), part, vec![work], vec![place as u8])
    }

    fn mask_all(&mut self, turn: &Turn, work: Digest) -> Vec<Masked> {
        turn.among.iter().map(|&place| self.mask(place, turn, work).unwrap()).collect()
    }

    fn unmask(&mut self, place: u32, turn: &Turn, masked: &[Masked]) -> Result<Shares> {
        let unmasking = unmasking(place, turn, masked);
        self.seats[place as usize].unmask(&unmasking, &mut self.opened[place as usize])
    }

    /// A whole turn, in which those places among the turn do not help to open.
    fn open(&mut self, turn: &Turn, masked: &[Masked], without: &[usize]) -> Result<Vec<Total>, String> {
        let mut helped = Vec::new();
        for (at, &place) in turn.among.iter().enumerate().filter(|(at, _)| !without.contains(at)) {
            helped.push((at, self.unmask(place, turn, masked).map_err(|error| error.to_string())?));
        }
        open(&SHAPES, masked, &helped)
    }
}

fn unmasking(place: u32, turn: &Turn, masked: &[Masked]) -> Unmasking {
    let at = turn.among.iter().position(|it| *it == place).unwrap();
    Unmasking { turn: turn.clone(), parcels: masked.iter().map(|masked| masked.parcels[at].clone()).collect() }
}

/// What a machine adds: of its two clients, both are in the first slot.
fn part(place: u32) -> Part {
    let of = i128::from(place);
    let numbers = vec![2, 10 + of, -of * (1 << 90), 0, 0];
    Part { numbers, clients: vec![2, 0], shapes: SHAPES.to_vec() }
}

fn sum(among: impl Iterator<Item = u32>) -> Vec<i128> {
    let mut sum = vec![0; 3];
    for place in among {
        sum.iter_mut().zip(part(place).numbers).for_each(|(sum, number)| *sum += number);
    }
    sum
}

fn refusal<T>(result: Result<T>) -> String {
    result.err().map(|error| error.told()).unwrap_or_default()
}

#[test]
fn masks_and_shares_of_three_to_ten_machines_give_the_plain_sum() {
    for count in 3..=10 {
        let mut machines = Machines::new(count);
        let all: Vec<u32> = (0..count as u32).collect();
        let turn = machines.turn(&all);
        let masked = machines.mask_all(&turn, [7; 32]);
        assert!(masked.iter().all(|masked| fault(masked, &SHAPES, count).is_none()));
        let totals = machines.open(&turn, &masked, &[]).unwrap();
        assert_eq!(totals, [Some(sum(0..count as u32)), None], "nobody is in the second slot");
    }
}

#[test]
fn more_than_two_thirds_are_wanted() {
    assert_eq!([1, 2, 3, 4, 5, 6, 7, 9, 10, 64].map(threshold), [1, 2, 3, 3, 4, 5, 5, 7, 7, 43]);
    assert!((1..=64).all(|count| threshold(count) <= count && 3 * threshold(count) > 2 * count));
}

#[test]
fn every_pattern_of_five_machines_gives_the_sum_of_those_who_sent_or_none() {
    let mut outcomes = BTreeSet::new();
    // Who does not send in the first turn, and who does not help to open the one that counts.
    for (mute, absent) in (0..32u32).flat_map(|mute| (0..32u32).map(move |absent| (mute, absent))) {
        let mut machines = Machines::new(5);
        let all: Vec<u32> = (0..5).collect();
        let left: Vec<u32> = all.iter().copied().filter(|place| mute & (1 << place) == 0).collect();
        let mut turn = machines.turn(&all);
        if left.len() < 5 {
            for &place in &left {
                machines.mask(place, &turn, [7; 32]).unwrap();
            }
            turn = machines.turn(&left);
            if left.len() < 3 {
                for &place in &left {
                    assert!(refusal(machines.mask(place, &turn, [7; 32])).contains("take part, want at least"));
                }
                outcomes.insert("refused");
                continue;
            }
        }
        let masked = machines.mask_all(&turn, [7; 32]);
        let without: Vec<usize> = (0..left.len()).filter(|at| absent & (1 << left[*at]) != 0).collect();
        let helpers = left.len() - without.len();
        match machines.open(&turn, &masked, &without) {
            Ok(totals) => {
                assert!(helpers >= threshold(left.len()));
                assert_eq!(totals[0], Some(sum(left.iter().copied())), "{mute:b} {absent:b}");
                outcomes.insert("exact");
            }
            Err(why) => {
                assert!(helpers < threshold(left.len()), "{mute:b} {absent:b}: {why}");
                assert!(why.contains("too few of"), "{why}");
                outcomes.insert("not opened");
                // Who has helped does not do the same again without those that are missing.
                if let Some(&helper) = left.iter().find(|place| absent & (1 << **place) == 0) {
                    let others: Vec<u32> = left.iter().copied().filter(|place| absent & (1 << place) == 0).collect();
                    let again = machines.turn(&others);
                    assert!(!refusal(machines.mask(helper, &again, [7; 32])).is_empty());
                }
            }
        }
    }
    assert_eq!(outcomes, BTreeSet::from(["exact", "not opened", "refused"]));
}

#[test]
fn slots_with_few_clients_stay_shut() {
    let mut machines = Machines::new(4);
    let turn = machines.turn(&[0, 1, 2, 3]);
    // Three clients in the first slot, and two in the second.
    let parts = [(1, 0), (2, 0), (0, 1), (0, 1)];
    let masked: Vec<Masked> = (0..4)
        .zip(parts)
        .map(|(place, (first, second))| {
            let part =
                Part { numbers: vec![first, 5, 6, second, 9], clients: vec![first, second], shapes: SHAPES.to_vec() };
            machines.mask_part(place, &turn, [7; 32], part).unwrap()
        })
        .collect();
    let totals = machines.open(&turn, &masked, &[]).unwrap();
    assert_eq!(totals, [Some(vec![3, 20, 24]), None]);
    let shares = machines.unmask(0, &turn, &masked).unwrap();
    assert!(shares.open == [true, false] && shares.shares.iter().all(|shares| shares.len() == 1));
    // A slot that tells nothing but a count is opened in any case.
    let mut machines = Machines::new(3);
    let turn = machines.turn(&[0, 1, 2]);
    let shapes = vec![SlotShape { length: 1, tells: false }];
    let masked: Vec<Masked> = (0..3)
        .map(|place| {
            let part = Part { numbers: vec![0], clients: vec![0], shapes: shapes.clone() };
            machines.mask_part(place, &turn, [7; 32], part).unwrap()
        })
        .collect();
    let helped: Vec<_> =
        (0..3).map(|place| (place as usize, machines.unmask(place, &turn, &masked).unwrap())).collect();
    assert_eq!(open(&shapes, &masked, &helped).unwrap(), [Some(vec![0])]);
}

#[test]
fn a_server_that_lies_is_refused_by_every_machine() {
    let all = [0, 1, 2, 3];
    let mut machines = Machines::new(4);
    let turn = machines.turn(&all);
    let masked = machines.mask_all(&turn, [7; 32]);
    let other = machines.turn(&[0, 1, 2]);
    for place in all {
        let said = |machines: &mut Machines, changed: Unmasking| {
            refusal(machines.seats[place as usize].unmask(&changed, &mut machines.opened[place as usize]))
        };
        let honest = unmasking(place, &turn, &masked);
        // Other sets than the one that was masked for: without one, with one twice, of another turn.
        let mut among = honest.clone();
        among.turn.among = vec![0, 1, 2];
        assert!(said(&mut machines, among).contains("among others"));
        let mut twice = honest.clone();
        twice.turn.among = vec![0, 1, 1, 2];
        assert!(said(&mut machines, twice).contains("among others"));
        let mut of_other = honest.clone();
        of_other.turn = other.clone();
        assert!(said(&mut machines, of_other).contains("another turn"));
        let mut fewer = honest.clone();
        fewer.parcels.pop();
        assert!(said(&mut machines, fewer).contains("parcels of other machines"));
        // A parcel of another machine, of another turn, and one that was changed.
        let mut swapped = honest.clone();
        swapped.parcels.swap(0, 1);
        assert!(said(&mut machines, swapped).contains("did not seal this parcel"));
        let mut changed = honest.clone();
        changed.parcels[2][20] ^= 1;
        assert!(said(&mut machines, changed).contains("machine 2 of the roster did not seal"));
    }
    machines.open(&turn, &masked, &[]).unwrap();
    for place in all {
        // The same question again has the same answer; another one about the same turn has none.
        let again = machines.unmask(place, &turn, &masked).unwrap();
        assert_eq!(again, machines.unmask(place, &turn, &masked).unwrap());
        assert!(refusal(machines.mask(place, &turn, [8; 32])).contains("turn 1 again"));
        let before = Turn { number: 0, ..turn.clone() };
        assert!(refusal(machines.mask(place, &before, [8; 32])).contains("turn 0 again"));
    }
    // The same work and models without one of them; other work may go on.
    let fewer = machines.turn(&[0, 1, 2]);
    for place in [0, 1, 2] {
        assert!(refusal(machines.mask(place, &fewer, [7; 32])).contains("the same work and models were in a sum"));
        machines.mask(place, &fewer, [8; 32]).unwrap();
    }
    // The same among the same tells nothing new.
    let again = machines.turn(&all);
    let masked = machines.mask_all(&again, [7; 32]);
    assert_eq!(machines.open(&again, &masked, &[]).unwrap()[0], Some(sum(0..4)));
}

#[test]
fn two_questions_that_were_masked_are_not_both_opened() {
    // A server that has both answers before it opens either.
    let mut machines = Machines::new(4);
    let (all, fewer) = (machines.turn(&[0, 1, 2, 3]), machines.turn(&[0, 1, 2]));
    let first = machines.mask_all(&all, [7; 32]);
    machines.mask_all(&fewer, [7; 32]);
    for place in 0..3 {
        assert!(refusal(machines.unmask(place, &all, &first)).contains("another turn"), "the newer one counts");
    }
}

#[test]
fn a_question_that_comes_again_is_masked_anew_and_opened_once() {
    let mut machines = Machines::new(4);
    let turn = machines.turn(&[0, 1, 2, 3]);
    let mut masked = machines.mask_all(&turn, [7; 32]);
    let lost = masked[1].clone();
    masked[1] = machines.mask(1, &turn, [7; 32]).unwrap();
    assert_ne!(lost.numbers, masked[1].numbers);
    let mut mixed = masked.clone();
    mixed[1] = lost;
    // Some machines are shown one, some the other: neither has enough shares.
    let helped: Vec<(usize, Shares)> = (0..4u32)
        .map(|place| {
            let masked = if place < 2 { &masked } else { &mixed };
            (place as usize, machines.unmask(place, &turn, masked).unwrap())
        })
        .collect();
    for numbers in [&masked, &mixed] {
        assert!(open(&SHAPES, numbers, &helped).unwrap_err().contains("do not fit together"));
    }
    // Each has answered for one of them.
    assert!(refusal(machines.unmask(0, &turn, &mixed)).contains("opened with other parcels"));
}

#[test]
fn rosters_are_checked() {
    let strangers = |known: &[usize]| -> BTreeSet<_> { known.iter().map(|&place| identity(place).public()).collect() };
    let minimum = Minimum { clients: 3, machines: 3 };
    let wanted = Wanted { minimum, known: None };
    let said = |change: &dyn Fn(&mut Roster), wanted: &Wanted| -> BTreeSet<String> {
        let mut seats = seats(3);
        let mut changed = roster(&seats, minimum);
        change(&mut changed);
        seats.iter_mut().map(|seat| refusal(seat.meet(changed.clone(), wanted))).collect()
    };
    assert_eq!(said(&|_| {}, &wanted), BTreeSet::from([String::new()]));
    let all_say = |said: BTreeSet<String>, text: &str| assert!(said.iter().all(|said| said.contains(text)), "{said:?}");
    all_say(said(&|roster| roster.cards.truncate(2), &wanted), "secure sums: ");
    all_say(said(&|roster| roster.cards[0].masking = [5; 32], &wanted), "secure sums: ");
    all_say(said(&|roster| roster.cards.push(roster.cards[0].clone()), &wanted), "on the roster twice");
    all_say(said(&|roster| roster.minimum.clients = 2, &wanted), "sums over at least 2 clients on 3 machines");
    let more = Wanted { minimum: Minimum { clients: 7, machines: 3 }, known: None };
    all_say(said(&|roster| roster.minimum.clients = 7, &more), "3 machines with 6 clients take part, want at least");
    let known = strangers(&[0, 1, 2]);
    assert_eq!(said(&|_| {}, &Wanted { minimum, known: Some(&known) }), BTreeSet::from([String::new()]));
    // Somebody else in the place of one that is known: with keys that the server has made.
    let posing = |roster: &mut Roster| roster.cards.push(Seat::take(RUN, &identity(9), 2).unwrap().card().clone());
    all_say(said(&posing, &Wanted { minimum, known: Some(&known) }), "does not know the identity");
    let many = |roster: &mut Roster| {
        (3..70).for_each(|place| roster.cards.push(Seat::take(RUN, &identity(place), 2).unwrap().card().clone()));
    };
    all_say(said(&many, &wanted), "70 machines, want at most 64");
}

#[test]
fn a_roster_is_met_once() {
    let mut machines = Machines::new(4);
    let shrunk = Roster { cards: machines.roster.cards[..3].to_vec(), ..machines.roster.clone() };
    let known = machines.roster.clone();
    for (place, seat) in machines.seats.iter_mut().enumerate() {
        let wanted = if place < 3 { "another roster" } else { "not on the roster" };
        assert!(refusal(seat.meet(shrunk.clone(), &Wanted::ANY)).contains(wanted));
        seat.meet(known.clone(), &Wanted::ANY).unwrap();
    }
    let turn = Turn { roster: shrunk.digest().unwrap(), number: 1, among: vec![0, 1, 2] };
    assert!(refusal(machines.mask(0, &turn, [7; 32])).contains("an unknown roster"));
    for among in [vec![0, 1, 1], vec![1, 2, 3], vec![0, 2, 1], vec![0, 1, 9], Vec::new()] {
        let turn = machines.turn(&among);
        assert!(refusal(machines.mask(0, &turn, [7; 32])).contains("a turn that is not among"), "{among:?}");
    }
    let few = machines.turn(&[0, 1]);
    assert!(refusal(machines.mask(0, &few, [7; 32])).contains("2 machines with 4 clients take part"));
}

#[test]
fn seats_outlast_a_process() {
    let mut machines = Machines::new(3);
    let restart = |machines: &mut Machines| {
        for seat in &mut machines.seats {
            *seat = postcard::from_bytes(&postcard::to_stdvec(seat).unwrap()).unwrap();
        }
    };
    let turn = machines.turn(&[0, 1, 2]);
    restart(&mut machines);
    let masked = machines.mask_all(&turn, [7; 32]);
    restart(&mut machines);
    assert_eq!(machines.open(&turn, &masked, &[]).unwrap()[0], Some(sum(0..3)));
    restart(&mut machines);
    assert!(refusal(machines.mask(0, &turn, [8; 32])).contains("turn 1 again"));
    assert_eq!(machines.seats[1].note(&unmasking(1, &turn, &masked)).unwrap(), [1]);
}

/// χ² of the bytes of some numbers over 256 values, of 255 degrees of freedom.
fn chi_squared(numbers: &[i128]) -> f64 {
    let mut counts = [0f64; 256];
    numbers.iter().flat_map(|number| number.to_le_bytes()).for_each(|byte| counts[byte as usize] += 1.0);
    let expected = (numbers.len() * 16) as f64 / 256.0;
    counts.iter().map(|count| (count - expected).powi(2) / expected).sum()
}

#[test]
fn whatever_machines_add_servers_see_uniform_numbers_of_the_same_shape() {
    const LENGTH: usize = 4096;
    let shapes = vec![SlotShape { length: LENGTH, tells: true }];
    // Two inputs with the same sum: nothing but zeros, and large numbers that cancel out.
    let seen = |value: i128| -> Vec<Masked> {
        let mut machines = Machines::new(4);
        let turn = machines.turn(&[0, 1, 2, 3]);
        (0..4)
            .zip([value, -value, value, -value])
            .map(|(place, value)| {
                let part = Part { numbers: vec![value; LENGTH], clients: vec![1], shapes: shapes.clone() };
                machines.mask_part(place, &turn, [7; 32], part).unwrap()
            })
            .collect()
    };
    let (one, other) = (seen(0), seen(1 << 100));
    let sizes = |masked: &[Masked]| -> Vec<(usize, Vec<usize>)> {
        masked.iter().map(|it| (it.numbers.len(), it.parcels.iter().map(Vec::len).collect())).collect()
    };
    assert_eq!(sizes(&one), sizes(&other));
    // Every subset, all four too: own masks are in it still.
    for (masked, subset) in [&one, &other].into_iter().flat_map(|masked| (1..16u32).map(move |subset| (masked, subset)))
    {
        let mut sum = vec![0i128; LENGTH];
        for (_, masked) in masked.iter().enumerate().filter(|(place, _)| subset & (1 << place) != 0) {
            sum.iter_mut().zip(&masked.numbers).for_each(|(sum, number)| *sum = sum.wrapping_add(*number));
        }
        // The mean is 255 and the deviation 22.6: six of them either way.
        let found = chi_squared(&sum);
        assert!((120.0..391.0).contains(&found), "{subset:b}: {found}");
    }
    let plain = vec![1i128 << 100; LENGTH];
    assert!(chi_squared(&plain) > 1e5, "the test sees what is not hidden");
}

#[test]
fn what_opened_sums_is_the_sum_and_nothing_between() {
    // With all machines but one in league with the server: its number is hidden by its own mask until the sum is opened.
    let mut machines = Machines::new(3);
    let turn = machines.turn(&[0, 1, 2]);
    let masked = machines.mask_all(&turn, [7; 32]);
    let two: Vec<(usize, Shares)> =
        (0..2).map(|place| (place as usize, machines.unmask(place, &turn, &masked).unwrap())).collect();
    assert!(open(&SHAPES, &masked, &two).unwrap_err().contains("too few of 3 machines"));
}

#[test]
fn identities_are_written_and_read() {
    let public = identity(3).public();
    assert_eq!(of_hex(&in_hex(&public)), Some(public));
    assert!(of_hex("12").is_none() && of_hex(&"zz".repeat(32)).is_none() && of_hex(&"1".repeat(63)).is_none());
}
