//! The kernels of one network: its layers as text for the compiler, and how often and how large they are launched.

use crate::device::{Device, Kernel};
use kinfolk::Result;
use kinfolk::models::architecture::{Architecture, Judged, Part, PoolKind, Windows};
use std::fmt::Write;

/// Most arrays between layers, models that pull, and ranges that are frozen: as in `kernels.cu`.
pub(crate) const MOST_LAYERS: usize = 16;
pub(crate) const MOST_PULLS: usize = 4;
pub(crate) const MOST_FROZEN: usize = 16;

/// What every kernel is given: as in `kernels.cu`. Addresses of the device's memory.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct Args {
    pub(crate) params: u64,
    pub(crate) sources: u64,
    pub(crate) entries: u64,
    pub(crate) offsets: u64,
    pub(crate) order: u64,
    pub(crate) rows: u64,
    pub(crate) classes: u64,
    pub(crate) values: u64,
    pub(crate) outputs: [u64; MOST_LAYERS],
    pub(crate) slopes: [u64; MOST_LAYERS],
    pub(crate) places: [u64; MOST_LAYERS],
    pub(crate) partials: [u64; MOST_LAYERS],
    pub(crate) gradient: u64,
    pub(crate) first: u64,
    pub(crate) second: u64,
    pub(crate) average: u64,
    pub(crate) centres: u64,
    pub(crate) tilts: u64,
    pub(crate) losses: u64,
    pub(crate) hits: u64,
    pub(crate) row_losses: u64,
    pub(crate) strengths: [f32; MOST_PULLS],
    pub(crate) frozen: [u32; 2 * MOST_FROZEN],
    pub(crate) pulls: u32,
    pub(crate) freezes: u32,
    pub(crate) kind: u32,
    pub(crate) fused: u32,
    pub(crate) length: f32,
    pub(crate) momentum: f32,
    pub(crate) decay: f32,
    pub(crate) rate: f32,
    pub(crate) floor: f32,
    pub(crate) share: f32,
    pub(crate) smoothing: f32,
    pub(crate) micro: u32,
    pub(crate) notes: u32,
}

/// What `add_models` is given.
#[repr(C)]
pub(crate) struct Totals {
    pub(crate) params: u64,
    pub(crate) slots: u64,
    pub(crate) weights: u64,
    pub(crate) total: u64,
    pub(crate) count: u32,
}

/// Rows that go through a network together: as in `kernels.cu`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) begin: u32,
    pub(crate) count: u32,
    pub(crate) of: u32,
    pub(crate) first: u32,
}

/// How many numbers a slot has of everything that kernels leave to each other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Sizes {
    /// In and out of every layer, for one row.
    pub(crate) outputs: Vec<usize>,
    /// Of the places of pools, for one row.
    pub(crate) places: Vec<usize>,
    /// Of parts of convolutions' gradients.
    pub(crate) partials: Vec<usize>,
}

impl Sizes {
    /// Bytes of a slot, with so many rows at once.
    pub(crate) fn bytes(&self, rows: usize, trains: bool) -> usize {
        let numbers: usize = self.outputs.iter().sum();
        let places: usize = self.places.iter().sum();
        let partials: usize = if trains { self.partials.iter().sum() } else { 0 };
        rows * (numbers * if trains { 8 } else { 4 } + places) + 4 * partials
    }
}

/// Parameters of one slot to the next.
pub(crate) fn stride(width: usize) -> usize {
    width.next_multiple_of(32)
}

/// Whether kernels are there for all of its layers.
pub(crate) fn suits(architecture: &Architecture) -> bool {
    let can = |part: &Part| match part {
        Part::Pool { windows, .. } => windows.size[0] * windows.size[1] < 255,
        Part::Convolution { weight, bias, .. } => bias.is_empty() || bias.start == weight.end,
        Part::Dense { .. } | Part::Rectifier => true,
    };
    architecture.precision == kinfolk::models::options::Precision::F32
        && architecture.layers.len() < MOST_LAYERS
        && architecture.width < 1 << 31
        && architecture.layers.iter().all(can)
        && matches!(architecture.layers.last(), Some(Part::Dense { rectify: false, .. }))
}

/// Numbers that go into every layer, and out of the last.
fn widths(architecture: &Architecture) -> Vec<usize> {
    let mut widths = vec![architecture.input.iter().product()];
    for part in &architecture.layers {
        let width = match part {
            Part::Convolution { windows, .. } | Part::Pool { windows, .. } => windows.output.iter().product(),
            Part::Dense { outputs, .. } => *outputs,
            Part::Rectifier => widths[widths.len() - 1],
        };
        widths.push(width);
    }
    widths
}

/// In how many parts the pixels of a convolution's gradient are added up: enough for many blocks to work on one client.
fn parts(windows: &Windows, rows: usize) -> usize {
    let [down, right, filters] = windows.output;
    let lines = windows.size[0] * windows.size[1] * windows.input[2] + 1;
    let tiles = lines.div_ceil(64) * filters.div_ceil(32);
    (24usize.div_ceil(tiles)).min((rows * down * right).div_ceil(128)).max(1)
}

/// Whether a rectified pool of 2 × 2 follows this layer and covers all of its output: one kernel then does both.
fn is_pooled(architecture: &Architecture, layer: usize) -> bool {
    let (Part::Convolution { windows, .. }, Some(Part::Pool { windows: pool, kind: PoolKind::Rectified })) =
        (&architecture.layers[layer], architecture.layers.get(layer + 1))
    else {
        return false;
    };
    let [height, width, _] = windows.output;
    pool.size == [2; 2] && pool.stride == [2; 2] && pool.padding == [0; 2] && height % 2 == 0 && width % 2 == 0
}

pub(crate) fn sizes(architecture: &Architecture, rows: usize) -> Sizes {
    let outputs = widths(architecture);
    let places = |(part, out): (&Part, &usize)| if let Part::Pool { .. } = part { *out } else { 0 };
    let partials = |part: &Part| match part {
        Part::Convolution { windows, weight, bias } => parts(windows, rows) * (weight.len() + bias.len()),
        _ => 0,
    };
    // What a convolution leaves to the pool that is computed with it is never written.
    let mut kept = outputs.clone();
    (0..architecture.layers.len()).filter(|&l| is_pooled(architecture, l)).for_each(|l| kept[l + 1] = 0);
    Sizes {
        places: architecture.layers.iter().zip(&outputs[1..]).map(places).collect(),
        partials: architecture.layers.iter().map(partials).collect(),
        outputs: kept,
    }
}

/// The rows of a client are pixels or numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stored {
    Bytes,
    Numbers,
}

/// What a program is compiled for.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Wanted<'a> {
    pub(crate) architecture: &'a Architecture,
    pub(crate) stored: Stored,
    /// Rows of a slot that go through the network together.
    pub(crate) rows: usize,
    /// Whether products on tensor cores keep only what TF32 keeps.
    pub(crate) tf32: bool,
    /// Whether it trains, or only looks.
    pub(crate) trains: bool,
}

/// A kernel's name, blocks for a slot, and threads.
type Launch = (String, [usize; 2], usize);

/// The text of a program, and its launches in order.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Text {
    pub(crate) source: String,
    pub(crate) forward: Vec<Launch>,
    pub(crate) backward: Vec<Launch>,
}

impl Text {
    fn kernel(&mut self, threads: usize, name: &str, body: &str) {
        let _ = writeln!(
            self.source,
            "extern \"C\" __global__ void __launch_bounds__({threads}) {name}(const __grid_constant__ Args a) {{ {body}(a); }}"
        );
    }

    fn ahead(&mut self, name: String, body: &str, grid: [usize; 2], threads: usize) {
        self.kernel(threads, &name, body);
        self.forward.push((name, grid, threads));
    }

    fn back(&mut self, name: String, body: &str, grid: [usize; 2], threads: usize) {
        self.kernel(threads, &name, body);
        self.backward.push((name, grid, threads));
    }
}

/// Columns of a tile.
fn tile(columns: usize) -> usize {
    match columns {
        0..=8 => 8,
        9..=16 => 16,
        _ => 32,
    }
}

pub(crate) fn text(wanted: &Wanted) -> Text {
    let Wanted { architecture, rows, trains, .. } = *wanted;
    let mut text = Text::default();
    let head = [
        ("MOST_LAYERS", MOST_LAYERS),
        ("MOST_PULLS", MOST_PULLS),
        ("MOST_FROZEN", MOST_FROZEN),
        ("R", rows),
        ("WIDTH", architecture.width),
        ("STRIDE", stride(architecture.width)),
        ("TF32", usize::from(wanted.tf32)),
    ];
    for (name, value) in head {
        let _ = writeln!(text.source, "#define {name} {value}");
    }
    text.source.push_str(include_str!("kernels.cu"));
    // What is passed by value must lie alike on both sides.
    let lengths = [("Args", size_of::<Args>()), ("Entry", size_of::<Entry>()), ("Totals", size_of::<Totals>())];
    for (name, length) in lengths {
        let _ = writeln!(text.source, "static_assert(sizeof({name}) == {length}, \"{name}\");");
    }
    let [height, width, channels] = architecture.input;
    let stored = if wanted.stored == Stored::Bytes { "u8" } else { "float" };
    let pixels = height * width;
    text.ahead("gather_rows".into(), &format!("gather<{stored}, {channels}, {pixels}>"), [rows, 1], 128);
    let widths = widths(architecture);
    for (l, part) in architecture.layers.iter().enumerate() {
        let name = |what: &str| format!("{what}{l}");
        let define = |text: &mut Text, numbers: &[(&str, usize)]| {
            let numbers: Vec<String> = numbers.iter().map(|(name, value)| format!("{name} = {value}")).collect();
            let _ =
                writeln!(text.source, "struct L{l} {{ static constexpr int LAYER = {l}, {}; }};", numbers.join(", "));
        };
        let shape = |windows: &Windows| {
            let Windows { input: [ih, iw, ic], output: [oh, ow, _], padding: [above, left], .. } = *windows;
            vec![("IH", ih), ("IW", iw), ("IC", ic), ("OH", oh), ("OW", ow), ("ABOVE", above), ("LEFT", left)]
        };
        let wide = |count: usize| [(rows * count).div_ceil(256), 1];
        match part {
            Part::Convolution { windows, weight, bias } => {
                let Windows { output: [oh, ow, oc], size, stride, .. } = *windows;
                let parts = parts(windows, rows);
                let mut numbers = shape(windows);
                numbers.extend([("OC", oc), ("K", size[0]), ("S", stride[0]), ("PARTS", parts)]);
                numbers.push(("POOLED", usize::from(is_pooled(architecture, l))));
                numbers.extend([
                    ("WEIGHT", weight.start),
                    ("BIAS", bias.start),
                    ("HAS_BIAS", usize::from(!bias.is_empty())),
                ]);
                define(&mut text, &numbers);
                let lines = (rows * oh * ow).div_ceil(64);
                let body = format!("product<ConvolutionForward<L{l}>>");
                text.ahead(name("convolve"), &body, [lines, oc.div_ceil(tile(oc))], 128);
            }
            Part::Pool { .. } if l > 0 && is_pooled(architecture, l - 1) => {}
            Part::Pool { windows, kind } => {
                let Windows { size, stride, .. } = *windows;
                let kind = match kind {
                    PoolKind::Largest => 0,
                    PoolKind::Rectified => 1,
                    PoolKind::Mean => 2,
                };
                let mut numbers = shape(windows);
                numbers.extend([
                    ("WH", size[0]),
                    ("WW", size[1]),
                    ("SH", stride[0]),
                    ("SW", stride[1]),
                    ("KIND", kind),
                ]);
                define(&mut text, &numbers);
                text.ahead(name("pool"), &format!("pool_forward<L{l}>"), wide(widths[l + 1]), 256);
            }
            Part::Dense { inputs, outputs, weight, bias, rectify } => {
                let v = if inputs % 4 == 0 && weight.start % 4 == 0 { 4 } else { 1 };
                let (t, own) = (rows.min(16), if *outputs >= 128 { 4 } else { 1 });
                let gate = l > 0 && matches!(architecture.layers[l - 1], Part::Dense { rectify: true, .. });
                define(
                    &mut text,
                    &[
                        ("IN", *inputs),
                        ("OUT", *outputs),
                        ("WEIGHT", weight.start),
                        ("BIAS", bias.start),
                        ("HAS_BIAS", usize::from(!bias.is_empty())),
                        ("RECTIFY", usize::from(*rectify)),
                        ("GATE", usize::from(gate)),
                        ("V", v),
                        ("T", t),
                        ("OWN", own),
                    ],
                );
                let grid = [outputs.div_ceil(8 * own), rows.div_ceil(t)];
                text.ahead(name("dense"), &format!("dense_forward<L{l}>"), grid, 256);
            }
            Part::Rectifier => {
                define(&mut text, &[("SIZE", widths[l])]);
                text.ahead(name("rectify"), &format!("rectify_forward<L{l}>"), wide(widths[l]), 256);
            }
        }
    }
    let (last, outputs) = (architecture.layers.len(), widths[architecture.layers.len()]);
    let kind = match architecture.judged {
        Judged::Squared => 0,
        Judged::Logistic => 1,
        Judged::Softmax => 2,
    };
    if !trains {
        text.ahead("score_rows".into(), &format!("score<{kind}, {outputs}, {last}>"), [1, 1], 128);
        return text;
    }
    text.back("judge_rows".into(), &format!("judge<{kind}, {outputs}, {last}>"), [1, 1], 128);
    for (l, part) in architecture.layers.iter().enumerate().rev() {
        let name = |what: &str| format!("{what}{l}");
        let wide = |count: usize| [(rows * count).div_ceil(256), 1];
        match part {
            Part::Convolution { windows, weight, bias } => {
                let Windows { input: [ih, iw, ic], output: [_, _, oc], .. } = *windows;
                if l > 0 {
                    let body = format!("product<ConvolutionDown<L{l}>>");
                    let grid = [(rows * ih * iw).div_ceil(64), ic.div_ceil(tile(ic))];
                    text.back(name("convolve_down"), &body, grid, 128);
                }
                let body = format!("product<ConvolutionGradient<L{l}>>");
                let lines = weight.len() / oc + usize::from(!bias.is_empty());
                let grid = [lines.div_ceil(64), oc.div_ceil(tile(oc)) * parts(windows, rows)];
                text.back(name("convolve_gradient"), &body, grid, 128);
                let grid = [(weight.len() + bias.len()).div_ceil(256), 1];
                text.back(name("settle"), &format!("settle<L{l}>"), grid, 256);
            }
            Part::Pool { .. } if l > 0 && is_pooled(architecture, l - 1) => {}
            Part::Pool { .. } => {
                text.back(name("pool_back"), &format!("pool_backward<L{l}>"), wide(widths[l]), 256);
            }
            Part::Dense { inputs, outputs, weight, .. } => {
                let v = if inputs % 4 == 0 && weight.start % 4 == 0 { 4 } else { 1 };
                if l > 0 {
                    let grid = [inputs.div_ceil(32 * v), rows.div_ceil(rows.min(16))];
                    text.back(name("dense_down"), &format!("dense_down<L{l}>"), grid, 256);
                }
                let grid = [inputs.div_ceil(128 * v), outputs.div_ceil(16)];
                text.back(name("dense_gradient"), &format!("dense_gradient<L{l}>"), grid, 128);
            }
            Part::Rectifier => {
                text.back(name("rectify_back"), &format!("rectify_backward<L{l}>"), wide(widths[l]), 256);
            }
        }
    }
    text
}

/// A compiled program.
pub(crate) struct Program {
    /// From rows to outputs, and to losses where it only looks.
    pub(crate) forward: Vec<Kernel>,
    /// From outputs to a step or a gradient; some may run beside those that follow.
    pub(crate) backward: Vec<(Kernel, bool)>,
    pub(crate) copy: Kernel,
    pub(crate) apply: Kernel,
    pub(crate) average: Kernel,
    pub(crate) add_models: Kernel,
    pub(crate) sizes: Sizes,
}

impl Program {
    pub(crate) fn new(device: &Device, wanted: &Wanted) -> Result<Self> {
        let Text { source, forward, backward } = text(wanted);
        let module = device.compile(&source)?;
        let kernels = |launches: Vec<Launch>| -> Result<Vec<Kernel>> {
            launches.iter().map(|(name, grid, threads)| module.kernel(name, *grid, *threads)).collect()
        };
        // Gradients of dense layers wait for memory, those of convolutions below them for arithmetic.
        let convolves = wanted.architecture.layers.iter().any(|part| matches!(part, Part::Convolution { .. }));
        let beside: Vec<bool> =
            backward.iter().map(|(name, ..)| convolves && name.starts_with("dense_gradient")).collect();
        let every = |name: &str| module.kernel(name, [wanted.architecture.width.div_ceil(256), 1], 256);
        Ok(Self {
            forward: kernels(forward)?,
            backward: kernels(backward)?.into_iter().zip(beside).collect(),
            copy: every("copy")?,
            apply: every("apply")?,
            average: every("average")?,
            add_models: every("add_models")?,
            sizes: sizes(wanted.architecture, wanted.rows),
        })
    }
}
