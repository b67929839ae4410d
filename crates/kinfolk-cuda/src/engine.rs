//! Training, losses and gradients of many clients at once on one device.

use crate::device::{Buffer, Device};
use crate::gram::Prepared;
use crate::program::{Args, Entry, MOST_FROZEN, MOST_PULLS, Program, Sizes, Totals, Wanted, sizes, stride};
use crate::rows::Rows;
use kinfolk::models::architecture::Architecture;
use kinfolk::training::{Optimiser, Plan};
use kinfolk::{Error, ErrorKind, Result};
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Parameters as a device computes with them. Those that are one and the same are sent once.
pub(crate) type Model = Arc<Vec<f32>>;

/// Memory for slots that are worked on together. Blocks of slots follow from it, never from what is free.
const ROOM: usize = 4 << 30;

/// Most slots at once.
const MOST_SLOTS: usize = 4096;

/// Most rows of a slot that go through a network together.
const MOST_ROWS: usize = 128;

/// The steps of one client.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Training {
    /// Where it begins.
    pub(crate) start: Model,
    /// Rows of the device, in the order in which they are used.
    pub(crate) rows: Vec<u32>,
    /// Which of these every step uses.
    pub(crate) steps: Vec<Range<u32>>,
    /// The models that pull, as many as the recipe has strengths.
    pub(crate) centres: Vec<Model>,
    /// What is added to every gradient.
    pub(crate) tilt: Option<Model>,
}

/// What all steps of some trainings have in common.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Recipe {
    step: f64,
    optimiser: Optimiser,
    strengths: Vec<f32>,
    frozen: Vec<Range<usize>>,
    tilts: bool,
    fading: bool,
    averaged: bool,
}

impl Recipe {
    /// That of a plan, if a device can follow it.
    pub(crate) fn of(plan: &Plan) -> Option<Self> {
        let terms = &plan.terms;
        let can = terms.pulls.len() <= MOST_PULLS
            && terms.frozen().len() <= MOST_FROZEN
            && !terms.hides_rows()
            && plan.course.tolerance == 0.0;
        can.then(|| Self {
            step: plan.step,
            optimiser: plan.optimiser,
            strengths: terms.pulls.iter().map(|pull| pull.strength as f32).collect(),
            frozen: terms.frozen().to_vec(),
            tilts: terms.tilt().is_some(),
            fading: plan.course.fading,
            averaged: plan.course.averaged,
        })
    }

    /// Whether steps are as long as the gradient.
    fn is_descent(&self) -> bool {
        matches!(self.optimiser, Optimiser::Descent { momentum: 0.0, weight_decay: 0.0 })
    }

    /// Steps of one length along the gradient of all rows, if that is what they are.
    pub(crate) fn plain_step(&self) -> Option<f64> {
        (self.is_plain() && !self.fading && !self.averaged).then_some(self.step)
    }

    /// Whether they are along the loss's gradient alone, so that a gradient need not be kept.
    fn is_plain(&self) -> bool {
        self.is_descent() && self.strengths.is_empty() && self.frozen.is_empty() && !self.tilts
    }
}

/// Some rows to look at with a model.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Look {
    pub(crate) model: Model,
    /// Rows of the device.
    pub(crate) rows: Vec<u32>,
}

/// What was seen.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Seen {
    /// The sum of the rows' losses.
    pub(crate) loss: f64,
    /// Rows of the right class.
    pub(crate) hits: u32,
    /// Every row's loss, where that was asked for.
    pub(crate) losses: Vec<f64>,
}

/// A device with the rows of some clients.
pub(crate) struct Engine {
    pub(crate) device: Arc<Device>,
    pub(crate) architecture: Architecture,
    pub(crate) tf32: bool,
    pub(crate) rows: Rows,
    /// Clients in the space of their rows.
    pub(crate) prepared: Option<Prepared>,
    programs: HashMap<(usize, bool), Arc<Program>>,
    buffers: Buffers,
}

#[derive(Default)]
struct Buffers {
    /// Models as they came, and where each slot finds those it needs.
    library: Buffer,
    sources: Buffer,
    centres: Buffer,
    tilts: Buffer,
    params: Buffer,
    slots: Buffer,
    entries: Buffer,
    offsets: Buffer,
    order: Buffer,
    outputs: Vec<Buffer>,
    slopes: Vec<Buffer>,
    places: Vec<Buffer>,
    partials: Vec<Buffer>,
    gradient: Buffer,
    first: Buffer,
    second: Buffer,
    average: Buffer,
    losses: Buffer,
    hits: Buffer,
    row_losses: Buffer,
    chosen: Buffer,
    weights: Buffer,
    total: Buffer,
}

/// Slots that were trained, whose parameters are still on the device.
pub(crate) struct Trained {
    program: Arc<Program>,
    /// Of every training its slot.
    slots: Vec<u32>,
    /// Of every training the loss before the first step.
    pub(crate) losses: Vec<f64>,
}

/// Parameters as they came from the device.
pub(crate) struct Vectors {
    all: Arc<Vec<f32>>,
    width: usize,
    size: usize,
    /// Of every training its slot.
    slots: Vec<u32>,
}

/// The parameters of one training, among others.
pub(crate) struct Vector {
    all: Arc<Vec<f32>>,
    place: Range<usize>,
}

impl Vectors {
    pub(crate) fn each(&self) -> impl Iterator<Item = Vector> + '_ {
        let begin = |slot: u32| slot as usize * self.size;
        self.slots
            .iter()
            .map(move |&slot| Vector { all: self.all.clone(), place: begin(slot)..begin(slot) + self.width })
    }
}

impl Vector {
    pub(crate) fn iter(&self) -> impl Iterator<Item = f64> + '_ {
        self.all[self.place.clone()].iter().map(|&value| f64::from(value))
    }
}

impl Engine {
    pub(crate) fn new(device: Arc<Device>, architecture: Architecture, tf32: bool, rows: Rows) -> Self {
        Self { device, architecture, tf32, rows, prepared: None, programs: HashMap::new(), buffers: Buffers::default() }
    }

    /// Where clients' rows are.
    pub(crate) fn rows(&self) -> &Rows {
        &self.rows
    }

    fn program(&mut self, rows: usize, trains: bool) -> Result<Arc<Program>> {
        if let Some(program) = self.programs.get(&(rows, trains)) {
            return Ok(program.clone());
        }
        let (architecture, stored, tf32) = (&self.architecture, self.rows.stored(), self.tf32);
        let program = Arc::new(Program::new(&self.device, &Wanted { architecture, stored, rows, tf32, trains })?);
        self.programs.insert((rows, trains), program.clone());
        Ok(program)
    }

    /// How many trainings, of these, are done at once: a function of the trainings alone.
    pub(crate) fn block(&self, trainings: &[Training]) -> usize {
        let bytes = sizes(&self.architecture, at_once(trainings)).bytes(at_once(trainings), true)
            + 5 * 4 * stride(self.architecture.width);
        (ROOM / bytes.max(1)).clamp(1, MOST_SLOTS)
    }

    /// Sends models, each once, and returns the place of every one on the device.
    pub(crate) fn send<'m>(
        &mut self,
        models: impl Iterator<Item = &'m Model> + Clone,
    ) -> Result<HashMap<*const Vec<f32>, u64>> {
        let mut places: HashMap<*const Vec<f32>, u64> = HashMap::new();
        let size = stride(self.architecture.width);
        let mut distinct: Vec<&Model> = Vec::new();
        for model in models {
            places.entry(Arc::as_ptr(model)).or_insert_with(|| {
                distinct.push(model);
                ((distinct.len() - 1) * size * 4) as u64
            });
        }
        self.device.grow(&mut self.buffers.library, distinct.len() * size * 4)?;
        let base = self.buffers.library.address;
        for (place, model) in distinct.iter().enumerate() {
            if model.len() != self.architecture.width {
                return Err(Error::new(ErrorKind::Internal, "a model of another length came to the device"));
            }
            self.device.write(base + (place * size * 4) as u64, model)?;
        }
        places.values_mut().for_each(|place| *place += base);
        Ok(places)
    }

    fn lay_out(&mut self, sizes: &Sizes, slots: usize, rows: usize, trains: bool) -> Result<Args> {
        let Self { device, buffers, .. } = self;
        let mut args = Args::default();
        fn at(list: &mut Vec<Buffer>, place: usize) -> &mut Buffer {
            list.resize_with(list.len().max(place + 1), Buffer::default);
            &mut list[place]
        }
        for (l, &size) in sizes.outputs.iter().enumerate() {
            let bytes = slots * rows * size * 4;
            let outputs = at(&mut buffers.outputs, l);
            device.grow(outputs, bytes)?;
            args.outputs[l] = outputs.address;
            if trains && l > 0 {
                let slopes = at(&mut buffers.slopes, l);
                device.grow(slopes, bytes)?;
                args.slopes[l] = slopes.address;
            }
        }
        for (l, (&places, &partials)) in sizes.places.iter().zip(&sizes.partials).enumerate() {
            if places > 0 {
                let buffer = at(&mut buffers.places, l);
                device.grow(buffer, slots * rows * places)?;
                args.places[l] = buffer.address;
            }
            if trains && partials > 0 {
                let buffer = at(&mut buffers.partials, l);
                device.grow(buffer, slots * partials * 4)?;
                args.partials[l] = buffer.address;
            }
        }
        device.grow(&mut buffers.losses, slots * 8)?;
        device.grow(&mut buffers.hits, slots * 4)?;
        args.losses = buffers.losses.address;
        args.hits = buffers.hits.address;
        (args.rows, args.classes, args.values) = self.rows.addresses();
        args.smoothing = self.architecture.smoothing as f32;
        Ok(args)
    }

    /// Trains, all at once. The trainings are no more than a [`block`](Engine::block).
    pub(crate) fn train(&mut self, trainings: &[Training], recipe: &Recipe, stop: &AtomicBool) -> Result<Trained> {
        self.device.bind()?;
        let (width, size) = (self.architecture.width, stride(self.architecture.width));
        let rows = at_once(trainings);
        let program = self.program(rows, true)?;
        // Those with most steps first: who is done is behind all others.
        let mut turns: Vec<usize> = (0..trainings.len()).collect();
        turns.sort_by_key(|&training| std::cmp::Reverse(trainings[training].steps.len()));
        let slots = turns.len();
        let tables =
            Tables::of(turns.iter().map(|&turn| (&trainings[turn].rows[..], &trainings[turn].steps[..])), rows);
        let mut args = self.lay_out(&program.sizes, slots, rows, true)?;
        let ordered = || turns.iter().map(|&turn| &trainings[turn]);
        let starts = ordered().map(|training| &training.start);
        let places = self.send(starts.chain(ordered().flat_map(|it| it.centres.iter().chain(&it.tilt))))?;
        let place = |model: &Model| places[&Arc::as_ptr(model)];
        let Self { device, buffers, .. } = self;
        device.grow(&mut buffers.params, slots * size * 4)?;
        let own: Vec<u64> = (0..slots).map(|slot| buffers.params.address + (slot * size * 4) as u64).collect();
        device.fill(&mut buffers.slots, &own)?;
        device.fill(&mut buffers.sources, &ordered().map(|it| place(&it.start)).collect::<Vec<_>>())?;
        device
            .fill(&mut buffers.centres, &ordered().flat_map(|it| it.centres.iter().map(place)).collect::<Vec<_>>())?;
        device.fill(&mut buffers.tilts, &ordered().flat_map(|it| it.tilt.iter().map(place)).collect::<Vec<_>>())?;
        device.fill(&mut buffers.entries, &tables.entries)?;
        device.fill(&mut buffers.offsets, &tables.offsets)?;
        device.fill(&mut buffers.order, &tables.order)?;
        args.params = buffers.slots.address;
        args.sources = buffers.sources.address;
        args.entries = buffers.entries.address;
        args.offsets = buffers.offsets.address;
        args.order = buffers.order.address;
        args.centres = buffers.centres.address;
        args.tilts = if recipe.tilts { buffers.tilts.address } else { 0 };
        args.pulls = recipe.strengths.len() as u32;
        args.strengths[..recipe.strengths.len()].copy_from_slice(&recipe.strengths);
        args.freezes = recipe.frozen.len() as u32;
        for (place, range) in recipe.frozen.iter().enumerate() {
            args.frozen[2 * place] = range.start.min(width) as u32;
            args.frozen[2 * place + 1] = range.end.min(width) as u32;
        }
        args.fused = u32::from(tables.chunks == 1 && recipe.is_plain());
        let all = slots * size * 4;
        let (momentum, decay) = match recipe.optimiser {
            Optimiser::Descent { momentum, weight_decay } => (momentum, weight_decay),
            Optimiser::Adam { weight_decay } => (0.0, weight_decay),
        };
        args.kind = if recipe.is_descent() { 0 } else { 1 };
        (args.momentum, args.decay) = (momentum as f32, decay as f32);
        if !recipe.is_descent() {
            device.grow(&mut buffers.first, all)?;
            device.clear(&buffers.first, all)?;
        }
        if matches!(recipe.optimiser, Optimiser::Adam { .. }) {
            args.kind = 2;
            device.grow(&mut buffers.second, all)?;
            device.clear(&buffers.second, all)?;
        }
        if args.fused == 0 {
            device.grow(&mut buffers.gradient, all)?;
        }
        if recipe.averaged {
            device.grow(&mut buffers.average, all)?;
            device.clear(&buffers.average, all)?;
        }
        args.first = buffers.first.address;
        args.second = buffers.second.address;
        args.gradient = buffers.gradient.address;
        args.average = buffers.average.address;
        device.write(buffers.losses.address, &vec![f64::NAN; slots])?;
        device.launch(&program.copy, slots, &args)?;
        let mut active = slots;
        for t in 0..trainings[turns[0]].steps.len() {
            if stop.load(Ordering::Relaxed) {
                device.wait()?;
                return Err(Error::new(ErrorKind::Stopped, "stopped"));
            }
            while trainings[turns[active - 1]].steps.len() <= t {
                active -= 1;
            }
            let length = if recipe.fading { recipe.step / (t + 1) as f64 } else { recipe.step };
            args.length = length as f32;
            let power = i32::try_from(t + 1).unwrap_or(i32::MAX);
            let root = (1.0 - 0.999f64.powi(power)).sqrt();
            args.rate = (length * root / (1.0 - 0.9f64.powi(power))) as f32;
            args.floor = (1e-8 * root) as f32;
            args.share = (2.0 / (t + 2) as f64) as f32;
            args.notes = u32::from(t == 0);
            for chunk in 0..tables.chunks {
                args.micro = (t * tables.chunks + chunk) as u32;
                pass(device, &program, active, &args)?;
            }
            if args.fused == 0 {
                device.launch(&program.apply, active, &args)?;
            }
            if recipe.averaged {
                device.launch(&program.average, active, &args)?;
            }
        }
        if recipe.averaged {
            // Who took no step is what it was.
            args.sources = args.params;
            let averages: Vec<u64> = (0..slots).map(|slot| args.average + (slot * size * 4) as u64).collect();
            let moved = ordered().filter(|training| !training.steps.is_empty()).count();
            device.fill(&mut buffers.sources, &averages)?;
            args.sources = buffers.sources.address;
            if moved > 0 {
                device.launch(&program.copy, moved, &args)?;
            }
        }
        let found: Vec<f64> = device.read(buffers.losses.address, slots)?;
        let mut of_training = vec![0; slots];
        let mut losses = vec![0.0; slots];
        for (slot, &turn) in turns.iter().enumerate() {
            of_training[turn] = slot as u32;
            losses[turn] = found[slot];
        }
        Ok(Trained { program, slots: of_training, losses })
    }

    /// The parameters that trainings ended with.
    pub(crate) fn vectors(&self, trained: &Trained) -> Result<Vectors> {
        let (width, size) = (self.architecture.width, stride(self.architecture.width));
        let all = self.device.read(self.buffers.params.address, trained.slots.len() * size)?;
        Ok(Vectors { all: Arc::new(all), width, size, slots: trained.slots.clone() })
    }

    /// Σ weight·parameters over some of the trainings, in this order.
    pub(crate) fn sum(&mut self, trained: &Trained, of: &[usize], weights: &[f64]) -> Result<Vec<f64>> {
        let width = self.architecture.width;
        let Self { device, buffers, .. } = self;
        device.bind()?;
        device.fill(&mut buffers.chosen, &of.iter().map(|&training| trained.slots[training]).collect::<Vec<_>>())?;
        device.fill(&mut buffers.weights, weights)?;
        device.grow(&mut buffers.total, width * 8)?;
        let totals = Totals {
            params: buffers.slots.address,
            slots: buffers.chosen.address,
            weights: buffers.weights.address,
            total: buffers.total.address,
            count: of.len() as u32,
        };
        device.launch(&trained.program.add_models, 1, &totals)?;
        device.read(buffers.total.address, width)
    }

    /// Gradients of mean losses, and these losses: of trainings of one step each, no more than a block.
    pub(crate) fn gradients(&mut self, trainings: &[Training]) -> Result<(Vec<f64>, Vectors)> {
        self.device.bind()?;
        let (width, size) = (self.architecture.width, stride(self.architecture.width));
        let rows = at_once(trainings);
        let program = self.program(rows, true)?;
        let slots = trainings.len();
        let tables = Tables::of(trainings.iter().map(|it| (&it.rows[..], &it.steps[..])), rows);
        let mut args = self.lay_out(&program.sizes, slots, rows, true)?;
        let places = self.send(trainings.iter().map(|it| &it.start))?;
        let Self { device, buffers, .. } = self;
        let starts: Vec<u64> = trainings.iter().map(|it| places[&Arc::as_ptr(&it.start)]).collect();
        device.fill(&mut buffers.slots, &starts)?;
        device.fill(&mut buffers.entries, &tables.entries)?;
        device.fill(&mut buffers.offsets, &tables.offsets)?;
        device.fill(&mut buffers.order, &tables.order)?;
        device.grow(&mut buffers.gradient, slots * size * 4)?;
        args.params = buffers.slots.address;
        args.entries = buffers.entries.address;
        args.offsets = buffers.offsets.address;
        args.order = buffers.order.address;
        args.gradient = buffers.gradient.address;
        args.notes = 1;
        for chunk in 0..tables.chunks {
            args.micro = chunk as u32;
            pass(device, &program, slots, &args)?;
        }
        let losses: Vec<f64> = device.read(args.losses, slots)?;
        let all = Arc::new(device.read(args.gradient, slots * size)?);
        Ok((losses, Vectors { all, width, size, slots: (0..slots as u32).collect() }))
    }

    /// Looks at rows with models.
    pub(crate) fn look(&mut self, looks: &[Look], each_row: bool, stop: &AtomicBool) -> Result<Vec<Seen>> {
        self.device.bind()?;
        let longest = looks.iter().map(|look| look.rows.len()).max().unwrap_or(0);
        let rows = if longest <= 16 { 16 } else { MOST_ROWS };
        let program = self.program(rows, false)?;
        let per_slot = program.sizes.bytes(rows, false);
        let slots = (ROOM / per_slot.max(1)).clamp(1, MOST_SLOTS);
        let places = self.send(looks.iter().map(|look| &look.model))?;
        let mut pieces: Vec<(usize, Range<usize>)> = Vec::new();
        for (look, Look { rows: all, .. }) in looks.iter().enumerate() {
            let begins = (0..all.len()).step_by(rows);
            pieces.extend(begins.map(|begin| (look, begin..(begin + rows).min(all.len()))));
        }
        let mut seen = vec![Seen::default(); looks.len()];
        for pieces in pieces.chunks(slots) {
            if stop.load(Ordering::Relaxed) {
                return Err(Error::new(ErrorKind::Stopped, "stopped"));
            }
            let mut args = self.lay_out(&program.sizes, pieces.len(), rows, false)?;
            let (mut order, mut entries) = (Vec::new(), Vec::new());
            for (look, range) in pieces {
                let (begin, count) = (order.len() as u32, range.len() as u32);
                entries.push(Entry { begin, count, of: count, first: 1 });
                order.extend_from_slice(&looks[*look].rows[range.clone()]);
            }
            let models: Vec<u64> = pieces.iter().map(|(look, _)| places[&Arc::as_ptr(&looks[*look].model)]).collect();
            let Self { device, buffers, .. } = self;
            device.fill(&mut buffers.slots, &models)?;
            device.fill(&mut buffers.entries, &entries)?;
            device.fill(&mut buffers.offsets, &(0..pieces.len() as u32).collect::<Vec<_>>())?;
            device.fill(&mut buffers.order, &order)?;
            args.params = buffers.slots.address;
            args.entries = buffers.entries.address;
            args.offsets = buffers.offsets.address;
            args.order = buffers.order.address;
            if each_row {
                device.grow(&mut buffers.row_losses, pieces.len() * rows * 4)?;
                args.row_losses = buffers.row_losses.address;
            }
            for kernel in &program.forward {
                device.launch(kernel, pieces.len(), &args)?;
            }
            let losses: Vec<f64> = device.read(args.losses, pieces.len())?;
            let hits: Vec<u32> = device.read(args.hits, pieces.len())?;
            let each: Vec<f32> = if each_row { device.read(args.row_losses, pieces.len() * rows)? } else { Vec::new() };
            for (slot, (look, range)) in pieces.iter().enumerate() {
                let seen = &mut seen[*look];
                seen.loss += losses[slot];
                seen.hits += hits[slot];
                if each_row {
                    seen.losses.extend(each[slot * rows..][..range.len()].iter().map(|&loss| f64::from(loss)));
                }
            }
        }
        Ok(seen)
    }
}

/// Forward and backward once.
fn pass(device: &Device, program: &Program, slots: usize, args: &Args) -> Result<()> {
    program.forward.iter().try_for_each(|kernel| device.launch(kernel, slots, args))?;
    for (kernel, beside) in &program.backward {
        if *beside {
            device.launch_beside(kernel, slots, args)?;
        } else {
            device.launch(kernel, slots, args)?;
        }
    }
    if program.backward.iter().any(|(_, beside)| *beside) { device.join() } else { Ok(()) }
}

/// Numbers of rows for which there are programs: few, as each is compiled.
fn round_up(rows: usize) -> usize {
    const SIZES: [usize; 9] = [4, 8, 10, 16, 20, 32, 50, 64, MOST_ROWS];
    SIZES.into_iter().find(|&size| size >= rows).unwrap_or(MOST_ROWS)
}

/// Rows of a slot that go through the network together.
fn at_once(trainings: &[Training]) -> usize {
    let steps = trainings.iter().flat_map(|training| &training.steps);
    round_up(steps.map(|step| (step.end - step.start) as usize).max().unwrap_or(0).min(MOST_ROWS))
}

/// Which rows every slot uses in every step, as kernels read it.
#[derive(Debug, PartialEq)]
struct Tables {
    order: Vec<u32>,
    entries: Vec<Entry>,
    /// Of every slot its first entry.
    offsets: Vec<u32>,
    /// Entries of a step.
    chunks: usize,
}

impl Tables {
    fn of<'t>(slots: impl Iterator<Item = (&'t [u32], &'t [Range<u32>])> + Clone, at_once: usize) -> Self {
        let longest = slots.clone().flat_map(|(_, steps)| steps).map(|step| (step.end - step.start) as usize).max();
        let chunks = longest.unwrap_or(0).div_ceil(at_once).max(1);
        let mut tables = Self { order: Vec::new(), entries: Vec::new(), offsets: Vec::new(), chunks };
        for (rows, steps) in slots {
            let base = tables.order.len() as u32;
            tables.offsets.push(tables.entries.len() as u32);
            tables.order.extend_from_slice(rows);
            for step in steps {
                let of = step.end - step.start;
                for chunk in 0..chunks {
                    let begin = (chunk * at_once).min(of as usize) as u32;
                    let count = (of - begin).min(at_once as u32);
                    tables.entries.push(Entry {
                        begin: base + step.start + begin,
                        count,
                        of,
                        first: u32::from(chunk == 0),
                    });
                }
            }
        }
        tables
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_of_many_rows_are_taken_in_parts() {
        let (rows, steps) = ([7, 8, 9, 4, 5], [0..3, 3..5]);
        let one = [6];
        let slots = [(&rows[..], &steps[..]), (&one[..], &[0..1, 0..1][..])];
        let entry = |begin, count, of, first| Entry { begin, count, of, first };
        let tables = Tables::of(slots.iter().copied(), 2);
        assert_eq!((tables.chunks, &tables.order[..], &tables.offsets[..]), (2, &[7, 8, 9, 4, 5, 6][..], &[0, 4][..]));
        assert_eq!(tables.entries[..4], [entry(0, 2, 3, 1), entry(2, 1, 3, 0), entry(3, 2, 2, 1), entry(5, 0, 2, 0)]);
        assert_eq!(tables.entries[4..], [entry(5, 1, 1, 1), entry(6, 0, 1, 0), entry(5, 1, 1, 1), entry(6, 0, 1, 0)]);
        assert_eq!(Tables::of(slots.iter().copied(), 3).chunks, 1);
        assert_eq!([0, 1, 10, 16, 17, 128].map(round_up), [4, 4, 10, 16, 20, 128]);
    }
}
