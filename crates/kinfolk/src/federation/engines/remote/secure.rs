//! Asks of which the server learns the sums over machines alone (`federation/secure/`): two exchanges each, after two at the beginning.
//!
//! A machine that does not send its masked sums is left out, and the others are asked again without it, as nothing has been opened by then;
//! the next asks spare it, longer every time, as each of them would cost a question in vain. One that does not help to open a sum is not
//! needed while enough others do.

use super::*;
use crate::federation::sealed::{Blocks, SealedOrder};
use crate::federation::secure::machine::SlotShape;
use crate::federation::secure::opening::{self, Total};
use crate::federation::secure::{Digest, MOST_MACHINES, Masked, Minimum, Roster, Shares, Turn, Unmasking, threshold};

/// What the server keeps of secure sums.
#[derive(Default)]
pub(super) struct SecureSums {
    meeting: Option<Meeting>,
    /// How many machines have met.
    met: usize,
    /// Why machines are missing, by their numbers, until they answer again.
    faults: BTreeMap<u64, String>,
    /// How often a sum was opened without the help of a machine, by its number and name.
    unhelped: BTreeMap<(u64, String), usize>,
}

/// For how many asks a machine is spared that refused the roster: for all.
const REFUSED: u64 = u64::MAX;
/// For how many at most it is spared that was missing again and again.
const LONGEST: u64 = 1 << 20;

/// The machines that have met.
struct Meeting {
    roster: Roster,
    digest: Digest,
    /// Of each place on the roster, the machine's place among all.
    machines: Vec<usize>,
    /// The number of the last turn.
    turn: u64,
    /// Machines that were missing, by their place on the roster: for how many asks they are spared, and how many the next time.
    spared: BTreeMap<u32, (u64, u64)>,
}

impl Meeting {
    /// Those who are asked next: all but those who are spared, if these are enough.
    fn expected(&mut self) -> Vec<u32> {
        let spared: BTreeSet<u32> =
            self.spared.iter().filter(|(_, (asks, _))| *asks > 0).map(|(place, _)| *place).collect();
        self.spared
            .values_mut()
            .filter(|(_, next)| *next < REFUSED)
            .for_each(|(asks, _)| *asks = asks.saturating_sub(1));
        let all = 0..self.machines.len() as u32;
        let expected: Vec<u32> = all.clone().filter(|place| !spared.contains(place)).collect();
        match self.roster.check_enough(expected.iter().map(|&place| place as usize)) {
            Ok(()) => expected,
            Err(_) => all.filter(|place| self.spared.get(place).is_none_or(|(_, next)| *next < REFUSED)).collect(),
        }
    }

    fn spare(&mut self, place: u32) {
        let (asks, next) = self.spared.entry(place).or_insert((0, 1));
        (*asks, *next) = (*next, (2 * *next).min(LONGEST));
    }

    fn turn(&mut self, among: &[u32]) -> Turn {
        self.turn += 1;
        Turn { roster: self.digest, number: self.turn, among: among.to_vec() }
    }
}

/// The machines that a sum is over, by their places among all, and what each slot has.
type Opened = (BTreeSet<usize>, Vec<Total>);

impl RemoteFederation {
    /// Has machines mask their sums, so that the server learns those over all of them.
    pub fn with_secure_sums(mut self, minimum: Minimum) -> Self {
        self.server.addition = Addition::Secure(minimum);
        self
    }

    /// An ask of which only sums over machines are learnt.
    pub(super) fn ask_for_secure_sums(&mut self, ask: &Ask, minimum: Minimum) -> Result<Answers> {
        self.refuse_altered()?;
        let (shared, model) = (self.shared.clone(), self.model()?.clone());
        let mut exchange = self.server.open(ask, &shared.infos, shared.rows(), &*model)?;
        let sealed = exchange.gatherer.seal()?;
        let errands = shared.sealed_errands(ask, &exchange.absences, &sealed);
        let mut left: BTreeSet<usize> = errands.keys().copied().collect();
        let blocks: Vec<Blocks> = (0..ask.orders.len()).map(|order| exchange.gatherer.blocks(order)).collect();
        let shapes: Vec<SlotShape> = blocks.iter().flat_map(|blocks| blocks.shapes()).collect();
        let mut why_none = String::new();
        match self.total(ask, (&shared, &errands, &sealed), &shapes, minimum)? {
            Ok((among, totals)) => {
                let mut totals = totals.into_iter().zip(&shapes);
                let mut sums = Vec::new();
                for (order, blocks) in blocks.iter().enumerate() {
                    let of_machine = |place: &usize| errands.get(place).map(|(machine, orders)| machine.places(orders));
                    let to = among.iter().filter_map(of_machine).flatten().filter(|(of, _)| *of == order);
                    let clients: Vec<u32> = to.flat_map(|(_, clients)| clients).collect();
                    let slots = totals.by_ref().take(blocks.shapes().count());
                    let sum = slots.flat_map(|(total, shape)| total.unwrap_or_else(|| vec![0; shape.length])).collect();
                    sums.push((order, clients, SealedSum(sum)));
                }
                // Which machine it was that added what cannot be, nobody can tell.
                match sums.iter().find_map(|(order, clients, sum)| exchange.gatherer.fault(*order, clients, sum)) {
                    Some(fault) => why_none = format!("over {} machines, {fault}", among.len()),
                    None => {
                        sums.iter()
                            .for_each(|(order, clients, sum)| exchange.gatherer.take_sealed(*order, clients, sum));
                        left.retain(|place| !among.contains(place));
                    }
                }
            }
            Err(why) => why_none = why,
        }
        self.lose_those(left.iter().filter_map(|place| errands.get(place)), &why_none, &mut exchange);
        Ok(self.server.close(exchange))
    }

    /// Counts the clients of machines that are in no sum as missing: by the machine's own fault, or else because of this.
    pub(super) fn lose_those<'m>(
        &mut self,
        machines: impl Iterator<Item = &'m (&'m Machine, Vec<SiteOrder>)>,
        why: &str,
        exchange: &mut Exchange,
    ) {
        for (machine, orders) in machines {
            let why = self.secure.faults.get(&machine.number).map_or(why, String::as_str).to_string();
            self.lose_part(machine, &why, machine.places(orders), exchange);
        }
    }

    /// The sum over as many machines as there are, and which these were; or why there is none.
    pub(super) fn total(
        &mut self,
        ask: &Ask,
        (shared, errands, sealed): (&Arc<Shared>, &Errands, &[SealedOrder]),
        shapes: &[SlotShape],
        minimum: Minimum,
    ) -> Result<Delivery<Opened>> {
        let mut meeting = match self.secure.meeting.take() {
            Some(meeting) => meeting,
            None => self.meet_machines(shared, minimum)?,
        };
        let total = self.total_of(&mut meeting, ask, (shared, errands, sealed), shapes);
        self.secure.meeting = Some(meeting);
        total
    }

    fn total_of(
        &mut self,
        meeting: &mut Meeting,
        ask: &Ask,
        (shared, errands, sealed): (&Arc<Shared>, &Errands, &[SealedOrder]),
        shapes: &[SlotShape],
    ) -> Result<Delivery<Opened>> {
        let packed = self.pack(ask)?;
        let mut among = meeting.expected();
        let (turn, masked) = loop {
            if let Err(error) = meeting.roster.check_enough(among.iter().map(|&place| place as usize)) {
                return Ok(Err(error.told()));
            }
            let turn = meeting.turn(&among);
            let mut messages = Vec::new();
            for &place in &among {
                let machine = &shared.machines[meeting.machines[place as usize]];
                let mut orders =
                    errands.get(&meeting.machines[place as usize]).map_or(Vec::new(), |(_, it)| it.clone());
                // Who has nobody in an order adds nothing to it: all machines mask all numbers.
                for (index, (order, seal)) in (0u32..).zip(ask.orders.iter().zip(sealed)) {
                    if !orders.iter().any(|order| order.index == index) {
                        let (to, work, seal) = (Some(Vec::new()), order.work.clone(), Some(*seal));
                        orders.push(SiteOrder { index, to, work, sum: None, seal });
                    }
                }
                orders.sort_by_key(|order| order.index);
                let work = Box::new(self.work(ask, &packed, machine, orders));
                messages.push((machine.number, self.encode(Request::Mask { turn: turn.clone(), work })?));
            }
            let mut masked: BTreeMap<u32, Masked> = BTreeMap::new();
            let mut missing = Vec::new();
            for (machine, reply) in shared.exchange(messages, kind_of(ask))? {
                let place = among
                    .iter()
                    .copied()
                    .find(|&it| shared.machines[meeting.machines[it as usize]].number == machine.number);
                let Some(place) = place else { continue };
                let fault = match reply {
                    Ok(SiteReply::Masked(numbers)) => match opening::fault(&numbers, shapes, among.len()) {
                        None => {
                            self.secure.faults.remove(&machine.number);
                            masked.insert(place, numbers);
                            continue;
                        }
                        Some(fault) => fault.to_string(),
                    },
                    other => unwanted(other),
                };
                missing.push(place);
                self.secure.faults.insert(machine.number, fault);
            }
            meeting.spared.retain(|place, _| !masked.contains_key(place));
            missing.iter().for_each(|&place| meeting.spare(place));
            if missing.is_empty() {
                break (turn, masked.into_values().collect::<Vec<_>>());
            }
            among.retain(|place| !missing.contains(place));
        };
        let message = |(at, &place): (usize, &u32)| {
            let parcels = masked.iter().map(|masked| masked.parcels[at].clone()).collect();
            let unmasking = Unmasking { turn: turn.clone(), parcels };
            let number = shared.machines[meeting.machines[place as usize]].number;
            Ok((number, self.encode(Request::Unmask(unmasking))?))
        };
        let messages = among.iter().enumerate().map(message).collect::<Result<_>>()?;
        let mut helped: Vec<(usize, Shares)> = Vec::new();
        let mut unhelped = Vec::new();
        for (machine, reply) in shared.exchange(messages, kind_of(ask))? {
            let at =
                among.iter().position(|&it| shared.machines[meeting.machines[it as usize]].number == machine.number);
            match (at, reply) {
                (Some(at), Ok(SiteReply::Shares(shares))) => helped.push((at, shares)),
                (_, other) => unhelped.push((machine, unwanted(other))),
            }
        }
        let opened = opening::open(shapes, &masked, &helped);
        for (machine, why) in unhelped {
            match &opened {
                Ok(_) => *self.secure.unhelped.entry((machine.number, machine.name.clone())).or_default() += 1,
                Err(_) => drop(self.secure.faults.insert(machine.number, why)),
            }
        }
        Ok(opened.map(|totals| (among.iter().map(|&place| meeting.machines[place as usize]).collect(), totals)))
    }

    /// Has machines make keys, and show them to each other. Who does not is in no sum.
    fn meet_machines(&mut self, shared: &Arc<Shared>, minimum: Minimum) -> Result<Meeting> {
        let there = shared.machines.iter().filter(|machine| machine.is_there);
        let introduce = self.encode(Request::Introduce)?;
        let messages = there.map(|machine| (machine.number, introduce.clone())).collect();
        let (mut cards, mut machines) = (Vec::new(), Vec::new());
        for (machine, reply) in shared.exchange(messages, MessageKind::Query)? {
            let place = shared.machines.iter().position(|it| it.number == machine.number);
            match (place, reply) {
                (Some(place), Ok(SiteReply::Card(card))) => {
                    cards.push(card);
                    machines.push(place);
                }
                (_, other) => drop(self.secure.faults.insert(machine.number, unwanted(other))),
            }
        }
        if machines.len() > MOST_MACHINES {
            let message =
                format!("secure sums are over at most {MOST_MACHINES} machines, {} are there", machines.len());
            return Err(Error::new(ErrorKind::Unsupported, message)
                .hint("each has a mask with every other; set privacy.sums = \"sealed\", or have fewer machines with more clients"));
        }
        let roster = Roster { minimum, cards };
        roster.check_enough(0..machines.len()).map_err(|error| self.too_few(error))?;
        let messages = machines
            .iter()
            .map(|&place| Ok((shared.machines[place].number, self.encode(Request::Meet(roster.clone()))?)))
            .collect::<Result<_>>()?;
        let mut spared = BTreeMap::new();
        for (machine, reply) in shared.exchange(messages, MessageKind::Query)? {
            let place = machines.iter().position(|&place| shared.machines[place].number == machine.number);
            if let (Some(place), Err(why)) = (place, met(reply)) {
                // Whoever refused the roster will refuse the sums.
                spared.insert(place as u32, (REFUSED, REFUSED));
                self.secure.faults.insert(machine.number, why);
            }
        }
        let left = (0..machines.len()).filter(|&place| !spared.contains_key(&(place as u32)));
        roster.check_enough(left).map_err(|error| self.too_few(error))?;
        let digest = roster.digest()?;
        self.secure.met = machines.len();
        Ok(Meeting { roster, digest, machines, turn: 0, spared })
    }

    /// Too few machines are left, and why.
    fn too_few(&self, error: Error) -> Error {
        let name = |number: &u64| {
            let machine = self.shared.machines.iter().find(|machine| machine.number == *number);
            machine.map_or("?", |machine| &machine.name)
        };
        let why = self.secure.faults.iter().map(|(number, why)| format!("; {}: {}", name(number), one_line(why)));
        let message = error.told() + &why.collect::<String>();
        Error::federation(message)
            .hint("with privacy.sums = \"sealed\" the server sees the sums of each machine, of which there may be one")
    }

    /// Has machines forget their keys.
    pub(super) fn part_from_machines(&mut self) -> Result<()> {
        let Some(meeting) = self.secure.meeting.take() else { return Ok(()) };
        let shared = self.shared.clone();
        let forget = self.encode(Request::Forget)?;
        let messages = meeting.machines.iter().map(|&place| (shared.machines[place].number, forget.clone())).collect();
        for (machine, reply) in shared.exchange(messages, MessageKind::Query)? {
            if let Err(why) = met(reply) {
                self.kept.push(format!(
                    "{}: it may still have its keys of secure sums: {}",
                    machine.name,
                    one_line(&why)
                ));
            }
        }
        Ok(())
    }

    /// What is to be said of secure sums.
    pub(super) fn secure_notes(&self) -> impl Iterator<Item = String> {
        let all = self.secure.met;
        let meeting = (all > 0).then(|| match threshold(all) {
            wanted if wanted == all => {
                format!("secure sums over {all} machines: with fewer than four of them none may be missing")
            }
            wanted => format!("secure sums over {all} machines: {wanted} of them have to help to open one"),
        });
        let unhelped = self.secure.unhelped.iter().map(|((_, name), sums)| {
            format!("{name}: {} opened without its help, with its clients in them", counted(*sums, "sum"))
        });
        meeting.into_iter().chain(unhelped)
    }
}

/// Whether a machine has done what nothing is to be said of.
fn met(reply: Delivery<SiteReply>) -> Delivery<()> {
    match reply {
        Ok(SiteReply::Done) => Ok(()),
        other => Err(unwanted(other)),
    }
}
